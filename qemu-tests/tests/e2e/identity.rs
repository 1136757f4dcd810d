//! Machines that are not who they should be.

use anyhow::{Context, Result, ensure};
use ironwright_qemu_tests::{
    cluster::{Cluster, Event},
    image,
    machine::MachineSpec,
    tpm::Tpm,
};

use crate::{DEPLOY_LIMIT, deploys::expect_active_by_tpm};

/// A known machine comes back with another TPM, made by a maker that is trusted: nothing about it changes.
#[test]
fn another_tpm_behind_a_known_mac_is_refused() -> Result<()> {
    let cluster = Cluster::start("other-tpm")?;
    let image = image::small(cluster.artifacts())?;
    let mut machine = cluster.add_machine(MachineSpec::bios_virtio("web-1"))?;
    cluster.add_image("small", &image.zstd)?;
    let run = cluster.deploy("web-1", "small", &[])?;
    machine.power_on()?;
    cluster.wait_success(&run, DEPLOY_LIMIT)?;
    expect_active_by_tpm(&cluster, "web-1")?;
    let known = cluster.machine_record("web-1")?;

    machine.power_off()?;
    machine.replace_tpm(cluster.make_tpm("other")?)?;
    machine.console().skip_to_end();
    machine.power_on()?;
    wait_refused(&cluster, "ek_mismatch")?;

    machine.console().wait_for("ek_mismatch", DEPLOY_LIMIT)?;
    let now = cluster.machine_record("web-1")?;
    ensure!(
        now.ek_fingerprint == known.ek_fingerprint && now.node_id == known.node_id,
        "the binding changed"
    );
    let node = cluster.node("web-1")?.context("the node is gone")?;
    ensure!(!node.connected, "the other TPM has a session");
    cluster.pass()
}

/// The TPM's maker is not in control's list: the machine never joins, and its disk is never touched.
#[test]
fn a_tpm_of_a_foreign_maker_is_refused() -> Result<()> {
    let cluster = Cluster::start("foreign-ca")?;
    let image = image::small(cluster.artifacts())?;
    let mut machine = cluster.add_machine(MachineSpec::bios_virtio("web-1"))?;
    cluster.add_image("small", &image.zstd)?;
    let foreign: Tpm = cluster.make_foreign_tpm("foreign")?;
    machine.replace_tpm(foreign)?;

    cluster.deploy("web-1", "small", &[])?;
    machine.power_on()?;
    wait_refused(&cluster, "ek_untrusted")?;

    machine.console().wait_for("ek_untrusted", DEPLOY_LIMIT)?;
    ensure!(cluster.node("web-1")?.is_none(), "the machine has a node");
    ensure!(cluster.machine_record("web-1")?.ek_fingerprint.is_none(), "the machine is bound to the TPM");
    ensure!(machine.disk_bytes_written()? == 0, "the disk was written to");
    cluster.pass()
}

/// The refusal is in the audit log, under its code, for the machine.
fn wait_refused(cluster: &Cluster, code: &str) -> Result<Event> {
    cluster.wait_event(&format!("`{code}` in the audit log"), DEPLOY_LIMIT, |event| {
        event.action == "join.refused" && event.detail.to_string().contains(code)
    })
}
