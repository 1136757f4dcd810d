//! A Hello compared with what control has in flight for the node (decision 0001, "Session").

use std::collections::BTreeSet;

use ironwright_proto::wire::CommandUpdate;

use super::{
    COMMANDS, Command, Ingested, State, WAITING, finish, give_up, ingest, is_final_on_wire, open_key, open_of,
};
use crate::{
    error::Error,
    tx::{Tx, failure},
};

/// How the agent of this Hello relates to the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AgentSide<'a> {
    /// The journal is the one of the session before.
    pub(crate) same_journal: bool,
    /// The boot id now.
    pub(crate) boot_id: &'a str,
}

/// What follows from a Hello.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Reconciled {
    /// Ids to acknowledge: every listed command in a final state, known or not.
    pub(crate) acks: Vec<String>,
    /// Runs to move.
    pub(crate) runs: BTreeSet<String>,
}

/// What becomes of a command that is in flight and that the Hello does not list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    SendAgain,
    Interrupted,
    Rebooted,
}

fn fate(command: &Command, agent: AgentSide<'_>) -> Fate {
    // With the journal intact, the offer was lost on its way.
    if agent.same_journal || command.retry_safe() {
        return Fate::SendAgain;
    }
    let self_terminating = command.kind().is_some_and(|kind| kind.self_terminating);
    if self_terminating && command.sent_boot_id != agent.boot_id {
        return Fate::Rebooted;
    }
    Fate::Interrupted
}

/// Takes the list of a Hello into the store and settles what it does not list.
pub(crate) fn reconcile(
    tx: &mut Tx<'_>,
    node: &str,
    agent: AgentSide<'_>,
    listed: &[CommandUpdate],
) -> Result<Reconciled, Error> {
    let mut done = Reconciled::default();
    for update in listed {
        if is_final_on_wire(update) {
            done.acks.push(update.id.clone());
        }
        match ingest(tx, node, update)? {
            Ingested::Moved { run } | Ingested::Ended { run } => {
                done.runs.insert(run);
            }
            Ingested::Unwanted => {
                tx.effects.cancel.insert((node.to_owned(), update.id.clone()));
            }
            Ingested::Nothing => {}
        }
    }
    let listed: BTreeSet<&str> = listed.iter().map(|update| update.id.as_str()).collect();
    for mut command in open_of(tx.txn, node)? {
        if !command.state.in_flight() {
            continue;
        }
        if listed.contains(command.id.as_str()) {
            // A call back that a crash swallowed.
            if command.cancelled {
                tx.effects.cancel.insert((command.node, command.id));
            }
            continue;
        }
        done.runs.insert(command.run.clone());
        match fate(&command, agent) {
            _ if command.cancelled => {
                give_up(tx, command, failure("cancelled", "called back before it ran"))?;
            }
            Fate::SendAgain => {
                command.state = State::Queued;
                command.maybe_begun |= !agent.same_journal;
                COMMANDS.put(tx.txn, &command.id, &command)?;
                WAITING.put(tx.txn, &open_key(&command), &())?;
            }
            Fate::Interrupted => {
                let message = format!("the agent lost its journal while {} was under way", command.kind);
                give_up(tx, command, failure("interrupted", message))?;
            }
            Fate::Rebooted => {
                command.state = State::Succeeded;
                "rebooted".clone_into(&mut command.outcome);
                finish(tx, command)?;
            }
        }
    }
    tx.effects.dispatch.insert(node.to_owned());
    Ok(done)
}
