//! Deploys in which something dies or lies.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::Path,
};

use anyhow::{Context, Result, ensure};
use ironwright_qemu_tests::{
    cluster::Cluster,
    image::{self, SmallImage},
    machine::{Machine, MachineSpec},
};

use crate::{
    BALLAST_MIB, DEPLOY_LIMIT, IMAGING_LIMIT, SHORT_LIMIT, SLOW_NETWORK,
    deploys::{expect_active_by_tpm, expect_deployed},
};

/// One wrong byte in the site's cache: nothing on the disk is left to boot from.
#[test]
fn quick_i2_a_wrong_byte_fails_the_run_and_the_disk_does_not_boot() -> Result<()> {
    let cluster = Cluster::start("digest")?;
    let image = image::small(cluster.artifacts())?;
    let mut machine = cluster.add_machine(MachineSpec::bios_virtio("web-1"))?;
    let digest = cluster.add_image("small", &image.raw)?;

    let run = cluster.deploy("web-1", "small", &[])?;
    cluster.wait_run(&run, "the site to have the image", SHORT_LIMIT, |run| {
        run.step("boot.prepare").state == "succeeded"
    })?;
    flip_a_byte(&cluster.cached_file(&digest)?)?;
    machine.power_on()?;
    let run = cluster.wait_failure(&run, DEPLOY_LIMIT)?;

    let error = run.step("image.deploy").error.as_ref().context("image.deploy has no error")?;
    ensure!(error.code == "digest_mismatch", "image.deploy failed with {}", error.code);
    ensure!(cluster.node("web-1")?.is_none_or(|node| node.state != "active"), "the node is active");
    machine.console().wait_for("No bootable device", DEPLOY_LIMIT)?;
    ensure!(machine.disk()?.ends_are_zero()?, "the disk's ends are not zero");
    cluster.pass()
}

/// The plug is pulled while the image is being written, and put back.
#[test]
fn a_machine_that_loses_power_while_imaging_starts_over() -> Result<()> {
    let (cluster, mut machine, image) = slow_deploy("power-cut", MachineSpec::uefi_nvme("web-1"))?;
    let run = cluster.deploy("web-1", "heavy", &[])?;
    machine.power_on()?;
    cluster.wait_imaging(&run, IMAGING_LIMIT)?;

    machine.power_off()?;
    ensure!(machine.disk()?.read(0, 512)?.iter().all(|byte| *byte == 0), "a half-written disk could boot");
    machine.unlimit_network()?;
    machine.power_on()?;
    cluster.wait_success(&run, DEPLOY_LIMIT)?;

    expect_active_by_tpm(&cluster, "web-1")?;
    expect_deployed(&machine, &image)?;
    cluster.pass()
}

/// Control is killed while the image is being written: the machine goes on, and writes it once.
#[test]
fn control_killed_while_imaging_goes_on_and_the_image_is_written_once() -> Result<()> {
    let (mut cluster, mut machine, image) = slow_deploy("control-kill", MachineSpec::bios_virtio("web-1"))?;
    let run = cluster.deploy("web-1", "heavy", &[])?;
    machine.power_on()?;
    let before = cluster.wait_imaging(&run, IMAGING_LIMIT)?;

    cluster.control.kill()?;
    cluster.control.start()?;
    machine.unlimit_network()?;
    let after = cluster.wait_success(&run, DEPLOY_LIMIT)?;

    let (before, after) = (before.step("image.deploy"), after.step("image.deploy"));
    ensure!(
        before.command_id.is_some() && before.command_id == after.command_id,
        "the command was issued anew"
    );
    // Bytes are written as they come, so what came twice was written twice. All else (firmware's, kernel, initramfs)
    // is far less than half of the image.
    let (received, image_bytes) = (machine.bytes_received()?, fs::metadata(&image.raw)?.len());
    ensure!(received >= image_bytes, "the machine received {received} bytes");
    ensure!(received < image_bytes * 3 / 2, "the machine received {received} bytes");
    expect_active_by_tpm(&cluster, "web-1")?;
    expect_deployed(&machine, &image)?;
    cluster.pass()
}

/// The site is killed while the machine fetches its kernel, and started again.
#[test]
fn a_site_killed_during_boot_serves_the_machine_after_its_restart() -> Result<()> {
    let mut cluster = Cluster::start("site-kill")?;
    let image = image::small(cluster.artifacts())?;
    let mut machine = cluster.add_machine(MachineSpec::bios_virtio("web-1"))?;
    cluster.add_image("small", &image.raw)?;

    machine.limit_network(SLOW_NETWORK)?;
    let run = cluster.deploy("web-1", "small", &[])?;
    machine.power_on()?;
    machine.console().wait_for("/blobs/sha256/", IMAGING_LIMIT)?;
    cluster.site.kill()?;
    cluster.site.start()?;
    machine.unlimit_network()?;
    cluster.wait_success(&run, DEPLOY_LIMIT)?;

    expect_active_by_tpm(&cluster, "web-1")?;
    expect_deployed(&machine, &image)?;
    cluster.pass()
}

/// A cluster with an image and a machine for which imaging takes a while.
fn slow_deploy(name: &str, spec: MachineSpec) -> Result<(Cluster, Machine, SmallImage)> {
    let cluster = Cluster::start(name)?;
    let image = image::small_with_ballast(cluster.artifacts(), BALLAST_MIB, BALLAST_MIB)?;
    let machine = cluster.add_machine(spec)?;
    cluster.add_image("heavy", &image.raw)?;
    machine.limit_network(SLOW_NETWORK)?;
    Ok((cluster, machine, image))
}

/// Changes one bit in the middle of a file.
fn flip_a_byte(path: &Path) -> Result<()> {
    let file = File::options().read(true).write(true).open(path).context("opening the cached image")?;
    let middle = file.metadata()?.len() / 2;
    let mut byte = [0];
    file.read_exact_at(&mut byte, middle)?;
    file.write_all_at(&[byte[0] ^ 1], middle)?;
    Ok(())
}
