//! Commands: who may run, what a second delivery gets, what a crash means.
//!
//! Acceptance, in this order (the first that applies decides):
//!
//! ```text
//!  known id ─► stored result, or re-attach       never runs twice
//!  malformed                                     REFUSED malformed
//!  other node, or kind not allowed               REFUSED unsupported
//!  past not_after, by control's time             REFUSED expired
//!  no free credit in the lane, or journal full   REFUSED busy
//!  else: journal Accepted (then Running{boot_id} where self-terminating), tell, start
//! ```
//!
//! A `min_generation` above the applied spec will defer between `unsupported` and `expired`, once agents
//! have specs. Refusals have no effect, so they are not journaled: a second delivery is judged anew.

use ironwright_proto::{
    kinds::{self, Kind},
    wire::{Command, CommandError, CommandState, CommandUpdate},
};

use crate::{
    Config, Effect,
    journal::{CommandEntry, Journal, Record, Stage},
    order::{Order, fail},
};

const MAX_ID: usize = 64;
/// Arguments hold at most a seed of some files.
const MAX_ARGS: usize = 1 << 20;
/// A larger result fails its command; it would have to travel in one frame.
pub const MAX_RESULT: usize = 256 << 10;
const MAX_CODE: usize = 64;
const MAX_MESSAGE: usize = 4096;

/// Applies a change to the image of the journal and orders that it is made durable.
pub(crate) fn persist(journal: &mut Journal, record: Record, out: &mut Vec<Effect>) {
    journal.apply(&record);
    out.push(Effect::Persist(record));
}

/// Answers a delivery. `server_now` is control's time in milliseconds since the Unix epoch.
pub(crate) fn deliver(
    config: &Config,
    journal: &mut Journal,
    command: Command,
    server_now: i64,
    out: &mut Vec<Effect>,
) {
    if let Some(known) = journal.command(&command.id) {
        out.push(Effect::tell_command(known.update()));
        return;
    }
    match admit(config, journal, &command, server_now) {
        Err(error) => out.push(Effect::tell_command(CommandUpdate {
            id: command.id.chars().take(MAX_ID).collect(),
            state: CommandState::Refused.into(),
            error: Some(error),
            ..CommandUpdate::default()
        })),
        Ok(kind) => {
            let order = order_of(&command);
            let mut entry = CommandEntry { command, stage: Stage::Accepted };
            persist(journal, Record::Command(entry.clone()), out);
            if kind.self_terminating {
                entry.stage = Stage::Running { boot_id: config.boot_id.clone() };
                persist(journal, Record::Command(entry.clone()), out);
            }
            out.push(Effect::tell_command(entry.update()));
            out.push(Effect::Start(order));
        }
    }
}

fn admit(
    config: &Config,
    journal: &Journal,
    command: &Command,
    server_now: i64,
) -> Result<&'static Kind, CommandError> {
    if command.id.is_empty() || command.id.len() > MAX_ID || command.args.len() > MAX_ARGS {
        return Err(fail(
            "malformed",
            format!("a command id has 1 to {MAX_ID} bytes, its arguments {MAX_ARGS}"),
        ));
    }
    if command.node_id != config.node_id {
        return Err(fail("unsupported", format!("the command is for node `{}`", command.node_id)));
    }
    let Some(kind) = allowed(config, &command.kind) else {
        let role = config.role.as_str();
        return Err(fail("unsupported", format!("an agent of role {role} does not run `{}`", command.kind)));
    };
    if server_now >= command.not_after_unix_ms {
        return Err(fail("expired", format!("`{}` was to be started earlier", command.kind)));
    }
    let lane = |entry: &&CommandEntry| kinds::find(&entry.command.kind).is_some_and(|k| k.lane == kind.lane);
    if journal.unfinished().filter(lane).count() >= kind.lane.credits() {
        return Err(fail("busy", format!("the {:?} lane has no free credit", kind.lane)));
    }
    if !journal.has_room() {
        return Err(fail("busy", "this agent's journal is full"));
    }
    Ok(kind)
}

