//! How a run goes from step to step. Looks at the store and the time; see the diagrams in `runs`.

use ironwright_proto::{
    api::{ApiErrorBody, RunState},
    kinds::Role,
};
use serde_json::{Value, json};

use super::{
    Record, cleanup, end, end_early, orders, refused, release_machine, results,
    steps::{By, Step},
};
use crate::{
    audit,
    commands::{self, State},
    error::Error,
    machines, nodes, sites,
    store::ReadTxn,
    tx::{Tx, failure},
};

/// Codes of failures after which a command is issued anew.
pub const RETRIABLE: [&str; 3] = ["interrupted", "busy", "source_unreachable"];
/// How often a step's command is issued anew.
pub const MAX_RETRIES: u32 = 5;
const FIRST_BACKOFF_MS: i64 = 2_000;
/// How soon a run looks again for what no event tells it of.
const POLL_MS: i64 = 5_000;

/// What a look at the step at hand came to.
enum Look {
    /// The run has changed: look again.
    Moved,
    /// Nothing to do before this time, unless something happens.
    Waits(i64),
}

/// Moves a run as far as it goes.
pub(super) fn advance(tx: &mut Tx<'_>, record: &mut Record) -> Result<(), Error> {
    loop {
        if record.run.state.is_final() {
            return cleanup::advance(tx, record);
        }
        if let Look::Waits(until_ms) = look(tx, record)? {
            refused::show(tx.txn, record)?;
            record.wake_ms = Some(until_ms);
            return Ok(());
        }
    }
}

fn look(tx: &mut Tx<'_>, record: &mut Record) -> Result<Look, Error> {
    let at_hand = Step::ALL.into_iter().zip(&record.run.steps).find(|(_, state)| !state.state.is_final());
    let Some((step, state)) = at_hand else { return succeed(tx, record) };
    let Some(started_ms) = state.started_ms else { return begin(tx, record, step) };
    let deadline_ms = started_ms + step.limit_ms();
    let look = match step.by() {
        By::Hello(role) => await_hello(tx, record, step, role, deadline_ms)?,
        By::Command(..) if state.command_id.is_some() => await_command(tx, record, step, deadline_ms)?,
        By::Command(..) => orders::issue(tx, record, step, deadline_ms)?.map_or(Look::Moved, |why| {
            record.run.steps[step.index()].waiting_for = Some(why);
            let backoff_ms = record.plan.not_before_ms;
            let soon_ms = if backoff_ms > tx.now_ms { backoff_ms } else { tx.now_ms + POLL_MS };
            Look::Waits(soon_ms.min(deadline_ms))
        }),
    };
    // What has arrived counts before the limit does.
    match look {
        Look::Waits(_) if tx.now_ms >= deadline_ms => {
            refused::show(tx.txn, record)?;
            let waited = record.run.steps[step.index()].waiting_for.clone().unwrap_or_default();
            let minutes = step.limit_ms() / 60_000;
            let message = format!("{} did not end within {minutes} minutes; at last: {waited}", step.name());
            fail(tx, record, failure("step_timed_out", message))
        }
        look => Ok(look),
    }
}

fn begin(tx: &mut Tx<'_>, record: &mut Record, step: Step) -> Result<Look, Error> {
    let state = &mut record.run.steps[step.index()];
    state.state = RunState::Running;
    state.started_ms = Some(tx.now_ms);
    record.plan.failures = 0;
    record.plan.not_before_ms = 0;
    record.plan.refused = None;
    let detail = json!({"step": step.name(), "requested_by": record.run.requested_by});
    audit::append(tx, "control", "run.step_started", &record.run.id, detail)?;
    Ok(Look::Moved)
}

fn finish(tx: &mut Tx<'_>, record: &mut Record, step: Step, result: Option<Value>) -> Result<Look, Error> {
    let state = &mut record.run.steps[step.index()];
    state.state = RunState::Succeeded;
    state.ended_ms = Some(tx.now_ms);
    state.waiting_for = None;
    state.error = None;
    state.result = result;
    let detail = json!({"step": step.name(), "command": state.command_id});
    audit::append(tx, "control", "run.step_succeeded", &record.run.id, detail)?;
    Ok(Look::Moved)
}

fn succeed(tx: &mut Tx<'_>, record: &mut Record) -> Result<Look, Error> {
    end(tx, record, RunState::Succeeded)?;
    let detail = json!({"machine": record.run.machine, "digest": record.run.image_digest});
    audit::append(tx, "control", "run.succeeded", &record.run.id, detail)?;
    release_machine(tx, record)?;
    Ok(Look::Moved)
}

fn fail(tx: &mut Tx<'_>, record: &mut Record, error: ApiErrorBody) -> Result<Look, Error> {
    end_early(tx, record, "control", RunState::Failed, error)?;
    Ok(Look::Moved)
}

