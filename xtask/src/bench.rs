//! Figures, each with its goal, printed and kept as JSON.

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
use serde::Serialize;

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

/// One figure. Smaller is better.
#[derive(Debug, Serialize)]
struct Figure {
    name: &'static str,
    value: f64,
    unit: &'static str,
    /// What it is compared with, measured in the same run.
    peer: Option<&'static str>,
    peer_value: Option<f64>,
    ratio: Option<f64>,
    goal: Option<f64>,
    met: Option<bool>,
}

impl Figure {
    fn new(name: &'static str, value: f64, unit: &'static str) -> Self {
        Self { name, value, unit, peer: None, peer_value: None, ratio: None, goal: None, met: None }
    }

    fn goal(self, goal: f64) -> Self {
        Self { goal: Some(goal), met: Some(self.value <= goal), ..self }
    }

    fn peer(self, peer: &'static str, peer_value: f64) -> Self {
        Self { peer: Some(peer), peer_value: Some(peer_value), ratio: Some(self.value / peer_value), ..self }
    }
}

/// Sizes of the initramfs; times of a boot and a deploy.
pub(crate) fn boot() -> Result<()> {
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

/// Prints the figures and writes `target/bench/NAME.json`.
fn report(name: &str, figures: &[Figure]) -> Result<()> {
    for figure in figures {
        println!("{}", line(figure));
    }
    let folder = artifacts::target_folder()?.join("bench");
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let path = folder.join(format!("{name}.json"));
    fs::write(&path, serde_json::to_string_pretty(figures)? + "\n")
        .with_context(|| format!("writing {}", path.display()))?;
    println!("written to {}", path.display());
    Ok(())
}

fn line(figure: &Figure) -> String {
    let Figure { name, value, unit, peer, peer_value, ratio, goal, met } = figure;
    let mut words = vec![format!("{name:<26} {value:>8.1} {unit:<2}")];
    if let (Some(goal), Some(met)) = (goal, met) {
        words.push(format!("goal {goal} {unit}: {}", if *met { "met" } else { "MISSED" }));
    }
    if let (Some(peer), Some(peer_value), Some(ratio)) = (peer, peer_value, ratio) {
        words.push(format!("{ratio:.2} × {peer} ({peer_value:.1} {unit})"));
    }
    words.join("  ")
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

    #[test]
    fn a_figure_knows_its_goal_and_its_peer() {
        let figure = Figure::new("size", 12.0, "MB").goal(15.0).peer("other", 48.0);
        let json = serde_json::to_value(&figure).unwrap();
        let expected = serde_json::json!({
            "name": "size", "value": 12.0, "unit": "MB", "peer": "other", "peer_value": 48.0, "ratio": 0.25,
            "goal": 15.0, "met": true,
        });
        assert_eq!(json, expected);
        assert!(line(&figure).ends_with("goal 15 MB: met  0.25 × other (48.0 MB)"));
        assert_eq!(Figure::new("size", 15.1, "MB").goal(15.0).met, Some(false));
    }
}
