//! A night of simulations: many seeds, each level of chaos, an hour of simulated time each.

use std::{
    collections::VecDeque,
    process::{Child, Command, Stdio},
    thread,
    time::Instant,
};

use anyhow::{Context, Result, bail, ensure};

use crate::cargo;

/// Levels at which things go wrong.
const CHAOS: [&str; 2] = ["light", "heavy"];
const NODES: &str = "50";
const MINUTES: &str = "60";

/// One simulation that runs.
struct Running {
    seed: u64,
    chaos: &'static str,
    child: Child,
}

/// Runs `seeds` seeds from `first` on, as many at a time as there are processors. Stops at the first that fails and
/// shows what the program says of it.
pub(crate) fn run(first: u64, seeds: u64) -> Result<()> {
    ensure!(seeds > 0, "--seeds must be at least 1");
    let start = Instant::now();
    cargo::run(&["build", "--release", "--package", "ironwright"])?;
    let plans = (first..first + seeds).flat_map(|seed| CHAOS.map(|chaos| (seed, chaos)));
    let at_once = thread::available_parallelism().map_or(1, usize::from);
    let mut running = VecDeque::new();
    let mut done = 0;
    for (seed, chaos) in plans {
        if running.len() == at_once
            && let Some(oldest) = running.pop_front()
        {
            finish(oldest)?;
            done += 1;
        }
        running.push_back(begin(seed, chaos)?);
    }
    for last in running {
        finish(last)?;
        done += 1;
    }
    println!("nightly: {done} simulations of {MINUTES} minutes hold, in {} s", start.elapsed().as_secs());
    Ok(())
}

fn begin(seed: u64, chaos: &'static str) -> Result<Running> {
    let program = cargo::workspace().join("target/release/ironwright");
    let child = Command::new(program)
        .args(["sim", "--seed", &seed.to_string(), "--nodes", NODES, "--minutes", MINUTES, "--chaos", chaos])
        .stdout(Stdio::piped())
        .spawn()
        .context("starting the simulator")?;
    Ok(Running { seed, chaos, child })
}

fn finish(running: Running) -> Result<()> {
    let Running { seed, chaos, child } = running;
    let output = child.wait_with_output().context("waiting for the simulator")?;
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!("seed {seed} with {chaos} chaos does not hold:\n{said}");
    }
    let digest = said.lines().next().unwrap_or_default();
    println!("seed {seed:>4} {chaos:<5}  {digest}");
    Ok(())
}
