//! Commands: who may run, what a second delivery gets, what a crash means.
//!
//! Acceptance, in this order (the first that applies decides):
//!
//! ```text
//!  known id ─► stored result, or re-attach       never runs twice
//!  malformed                                     REFUSED malformed
//!  other node, or kind not allowed               REFUSED unsupported
//!  min_generation above the applied spec         deferred, and the spec asked for; REFUSED busy beyond 64
//!  past not_after, by control's time             REFUSED expired
//!  no free credit in the lane, or journal full   REFUSED busy
//!  else: journal Accepted (then Running{boot_id} where self-terminating), tell, start
//! ```
//!
//! Refusals and deferrals have no effect, so they are not journaled: a second delivery is judged anew. A deferred
//! command is judged anew, too, when a spec has settled, and at least at every heartbeat; it is forgotten with the
//! session, because control sends it again in the next one.

use std::collections::BTreeMap;

use ironwright_proto::{
    kinds::{self, Kind},
    wire::{Command, CommandError, CommandState, CommandUpdate, SpecRequest, agent_frame::Frame},
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
/// Commands that wait for a spec, at most.
const MAX_DEFERRED: usize = 64;
const MAX_CODE: usize = 64;
const MAX_MESSAGE: usize = 4096;

/// Applies a change to the image of the journal and orders that it is made durable.
pub(crate) fn persist(journal: &mut Journal, record: Record, out: &mut Vec<Effect>) {
    journal.apply(&record);
    out.push(Effect::Persist(record));
}

/// Commands that wait for a spec, by id.
pub(crate) type Deferred = BTreeMap<String, Command>;

/// What commands are judged by, apart from the journal.
#[derive(Clone, Copy)]
pub(crate) struct Situation<'a> {
    pub(crate) config: &'a Config,
    /// The generation that the machine has come to.
    pub(crate) generation: u64,
    /// Control's time in milliseconds since the Unix epoch.
    pub(crate) server_now: i64,
}

/// What becomes of a command that is not known yet.
enum Admission {
    Run(&'static Kind),
    Defer,
    Refuse(CommandError),
}

/// Answers a delivery.
pub(crate) fn deliver(
    situation: Situation<'_>,
    journal: &mut Journal,
    deferred: &mut Deferred,
    command: Command,
    out: &mut Vec<Effect>,
) {
    if let Some(known) = journal.command(&command.id) {
        out.push(Effect::tell_command(known.update()));
        return;
    }
    match admit(situation, journal, deferred, &command) {
        Admission::Defer => {
            let request = SpecRequest { min_generation: command.min_generation };
            if deferred.insert(command.id.clone(), command).is_none() {
                out.push(Effect::Send(Frame::SpecRequest(request)));
            }
        }
        Admission::Refuse(error) => out.push(refused(&command.id, error)),
        Admission::Run(kind) => {
            let order = order_of(&command);
            let mut entry = CommandEntry { command, stage: Stage::Accepted };
            persist(journal, Record::Command(entry.clone()), out);
            if kind.self_terminating {
                entry.stage = Stage::Running { boot_id: situation.config.boot_id.clone() };
                persist(journal, Record::Command(entry.clone()), out);
            }
            out.push(Effect::tell_command(entry.update()));
            out.push(Effect::Start(order));
        }
    }
}

fn refused(id: &str, error: CommandError) -> Effect {
    Effect::tell_command(CommandUpdate {
        id: id.chars().take(MAX_ID).collect(),
        state: CommandState::Refused.into(),
        error: Some(error),
        ..CommandUpdate::default()
    })
}

/// Control calls a command back that may be waiting for a spec.
pub(crate) fn call_back(deferred: &mut Deferred, id: &str, out: &mut Vec<Effect>) {
    if deferred.remove(id).is_some() {
        out.push(refused(id, fail("cancelled", "called back while it waited for a spec")));
    }
}

/// Judges the deferred commands again.
pub(crate) fn deliver_deferred(
    situation: Situation<'_>,
    journal: &mut Journal,
    deferred: &mut Deferred,
    out: &mut Vec<Effect>,
) {
    let over = |command: &Command| {
        command.min_generation <= situation.generation || situation.server_now >= command.not_after_unix_ms
    };
    let (judged, kept) = std::mem::take(deferred).into_iter().partition(|(_, command)| over(command));
    *deferred = kept;
    let judged: Deferred = judged;
    for command in judged.into_values() {
        deliver(situation, journal, deferred, command, out);
    }
}

fn admit(situation: Situation<'_>, journal: &Journal, deferred: &Deferred, command: &Command) -> Admission {
    let Situation { config, generation, server_now } = situation;
    let refuse = |code, message: String| Admission::Refuse(fail(code, message));
    if command.id.is_empty() || command.id.len() > MAX_ID || command.args.len() > MAX_ARGS {
        return refuse(
            "malformed",
            format!("a command id has 1 to {MAX_ID} bytes, its arguments {MAX_ARGS}"),
        );
    }
    if command.node_id != config.node_id {
        return refuse("unsupported", format!("the command is for node `{}`", command.node_id));
    }
    let Some(kind) = allowed(config, &command.kind) else {
        let role = config.role.as_str();
        return refuse("unsupported", format!("an agent of role {role} does not run `{}`", command.kind));
    };
    let expired = server_now >= command.not_after_unix_ms;
    if command.min_generation > generation && !expired {
        let room = deferred.len() < MAX_DEFERRED || deferred.contains_key(&command.id);
        return if room {
            Admission::Defer
        } else {
            refuse("busy", format!("{MAX_DEFERRED} commands wait for a spec already"))
        };
    }
    if expired {
        return refuse("expired", format!("`{}` was to be started earlier", command.kind));
    }
    let lane = |entry: &&CommandEntry| kinds::find(&entry.command.kind).is_some_and(|k| k.lane == kind.lane);
    if journal.unfinished().filter(lane).count() >= kind.lane.credits() {
        return refuse("busy", format!("the {:?} lane has no free credit", kind.lane));
    }
    if !journal.has_room() {
        return refuse("busy", "this agent's journal is full".to_owned());
    }
    Admission::Run(kind)
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

pub(crate) fn cut(mut text: String, limit: usize) -> String {
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
