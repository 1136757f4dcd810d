//! What the CLI's `--json` prints, as far as the rig looks at it. Written from the documentation, not shared
//! with the code under test.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// `control init --json`.
#[derive(Deserialize)]
pub(super) struct Initialised {
    pub(super) admin_token: String,
    pub(super) ca_pin: String,
    pub(super) api_url: String,
}

/// `sites list --json`, one of it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Site {
    pub(super) holder: Option<String>,
}

/// `machines show --json`.
#[derive(Debug, Clone, Deserialize)]
pub struct MachineRecord {
    /// `sha256:` of the TPM's endorsement key.
    pub ek_fingerprint: Option<String>,
    /// Node of this machine.
    pub node_id: Option<String>,
    /// Newest inventory.
    pub inventory: Option<Value>,
}

/// `images show --json`.
#[derive(Debug, Clone, Deserialize)]
pub struct ImageRecord {
    /// `sha256:` of its bytes.
    pub digest: Option<String>,
    /// `fetching`, `ready` or `failed`.
    pub state: String,
}

/// Why something failed.
#[derive(Debug, Clone, Deserialize)]
pub struct Failure {
    /// Stable word.
    pub code: String,
    /// For people.
    pub message: String,
}

/// `runs show --json`.
#[derive(Debug, Clone, Deserialize)]
pub struct Run {
    /// Id of the run.
    pub id: String,
    /// `pending`, `running`, `succeeded`, `failed` or `cancelled`.
    pub state: String,
    /// All steps, in order.
    pub steps: Vec<Step>,
    /// Why it failed.
    pub error: Option<Failure>,
    /// Facts that prove what was done.
    pub evidence: BTreeMap<String, Value>,
}

impl Run {
    /// Nothing will change any more.
    pub fn is_final(&self) -> bool {
        is_final(&self.state)
    }

    /// A step that the run must have.
    pub fn step(&self, name: &str) -> &Step {
        self.steps.iter().find(|step| step.name == name).unwrap_or_else(|| panic!("no step `{name}`"))
    }

    /// The run and its steps in a few lines.
    pub fn summary(&self) -> String {
        let steps = self.steps.iter().map(|step| {
            let error = step.error.as_ref().map(|e| format!(" {}: {}", e.code, e.message));
            format!("\n  {:<18} {}{}", step.name, step.state, error.unwrap_or_default())
        });
        format!("run {} {}{}", self.id, self.state, steps.collect::<String>())
    }
}

/// One step of a [`Run`].
#[derive(Debug, Clone, Deserialize)]
pub struct Step {
    /// `boot.prepare`, `image.deploy`, …
    pub name: String,
    /// As the run's.
    pub state: String,
    /// Command that carries it out.
    pub command_id: Option<String>,
    /// When it began, in milliseconds since the Unix epoch.
    pub started_ms: Option<i64>,
    /// When it ended.
    pub ended_ms: Option<i64>,
    /// What it waits for, in words.
    pub waiting_for: Option<String>,
    /// How far it is.
    pub progress: Option<Progress>,
    /// Why it failed.
    pub error: Option<Failure>,
}

impl Step {
    /// It has begun and has not ended.
    pub fn is_running(&self) -> bool {
        self.state == "running"
    }

    /// Nothing will change any more.
    pub fn is_final(&self) -> bool {
        is_final(&self.state)
    }

    /// How far it is, in percent; 0 where it does not say.
    pub fn percent(&self) -> u64 {
        self.progress.as_ref().map_or(0, |p| p.done.saturating_mul(100).checked_div(p.total).unwrap_or(0))
    }
}

/// How far a [`Step`] is.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
pub struct Progress {
    /// `write`, …
    pub phase: String,
    /// Done so far.
    pub done: u64,
    /// Of this many; 0 if unknown.
    pub total: u64,
}

/// `nodes list --json`, one of it.
#[derive(Debug, Clone, Deserialize)]
pub struct Node {
    /// Id of the node.
    pub id: String,
    /// Machine it is.
    pub machine: Option<String>,
    /// Role of its newest session.
    pub role: String,
    /// `joined`, `active` or `unreachable`.
    pub state: String,
    /// A session is open now.
    pub connected: bool,
    /// `tpm` or `token`.
    pub proof: String,
    /// PCRs of the newest quote.
    pub pcrs: BTreeMap<u8, String>,
}

/// `events --json`, one of it.
#[derive(Debug, Clone, Deserialize)]
pub struct Event {
    /// 1, 2, 3, …
    pub seq: u64,
    /// `join.refused`, …
    pub action: String,
    /// What it was done to.
    pub subject: String,
    /// Particulars.
    pub detail: Value,
}

fn is_final(state: &str) -> bool {
    matches!(state, "succeeded" | "failed" | "cancelled")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_is_of_the_total_and_unknown_is_zero() {
        let step = |progress| Step {
            name: "image.deploy".into(),
            state: "running".into(),
            command_id: None,
            started_ms: None,
            ended_ms: None,
            waiting_for: None,
            progress,
            error: None,
        };
        let progress = |done, total| Some(Progress { phase: "write".into(), done, total });
        assert_eq!(step(progress(1, 4)).percent(), 25);
        assert_eq!(step(progress(1, 0)).percent(), 0);
        assert_eq!(step(None).percent(), 0);
    }
}
