//! `bench gateway`: thousands of agents with sessions at one control process. `ironwright-bench` measures; the goals
//! are here.

use anyhow::{Context, Result, bail};
use ironwright_qemu_tests::artifacts;
use serde::Deserialize;

use super::{Figure, report};
use crate::{cargo, setup};

/// One line of `ironwright-bench`.
#[derive(Deserialize)]
struct Measured {
    name: String,
    value: f64,
    peer_value: Option<f64>,
}

/// Sessions, their memory, dispatch, durable commands, and a fleet that comes back.
pub(crate) fn run(sessions: usize) -> Result<()> {
    setup::run()?;
    cargo::run(&["build", "--release", "--package", "ironwright", "--package", "ironwright-bench"])?;
    let program = artifacts::target_folder()?.join("release/ironwright");
    let program = program.to_str().context("the target folder's path is not UTF-8")?;
    let sessions = sessions.to_string();
    let words = [
        "run",
        "--release",
        "--package",
        "ironwright-bench",
        "--",
        "--program",
        program,
        "--sessions",
        &sessions,
    ];
    let mut figures = Vec::new();
    let mut odd = None;
    let succeeded = cargo::run_with_lines(&words, |line| match figure(line) {
        Ok(figure) => figures.push(figure),
        Err(error) => odd = Some(error),
    })?;
    if let Some(error) = odd {
        return Err(error);
    }
    if !succeeded {
        bail!("ironwright-bench failed; its last words are above");
    }
    report("gateway", &figures)
}

/// A figure with what is wanted of it.
fn figure(line: &str) -> Result<Figure> {
    let measured: Measured =
        serde_json::from_str(line).with_context(|| format!("reading the bench's line {line:?}"))?;
    let new = |name, unit| Figure::new(name, measured.value, unit);
    Ok(match measured.name.as_str() {
        "connect_all" => new("connect_all", "s"),
        "sessions" => new("sessions", ""),
        "memory_per_session" => new("memory_per_session", "KiB").goal(40.0),
        "dispatch_p50" => new("dispatch_p50", "ms"),
        "dispatch_p99" => new("dispatch_p99", "ms").goal(20.0),
        "durable_commands" => {
            let alone = measured.peer_value.context("no peer of durable_commands")?;
            new("durable_commands", "/s").peer("one commit for each command", alone).times_peer(20.0)
        }
        "reconnect_storm" => new("reconnect_storm", "s"),
        other => bail!("the bench printed a figure `{other}` that has no goal here"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_figures_with_goals() {
        let line = r#"{"name":"durable_commands","value":500.0,"unit":"/s","peer":"x","peer_value":20.0}"#;
        let read = figure(line).unwrap();
        assert_eq!((read.ratio, read.met), (Some(25.0), Some(true)));
        let read = figure(r#"{"name":"memory_per_session","value":40.5,"unit":"KiB"}"#).unwrap();
        assert_eq!(read.met, Some(false));
        assert!(figure(r#"{"name":"new","value":1.0}"#).is_err());
        assert!(figure("an agent ended").is_err());
    }
}
