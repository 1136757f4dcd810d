//! The real-time harness: real agents (core, TLS and gRPC as on a machine; thousands in this process) against a control
//! process of its own, as `ironwright control serve` runs it.
//!
//! ```text
//!  this process: N agents ──mTLS──▶ gateway ┐
//!                operator ──HTTPS─▶ API     ┴ control process (its memory is read from /proc)
//! ```
//! Prints one JSON object for each figure. `cargo xtask bench gateway` runs it and makes the table.

mod agents;
mod api;
mod control;
mod orders;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use serde_json::json;

use crate::{agents::Fleet, api::Api};

/// How long sessions are held before memory is read: every agent has sent heartbeats by then.
const HOLD: Duration = Duration::from_secs(30);
/// How long commands are dispatched.
const DISPATCH_FOR: Duration = Duration::from_secs(30);
/// Sockets and files on either side.
const OPEN_FILES: u64 = 200_000;

/// Measures the gateway.
#[derive(Parser)]
#[command(name = "ironwright-bench")]
struct Arguments {
    /// The `ironwright` program.
    #[arg(long)]
    program: PathBuf,
    /// How many agents.
    #[arg(long, default_value_t = 20_000)]
    sessions: usize,
    /// Commands in a second while dispatch is measured.
    #[arg(long, default_value_t = 50)]
    rate: u32,
}

fn figure(name: &str, value: f64, unit: &str) {
    println!("{}", json!({"name": name, "value": value, "unit": unit}));
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    raise_open_files()?;
    let dir = tempfile::tempdir().context("making a folder for control")?;
    let (control, fleet) = control::prepare(dir.path(), arguments.sessions).await?;
    let control = control.start(&arguments.program).await?;
    let empty = control.memory_bytes()?;

    let begun = Instant::now();
    let fleet = Fleet::start(fleet, control.ca_pin()).await?;
    fleet.all_connected(Duration::from_secs(300)).await?;
    #[allow(clippy::cast_precision_loss)] // Far below 2^52.
    let sessions = arguments.sessions as f64;
    figure("connect_all", begun.elapsed().as_secs_f64(), "s");

    tokio::time::sleep(HOLD).await;
    ensure!(fleet.connected() == arguments.sessions, "{} of the sessions are left", fleet.connected());
    figure("sessions", sessions, "");
    #[allow(clippy::cast_precision_loss)]
    let per_session = control.memory_bytes()?.saturating_sub(empty) as f64 / sessions / 1024.0;
    figure("memory_per_session", per_session, "KiB");

    // A connection for each phase: control closes those that nobody uses.
    let api = Api::connect(&control).await?;
    let times = orders::dispatch(&api, &fleet, arguments.rate, DISPATCH_FOR).await?;
    figure("dispatch_p50", times.quantile(0.50), "ms");
    figure("dispatch_p99", times.quantile(0.99), "ms");

    let api = Api::connect(&control).await?;
    let together = orders::durable_per_second(&api, &fleet, 128).await?;
    let alone = orders::durable_per_second(&api, &fleet, 1).await?;
    println!(
        "{}",
        json!({"name": "durable_commands", "value": together, "unit": "/s",
               "peer": "one commit for each command", "peer_value": alone})
    );

    let control = control.kill_and_start(&arguments.program).await?;
    let back = Instant::now();
    fleet.all_connected_to(&control, Duration::from_secs(300)).await?;
    figure("reconnect_storm", back.elapsed().as_secs_f64(), "s");
    fleet.stop().await;
    control.stop().await
}

fn raise_open_files() -> Result<()> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("reading the limit of open files")?;
    let wanted = OPEN_FILES.max(hard);
    setrlimit(Resource::RLIMIT_NOFILE, wanted, wanted)
        .or_else(|_| setrlimit(Resource::RLIMIT_NOFILE, hard, hard))
        .context("raising the limit of open files")
}
