//! `bench boot`: sizes of the initramfs, and times from power-on to a deployed disk.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use ironwright_qemu_tests::{
    artifacts::{self, Artifacts, CLOUD_KERNEL, Drivers, FULL_KERNEL, Kernel},
    cluster::Cluster,
    image,
    machine::MachineSpec,
};

use super::{Figure, report};
use crate::{cargo, setup};

const MEGABYTE: f64 = 1e6;
/// How long a deploy may take before the bench gives up.
const LIMIT: Duration = Duration::from_secs(1200);
/// The image that is deployed in little memory: this large, and so many MiB of it not zero.
const LARGE_IMAGE_MIB: u32 = 4096;
const LARGE_IMAGE_BALLAST_MIB: u32 = 64;
const LITTLE_MEMORY_MIB: u32 = 512;
/// Around the seconds in the ramdisk's line on its console.
const SESSION_OPEN: &str = "session open, ";
const AFTER_KERNEL: &str = " s after the kernel started";

/// Sizes of the initramfs; times of a boot and a deploy.
pub(crate) fn run() -> Result<()> {
    setup::run()?;
    cargo::build_programs()?;
    let cloud = Kernel::fetch(CLOUD_KERNEL)?;
    let full = Kernel::fetch(FULL_KERNEL)?;
    let megabytes = |path: &Path| -> Result<f64> {
        #[allow(clippy::cast_precision_loss)] // Sizes far below 2^52.
        Ok(fs::metadata(path).with_context(|| format!("looking at {}", path.display()))?.len() as f64
            / MEGABYTE)
    };
    let debian = image::debian()?;
    let mut figures = vec![
        Figure::new("initramfs_vm", megabytes(&artifacts::ramdisk(&cloud, Drivers::Vm)?)?, "MB")
            .goal(15.0)
            .peer("initramfs-tools, disks of virtual machines only", megabytes(&debian.initrd)?),
        Figure::new("initramfs_full", megabytes(&artifacts::ramdisk(&full, Drivers::Full)?)?, "MB")
            .goal(60.0),
    ];
    figures.extend(deploy()?);
    report("boot", &figures)
}

/// Deploys a large image in little memory, and times what matters on the way.
fn deploy() -> Result<Vec<Figure>> {
    let artifacts = Artifacts::prepare()?;
    let image = image::small_with_ballast(&artifacts, LARGE_IMAGE_BALLAST_MIB, LARGE_IMAGE_MIB)?;
    let cluster = Cluster::start("bench")?;
    let spec = MachineSpec::bios_virtio("bench-1").memory_mib(LITTLE_MEMORY_MIB);
    let mut machine = cluster.add_machine(spec)?;
    cluster.add_image("large", &image.zstd)?;
    let run = cluster.deploy("bench-1", "large", &[])?;
    let power = Instant::now();
    machine.power_on()?;
    machine.console().wait_for(SESSION_OPEN, LIMIT)?;
    machine.console().wait_for(AFTER_KERNEL, LIMIT)?;
    let session = seconds_to_session(&machine.console().lines_until(AFTER_KERNEL, 1))?;
    let run = cluster.wait_success(&run, LIMIT)?;
    let whole = power.elapsed();
    let step = run.step("image.deploy");
    let imaging_ms = step.ended_ms.zip(step.started_ms).map(|(end, start)| end - start);
    let imaging =
        Duration::from_millis(imaging_ms.and_then(|ms| ms.try_into().ok()).context("no times of imaging")?);
    machine.power_off()?;
    cluster.pass()?;
    Ok(vec![
        Figure::new("kernel_to_session", session, "s").goal(8.0),
        Figure::new("imaging_4_gib_in_512_mib", imaging.as_secs_f64(), "s"),
        Figure::new("power_on_to_active_node", whole.as_secs_f64(), "s"),
    ])
}

/// Reads what the ramdisk says on its console when its session is open: the kernel's own clock, which begins with it.
fn seconds_to_session(line: &str) -> Result<f64> {
    let number = line.split_once(SESSION_OPEN).and_then(|(_, rest)| rest.split_once(AFTER_KERNEL));
    number.and_then(|(number, _)| number.parse().ok()).with_context(|| format!("the console said {line:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_console_line_is_read() {
        let line = "ironwright: session: session open, 7.61 s after the kernel started";
        assert!((seconds_to_session(line).unwrap() - 7.61).abs() < 1e-9);
        assert!(seconds_to_session("ironwright: session: session lost").is_err());
    }
}
