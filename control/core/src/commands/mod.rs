//! Commands as control keeps them.
//!
//! ```text
//!              dispatch              update              update
//!   Queued ──────────────▶ Sent ──────────────▶ Running ─────────▶ Succeeded | Failed | Refused
//!     │  ▲                  │                      │                        ▲
//!     │  └──────────────────┴──────────────────────┘                        │
//!     │     Hello does not list it: send it again                           │
//!     └──────────── superseded, cancelled, past its deadline ───────────────┘
//! ```
//! * `Sent` is in the store before the frame leaves. The agent acts at most once for an id; control never makes a
//!   second id for the same work while the first is open.
//! * A final state never changes. Its arguments, which may carry secrets, are wiped.
//! * `Accepted` and `Running` of the wire are both `Running` here, but for a self-terminating command: for it,
//!   `Running` means that the agent is going down now.

mod dispatch;
mod elsewhere;
mod ingest;
mod person;
mod reconcile;

use ironwright_proto::{
    api::ApiErrorBody,
    kinds::{self, Kind, Role},
    wire::{CommandState, CommandUpdate},
};
use serde::{Deserialize, Serialize};

pub(crate) use dispatch::dispatch;
pub(crate) use elsewhere::{called_back, leave_call_back, waiting};
pub(crate) use ingest::{Ingested, ingest};
pub use person::NodeOrder;
pub(crate) use person::{order as order_by_person, show};
pub(crate) use reconcile::{AgentSide, reconcile};

use crate::{
    error::Error,
    output::Change,
    store::ReadTxn,
    table::{Table, order},
    tx::{Tx, failure},
};

/// How many open commands one node may have.
const MAX_OPEN_PER_NODE: usize = 256;
/// How long after its deadline an open command is given up. Runs have their own limits, which come first.
const DEADLINE_GRACE_MS: i64 = 30_000;
/// How many overdue commands one sweep ends.
const MAX_SWEEP: usize = 1000;

/// Where a command stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    Queued,
    Sent,
    Running,
    Succeeded,
    Failed,
    Refused,
}

impl State {
    pub(crate) const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Refused)
    }

    /// The agent may know it.
    const fn in_flight(self) -> bool {
        matches!(self, Self::Sent | Self::Running)
    }
}

/// A command and what became of it.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Command {
    pub(crate) id: String,
    pub(crate) kind: String,
    /// The node that has to run it, and the role that it must have.
    pub(crate) node: String,
    pub(crate) role: String,
    /// The run that waits for it; empty where a person gave the order.
    pub(crate) run: String,
    /// Lease epoch of the site under which it was made; 0 for orders to machines.
    pub(crate) lease_epoch: u64,
    #[serde(with = "hex::serde")]
    args: Vec<u8>,
    pub(crate) state: State,
    pub(crate) not_after_ms: i64,
    cancelled: bool,
    /// The spec's generation that the node must have come to before it runs.
    #[serde(default)]
    min_generation: u64,
    /// Not to be run again after a crash, even where its kind would allow it.
    #[serde(default)]
    at_most_once: bool,
    /// An agent that has lost its journal may have begun it.
    #[serde(default)]
    maybe_begun: bool,
    /// What the agent said of itself in the session that the command was last sent in.
    sent_boot_id: String,
    #[serde(with = "hex::serde")]
    pub(crate) result: Vec<u8>,
    pub(crate) outcome: String,
    pub(crate) error: Option<ApiErrorBody>,
}

const COMMANDS: Table<Command> = Table::new("command");
/// `<node>/<id>`: commands that are not final.
const OPEN: Table<()> = Table::new("command-open");
/// `<node>/<id>`: commands that are queued.
const WAITING: Table<()> = Table::new("command-waiting");
/// `<node>/<id>`: commands to be called back by the gateway that has the node.
const CALLED_BACK: Table<()> = Table::new("command-called-back");
/// `<when>/<id>`: open commands by the time at which they are given up.
const DUE: Table<String> = Table::new("command-due");

/// A command to be.
pub(crate) struct Order<'a> {
    pub(crate) kind: &'static str,
    pub(crate) node: &'a str,
    pub(crate) role: Role,
    pub(crate) run: &'a str,
    pub(crate) lease_epoch: u64,
    pub(crate) args: Vec<u8>,
    pub(crate) not_after_ms: i64,
    pub(crate) at_most_once: bool,
    pub(crate) min_generation: u64,
}

fn open_key(command: &Command) -> String {
    format!("{}/{}", command.node, command.id)
}

fn due_key(command: &Command) -> String {
    format!("{}/{}", order(command.not_after_ms.saturating_add(DEADLINE_GRACE_MS)), command.id)
}

impl Command {
    fn kind(&self) -> Option<&'static Kind> {
        kinds::find(&self.kind)
    }

    /// Whether a second run after a crash does no harm.
    fn retry_safe(&self) -> bool {
        !self.at_most_once && self.kind().is_some_and(|kind| kind.retry_safe)
    }

    fn end(&self) -> Change {
        let state = match self.state {
            State::Succeeded => CommandState::Succeeded,
            State::Refused => CommandState::Refused,
            _ => CommandState::Failed,
        };
        let code = self.error.as_ref().map_or_else(|| self.outcome.clone(), |error| error.code.clone());
        Change::CommandEnded { id: self.id.clone(), state, code }
    }
}

/// Whether the agent says that a command has ended; such an update is always acknowledged.
pub(crate) fn is_final_on_wire(update: &CommandUpdate) -> bool {
    matches!(update.state(), CommandState::Succeeded | CommandState::Failed | CommandState::Refused)
}