/// The kind, where this agent's role allows it and an executor runs it.
fn allowed(config: &Config, kind: &str) -> Option<&'static Kind> {
    kinds::find(kind).filter(|k| k.roles.contains(&config.role) && config.kinds.contains(&k.name))
}

fn order_of(command: &Command) -> Order {
    Order { id: command.id.clone(), kind: command.kind.clone(), args: command.args.clone() }
}

/// Settles what an earlier process of this agent left unfinished.
pub(crate) fn resume(config: &Config, journal: &mut Journal, out: &mut Vec<Effect>) {
    let known_time = journal.mark().server_unix_ms;
    let left: Vec<CommandEntry> = journal.unfinished().cloned().collect();
    for entry in left {
        let id = entry.command.id.clone();
        let interrupted =
            || Err(fail("interrupted", format!("the agent stopped during `{}`", entry.command.kind)));
        let end = match &entry.stage {
            Stage::Running { boot_id } if *boot_id != config.boot_id => succeeded(id, Vec::new(), "rebooted"),
            Stage::Accepted if may_run_again(config, &entry.command) => {
                if known_time < entry.command.not_after_unix_ms {
                    out.push(Effect::Start(order_of(&entry.command)));
                    continue;
                }
                ended(id, Err(fail("expired", "the agent came back too late to start it again")))
            }
            _ => ended(id, interrupted()),
        };
        finish(journal, entry, end, known_time, out);
    }
}

/// Both sides have to agree that a second run does no harm.
fn may_run_again(config: &Config, command: &Command) -> bool {
    command.retry_safe && allowed(config, &command.kind).is_some_and(|kind| kind.retry_safe)
}

/// Takes an executor's result. One for a command that is not running is ignored.
pub(crate) fn finished(
    journal: &mut Journal,
    id: String,
    result: Result<Vec<u8>, CommandError>,
    server_now: i64,
    out: &mut Vec<Effect>,
) {
    let running = journal.command(&id).filter(|entry| !matches!(entry.stage, Stage::Done { .. }));
    if let Some(entry) = running.cloned() {
        finish(journal, entry, ended(id, result), server_now, out);
    }
}

fn finish(
    journal: &mut Journal,
    mut entry: CommandEntry,
    update: CommandUpdate,
    at_unix_ms: i64,
    out: &mut Vec<Effect>,
) {
    entry.command.args = Vec::new();
    entry.stage = Stage::Done { update: update.clone(), at_unix_ms, acked: false };
    persist(journal, Record::Command(entry), out);
    out.push(Effect::tell_command(update));
}

fn succeeded(id: String, result: Vec<u8>, outcome: &str) -> CommandUpdate {
    CommandUpdate {
        id,
        state: CommandState::Succeeded.into(),
        error: None,
        result,
        outcome: outcome.to_owned(),
    }
}

fn ended(id: String, result: Result<Vec<u8>, CommandError>) -> CommandUpdate {
    let mut error = match result {
        Ok(result) if result.len() <= MAX_RESULT => return succeeded(id, result, ""),
        Ok(result) => fail(
            "result_too_large",
            format!("the result has {} bytes, at most {MAX_RESULT} travel", result.len()),
        ),
        Err(error) => error,
    };
    error.code = if error.code.is_empty() { "failed".to_owned() } else { cut(error.code, MAX_CODE) };
    error.message = cut(error.message, MAX_MESSAGE);
    CommandUpdate { id, state: CommandState::Failed.into(), error: Some(error), ..CommandUpdate::default() }
}

fn cut(mut text: String, limit: usize) -> String {
    let end = (0..=limit.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.truncate(end);
    text
}

/// Control has the result.
pub(crate) fn acknowledged(journal: &mut Journal, id: &str, out: &mut Vec<Effect>) {
    let Some(mut entry) = journal.command(id).cloned() else { return };
    if let Stage::Done { acked: acked @ false, .. } = &mut entry.stage {
        *acked = true;
        persist(journal, Record::Command(entry), out);
    }
}

/// Forgets acknowledged results that are old enough.
pub(crate) fn prune(journal: &mut Journal, server_now: i64, out: &mut Vec<Effect>) {
    for id in journal.outdated(server_now) {
        persist(journal, Record::Forget(id), out);
    }
}
