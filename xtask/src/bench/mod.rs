//! Figures, each with its goal, printed and kept as JSON.

mod boot;
mod gateway;

use std::fs;

use anyhow::{Context, Result};
use ironwright_qemu_tests::artifacts;
use serde::Serialize;

pub(crate) use self::{boot::run as boot, gateway::run as gateway};

/// One figure.
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

    /// No more than this is wanted.
    fn goal(self, goal: f64) -> Self {
        Self { goal: Some(goal), met: Some(self.value <= goal), ..self }
    }

    fn peer(self, peer: &'static str, peer_value: f64) -> Self {
        Self { peer: Some(peer), peer_value: Some(peer_value), ratio: Some(self.value / peer_value), ..self }
    }

    /// At least so many times the peer's value is wanted.
    fn times_peer(self, goal: f64) -> Self {
        Self {
            goal: self.peer_value.map(|peer| peer * goal),
            met: self.ratio.map(|ratio| ratio >= goal),
            ..self
        }
    }
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
        let rate = |value| Figure::new("rate", value, "/s").peer("other", 3.0).times_peer(20.0);
        assert_eq!((rate(60.0).goal, rate(60.0).met, rate(59.0).met), (Some(60.0), Some(true), Some(false)));
    }
}
