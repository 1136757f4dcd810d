//! Joins that are refused while a run waits for its machine: shown as what its step waits for.
//!
//! Words only. Anybody can send a claim with a machine's id, so a refusal moves no run; each takes the place of the one
//! before, and the machine's next session or the run's next step ends it.

use ironwright_proto::ids::Name;
use serde::{Deserialize, Serialize};

use super::{BY_MACHINE, RUNS, Record, save};
use crate::{error::Error, join::Refusal, machines, nodes, store::ReadTxn, tx::Tx};

/// Longest reason that is shown, in characters. The audit log has more of it.
const MAX_REASON: usize = 200;

/// The newest refusal.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Refused {
    at_ms: i64,
    why: String,
}

/// Notes a refused join in the name of a machine, where a run has the machine.
pub(crate) fn join_refused(tx: &mut Tx<'_>, machine: &Name, refusal: &Refusal) -> Result<(), Error> {
    let Some(id) = BY_MACHINE.get(tx.txn, machine.as_str())? else { return Ok(()) };
    let Some(before) = RUNS.get(tx.txn, &id)?.filter(|record| !record.run.state.is_final()) else {
        return Ok(());
    };
    let mut record = before.clone();
    let reason: String = refusal.reason.chars().take(MAX_REASON).collect();
    let why = format!("{machine}: its join was refused: {} ({reason})", refusal.code.as_str());
    record.plan.refused = Some(Refused { at_ms: tx.now_ms, why });
    show(tx.txn, &mut record)?;
    save(tx, Some(&before), record)
}

/// Puts the refusal on the step at hand, unless the machine has opened a session since.
pub(super) fn show(txn: &dyn ReadTxn, record: &mut Record) -> Result<(), Error> {
    let Some(refused) = record.plan.refused.clone() else { return Ok(()) };
    let machine = machines::need(txn, record.run.machine.as_str())?;
    let node = machine.node_id.map(|id| nodes::get(txn, &id)).transpose()?.flatten();
    if node.is_some_and(|node| node.hello_ms > refused.at_ms) {
        record.plan.refused = None;
    } else if let Some(step) = record.run.steps.iter_mut().find(|step| !step.state.is_final()) {
        step.waiting_for = Some(refused.why);
    }
    Ok(())
}