/// Whether a node may get one more command.
pub(crate) fn has_room(txn: &dyn ReadTxn, node: &str) -> Result<bool, Error> {
    Ok(OPEN.scan(txn, &format!("{node}/"), "", MAX_OPEN_PER_NODE)?.len() < MAX_OPEN_PER_NODE)
}

/// Creates a command; it is sent when the node is there and its lane has room.
pub(crate) fn create(tx: &mut Tx<'_>, order: Order<'_>) -> Result<String, Error> {
    let command = Command {
        id: tx.new_id("cmd"),
        kind: order.kind.to_owned(),
        node: order.node.to_owned(),
        role: order.role.as_str().to_owned(),
        run: order.run.to_owned(),
        lease_epoch: order.lease_epoch,
        args: order.args,
        state: State::Queued,
        not_after_ms: order.not_after_ms,
        cancelled: false,
        min_generation: order.min_generation,
        at_most_once: order.at_most_once,
        maybe_begun: false,
        sent_boot_id: String::new(),
        result: Vec::new(),
        outcome: String::new(),
        error: None,
    };
    COMMANDS.put(tx.txn, &command.id, &command)?;
    OPEN.put(tx.txn, &open_key(&command), &())?;
    WAITING.put(tx.txn, &open_key(&command), &())?;
    DUE.put(tx.txn, &due_key(&command), &command.id)?;
    tx.effects.dispatch.insert(command.node.clone());
    Ok(command.id)
}

pub(crate) fn get(txn: &dyn ReadTxn, id: &str) -> Result<Option<Command>, Error> {
    COMMANDS.get(txn, id)
}

/// The state of a command; one that is not in the store has ended.
pub(crate) fn state(txn: &dyn ReadTxn, id: &str) -> Result<State, Error> {
    Ok(COMMANDS.get(txn, id)?.map_or(State::Failed, |command| command.state))
}

/// Open commands of a node, oldest first.
fn open_of(txn: &dyn ReadTxn, node: &str) -> Result<Vec<Command>, Error> {
    let ids = OPEN.scan(txn, &format!("{node}/"), "", MAX_OPEN_PER_NODE)?;
    let mut commands = Vec::with_capacity(ids.len());
    for (id, ()) in ids {
        commands.extend(COMMANDS.get(txn, &id)?);
    }
    Ok(commands)
}

/// Makes a state final. The caller moves the run that waits.
fn finish(tx: &mut Tx<'_>, mut command: Command) -> Result<(), Error> {
    for table in [OPEN, WAITING, CALLED_BACK] {
        table.delete(tx.txn, &open_key(&command))?;
    }
    DUE.delete(tx.txn, &due_key(&command))?;
    command.args = Vec::new();
    tx.effects.changes.push(command.end());
    // Its lane has room for another one.
    tx.effects.dispatch.insert(command.node.clone());
    COMMANDS.put(tx.txn, &command.id, &command)
}

/// Fails an open command from control's side. An agent that may be at it is told.
pub(crate) fn give_up(tx: &mut Tx<'_>, mut command: Command, error: ApiErrorBody) -> Result<(), Error> {
    if command.state.in_flight() {
        tx.effects.cancel.insert((command.node.clone(), command.id.clone()));
    }
    command.state = State::Failed;
    command.error = Some(error);
    finish(tx, command)
}

/// Fails all open commands of a node that is removed. Its agent is told nothing more.
pub(crate) fn forget(tx: &mut Tx<'_>, node: &str) -> Result<(), Error> {
    for command in open_of(tx.txn, node)? {
        give_up(tx, command, failure("node_removed", "the node was removed"))?;
    }
    tx.effects.cancel.retain(|(of, _)| of != node);
    Ok(())
}

/// Stops commands: the queued ones end at once, the others when their agent says so or at their deadline.
/// Whether all of them have ended.
pub(crate) fn stop(tx: &mut Tx<'_>, ids: &[String], why: &str) -> Result<bool, Error> {
    let mut all_ended = true;
    for id in ids {
        let Some(mut command) = COMMANDS.get(tx.txn, id)? else { continue };
        if command.state == State::Queued {
            give_up(tx, command, failure("cancelled", why))?;
        } else if !command.state.is_final() {
            all_ended = false;
            if !command.cancelled {
                command.cancelled = true;
                tx.effects.cancel.insert((command.node.clone(), command.id.clone()));
                COMMANDS.put(tx.txn, id, &command)?;
            }
        }
    }
    Ok(all_ended)
}

/// Gives up what is past its deadline; returns the runs that waited for it.
pub(crate) fn sweep(tx: &mut Tx<'_>) -> Result<Vec<String>, Error> {
    let mut runs = Vec::new();
    for (key, id) in DUE.scan(tx.txn, "", "", MAX_SWEEP)? {
        if key.as_str() >= order(tx.now_ms).as_str() {
            break;
        }
        let Some(command) = COMMANDS.get(tx.txn, &id)? else {
            DUE.delete(tx.txn, &key)?;
            continue;
        };
        runs.push(command.run.clone());
        let message = format!("{} did not end before its deadline; the order is called back", command.kind);
        give_up(tx, command, failure("deadline_exceeded", message))?;
    }
    Ok(runs)
}

/// Whether a sweep would do something.
pub(crate) fn sweep_is_due(txn: &dyn ReadTxn, now_ms: i64) -> Result<bool, Error> {
    let first = DUE.scan(txn, "", "", 1)?;
    Ok(first.first().is_some_and(|(key, _)| key.as_str() < order(now_ms).as_str()))
}

#[cfg(test)]
mod tests;
