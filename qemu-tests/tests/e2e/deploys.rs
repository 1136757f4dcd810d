//! Deploys that go well.

use anyhow::{Context, Result, ensure};
use ironwright_qemu_tests::{
    cluster::Cluster,
    image::{self, ESP_OFFSET},
    machine::{Machine, MachineSpec},
};

use crate::DEPLOY_LIMIT;

/// UEFI's own PXE, iPXE by TFTP, a compressed image on NVMe.
#[test]
fn quick_uefi_with_nvme_becomes_an_active_node() -> Result<()> {
    let cluster = Cluster::start("uefi-nvme")?;
    let image = image::small(cluster.artifacts())?;
    let mut machine = cluster.add_machine(MachineSpec::uefi_nvme("web-1"))?;
    cluster.add_image("small", &image.zstd)?;

    let run = cluster.deploy("web-1", "small", &[])?;
    machine.power_on()?;
    let run = cluster.wait_success(&run, DEPLOY_LIMIT)?;

    ensure!(run.evidence.contains_key("image_digest"), "evidence: {:?}", run.evidence);
    expect_active_by_tpm(&cluster, "web-1")?;
    expect_deployed(&machine, &image)?;
    cluster.pass()
}

/// iPXE as the card's option ROM, a raw image on virtio-blk.
#[test]
fn bios_with_virtio_blk_becomes_an_active_node() -> Result<()> {
    let cluster = Cluster::start("bios-virtio")?;
    let image = image::small(cluster.artifacts())?;
    let mut machine = cluster.add_machine(MachineSpec::bios_virtio("web-1"))?;
    cluster.add_image("small", &image.raw)?;

    let run = cluster.deploy("web-1", "small", &[])?;
    machine.power_on()?;
    cluster.wait_success(&run, DEPLOY_LIMIT)?;

    expect_active_by_tpm(&cluster, "web-1")?;
    expect_deployed(&machine, &image)?;
    cluster.pass()
}

/// A stock distribution: cloud-init reads the seed, grows the root and installs the agent.
#[test]
fn debian_boots_to_its_login_prompt_and_becomes_an_active_node() -> Result<()> {
    let cluster = Cluster::start("debian")?;
    let mut machine = cluster.add_machine(MachineSpec::uefi_nvme("web-1").memory_mib(1024))?;
    cluster.add_image("debian-12", &image::debian()?.file)?;

    let run = cluster.deploy("web-1", "debian-12", &[])?;
    machine.power_on()?;
    machine.console().wait_for("web-1 login:", DEPLOY_LIMIT)?;
    cluster.wait_success(&run, DEPLOY_LIMIT)?;

    expect_active_by_tpm(&cluster, "web-1")?;
    ensure!(machine.disk()?.has_backup_gpt()?, "the disk has no backup partition table in its last sector");
    cluster.pass()
}

/// The machine's operating system holds a session, and its TPM has vouched for it.
pub(crate) fn expect_active_by_tpm(cluster: &Cluster, machine: &str) -> Result<()> {
    let node = cluster.node(machine)?.context("the machine has no node")?;
    ensure!(node.state == "active" && node.connected, "node is {} ({})", node.state, node.connected);
    ensure!(node.role == "node" && node.proof == "tpm", "node has role {} by {}", node.role, node.proof);
    ensure!((0..=7).all(|pcr| node.pcrs.contains_key(&pcr)), "PCRs: {:?}", node.pcrs.keys());
    let record = cluster.machine_record(machine)?;
    ensure!(record.ek_fingerprint.is_some(), "the machine is not bound to its TPM");
    ensure!(record.node_id.as_deref() == Some(node.id.as_str()), "the machine has node {:?}", record.node_id);
    Ok(())
}

/// The disk begins with the image and ends with a backup of its partition table.
pub(crate) fn expect_deployed(machine: &Machine, image: &image::SmallImage) -> Result<()> {
    let disk = machine.disk()?;
    ensure!(disk.has_file_at(ESP_OFFSET, &image.esp)?, "the disk's system partition is not the image's");
    ensure!(disk.has_backup_gpt()?, "the disk has no backup partition table in its last sector");
    Ok(())
}