/// The machine's node, where its newest session has this role and is not older than `since_ms`.
pub(super) fn node_since(
    txn: &dyn ReadTxn,
    record: &Record,
    role: Role,
    since_ms: i64,
) -> Result<Option<nodes::Record>, Error> {
    let machine = machines::need(txn, record.run.machine.as_str())?;
    let node = machine.node_id.map(|id| nodes::get(txn, &id)).transpose()?.flatten();
    Ok(node.filter(|node| node.node.role == role.as_str() && node.hello_ms >= since_ms))
}

/// When a step began; the end of time for one that did not.
pub(super) fn began_ms(record: &Record, step: Step) -> i64 {
    record.run.steps[step.index()].started_ms.unwrap_or(i64::MAX)
}

fn await_hello(
    tx: &mut Tx<'_>,
    record: &mut Record,
    step: Step,
    role: Role,
    deadline_ms: i64,
) -> Result<Look, Error> {
    let since = if role == Role::Ramdisk { Step::BootPrepare } else { Step::NodeReboot };
    if let Some(node) = node_since(tx.txn, record, role, began_ms(record, since))? {
        let result = results::joined(record, role, &node);
        return finish(tx, record, step, Some(result));
    }
    let machine = machines::need(tx.txn, record.run.machine.as_str())?;
    let waiting = match role {
        Role::Ramdisk => {
            orders::follow_lease(tx, record, &machine)?;
            format!("waiting for {} ({}) to boot from the network", machine.id, machine.mac)
        }
        Role::Node | Role::Site => {
            let reboot = record.run.steps[Step::NodeReboot.index()].command_id.clone().unwrap_or_default();
            if let Some(error) = failed_reboot(tx.txn, &reboot)? {
                return fail(tx, record, error);
            }
            format!("waiting for {} to start its operating system", machine.id)
        }
    };
    record.run.steps[step.index()].waiting_for = Some(waiting);
    Ok(Look::Waits(deadline_ms))
}

/// A reboot that had begun counts as done, until the agent says otherwise.
fn failed_reboot(txn: &dyn ReadTxn, command: &str) -> Result<Option<ApiErrorBody>, Error> {
    let command = commands::get(txn, command)?;
    Ok(command.filter(|command| command.state == State::Failed).and_then(|command| command.error))
}

fn await_command(tx: &mut Tx<'_>, record: &mut Record, step: Step, deadline_ms: i64) -> Result<Look, Error> {
    let id = record.run.steps[step.index()].command_id.clone().unwrap_or_default();
    let Some(command) = commands::get(tx.txn, &id)? else {
        return fail(tx, record, failure("internal", format!("command {id} is not in the store")));
    };
    let By::Command(_, role) = step.by() else { return Ok(Look::Moved) };
    if role == Role::Site && !matches!(command.state, State::Failed | State::Refused) {
        let site = sites::get(tx.txn, record.plan.site.as_str())?;
        // What was done under an older lease is worth nothing under the new one.
        if site.is_some_and(|site| site.lease_epoch != command.lease_epoch) {
            let error = failure("interrupted", format!("another agent serves site {} now", record.plan.site));
            if !command.state.is_final() {
                commands::give_up(tx, command, error.clone())?;
            }
            return retry_or_fail(tx, record, step, error);
        }
    }
    let at_work = match command.state {
        State::Succeeded => {
            return match results::take(tx, record, step, &command)? {
                Ok(result) => finish(tx, record, step, result),
                Err(error) => fail(tx, record, error),
            };
        }
        State::Running if step == Step::NodeReboot => return finish(tx, record, step, None),
        State::Failed | State::Refused => {
            let error = command.error.unwrap_or_else(|| failure("unknown", "the agent gave no reason"));
            return retry_or_fail(tx, record, step, error);
        }
        State::Queued => "to take the order",
        State::Sent | State::Running => "to carry out the order",
    };
    let who = match role {
        Role::Site => format!("site {}", record.plan.site),
        Role::Ramdisk | Role::Node => format!("the {} of {}", role.as_str(), record.run.machine),
    };
    record.run.steps[step.index()].waiting_for = Some(format!("waiting for {who} {at_work}"));
    Ok(Look::Waits(deadline_ms))
}

fn retry_or_fail(
    tx: &mut Tx<'_>,
    record: &mut Record,
    step: Step,
    error: ApiErrorBody,
) -> Result<Look, Error> {
    let plan = &mut record.plan;
    if plan.failures >= MAX_RETRIES || !RETRIABLE.contains(&error.code.as_str()) {
        return fail(tx, record, error);
    }
    plan.not_before_ms = tx.now_ms + (FIRST_BACKOFF_MS << plan.failures);
    plan.failures += 1;
    let detail = json!({"step": step.name(), "code": error.code, "attempt": plan.failures + 1});
    audit::append(tx, "control", "run.step_retried", &record.run.id, detail)?;
    let state = &mut record.run.steps[step.index()];
    state.command_id = None;
    state.error = Some(error);
    Ok(Look::Moved)
}
