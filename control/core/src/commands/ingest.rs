//! What agents report of commands.

use ironwright_proto::{
    api::ApiErrorBody,
    wire::{CommandState, CommandUpdate},
};

use super::{COMMANDS, Command, State, finish};
use crate::{error::Error, tx::Tx};

/// Largest result that is kept, in bytes.
const MAX_RESULT_BYTES: usize = 256 << 10;
/// Longest code and message of an error, in characters.
const MAX_CODE: usize = 64;
const MAX_MESSAGE: usize = 4096;

/// What an update changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ingested {
    /// Nothing: unknown, another node's, or old news.
    Nothing,
    /// Not final: the command goes on. The run may care (a reboot that has begun).
    Moved { run: String },
    /// Final: its run can go on.
    Ended { run: String },
    /// Not final, but control gave the command up: to be called back.
    Unwanted,
}

/// Takes an update of `node` into the store.
pub(crate) fn ingest(tx: &mut Tx<'_>, node: &str, update: &CommandUpdate) -> Result<Ingested, Error> {
    let Some(command) = COMMANDS.get(tx.txn, &update.id)?.filter(|command| command.node == node) else {
        return Ok(Ingested::Nothing);
    };
    let reported = state_of(&command, update.state());
    if command.state.is_final() {
        let at_work = reported.is_some_and(|state| !state.is_final());
        return Ok(if at_work { Ingested::Unwanted } else { Ingested::Nothing });
    }
    let run = command.run.clone();
    match reported {
        Some(state) if state.is_final() => {
            finish(tx, with_result(command, state, update))?;
            Ok(Ingested::Ended { run })
        }
        // A late `accepted` does not undo `running`.
        Some(state) if state != command.state && command.state != State::Running => {
            COMMANDS.put(tx.txn, &update.id, &Command { state, ..command })?;
            Ok(Ingested::Moved { run })
        }
        _ => Ok(Ingested::Nothing),
    }
}

/// The state a report means; `None` for one of a newer agent.
fn state_of(command: &Command, reported: CommandState) -> Option<State> {
    let self_terminating = command.kind().is_some_and(|kind| kind.self_terminating);
    match reported {
        CommandState::Accepted if self_terminating => Some(State::Sent),
        CommandState::Accepted | CommandState::Running => Some(State::Running),
        CommandState::Succeeded => Some(State::Succeeded),
        CommandState::Failed => Some(State::Failed),
        // A refusal says that nothing has begun; after a lost journal the agent cannot know.
        CommandState::Refused if command.maybe_begun => Some(State::Failed),
        CommandState::Refused => Some(State::Refused),
        CommandState::Unspecified => None,
    }
}

fn with_result(command: Command, state: State, update: &CommandUpdate) -> Command {
    if state != State::Succeeded {
        let error = update.error.clone().unwrap_or_default();
        let code = if error.code.is_empty() { "unknown" } else { &error.code };
        return Command { state, error: Some(error_body(code, &error.message)), ..command };
    }
    if update.result.len() > MAX_RESULT_BYTES {
        let message = format!(
            "{} gave a result of {} bytes; at most {MAX_RESULT_BYTES} are taken",
            command.kind,
            update.result.len()
        );
        return Command {
            state: State::Failed,
            error: Some(error_body("result_too_large", &message)),
            ..command
        };
    }
    let outcome = update.outcome.chars().take(MAX_CODE).collect();
    Command { state, result: update.result.clone(), outcome, ..command }
}

fn error_body(code: &str, message: &str) -> ApiErrorBody {
    ApiErrorBody {
        code: code.chars().take(MAX_CODE).collect(),
        message: message.chars().take(MAX_MESSAGE).collect(),
        field: None,
    }
}
