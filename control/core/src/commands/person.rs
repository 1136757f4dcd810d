//! Orders that a person gives to one node, outside any run.

use ironwright_proto::{
    api,
    kinds::{self, Role},
};
use serde_json::json;

use super::{Order, State, create, get, has_room};
use crate::{audit, error::Error, nodes, specs, store::ReadTxn, tx::Tx};

/// What may be ordered: kinds without arguments.
const KINDS: [&str; 2] = [kinds::INVENTORY_COLLECT, kinds::NODE_REBOOT];

/// An order to one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeOrder {
    /// Id of the node.
    pub node: String,
    /// `inventory.collect` or `node.reboot`.
    pub kind: String,
    /// Not to be run again where the agent crashes in the middle, even if that would do no harm.
    pub at_most_once: bool,
    /// The generation of the node's spec that the node must have come to before; 0 for no matter which.
    pub min_generation: u64,
    /// It fails if it has not been started by then; in ms since the Unix epoch, by control's clock.
    pub not_after_ms: i64,
}

/// A command as the API shows it.
pub(crate) fn show(txn: &dyn ReadTxn, id: &str) -> Result<api::Command, Error> {
    let command = get(txn, id)?.ok_or_else(|| Error::UnknownCommand(audit::clip(id)))?;
    let state = match command.state {
        State::Queued => api::CommandState::Queued,
        State::Sent => api::CommandState::Sent,
        State::Running => api::CommandState::Running,
        State::Succeeded => api::CommandState::Succeeded,
        State::Failed => api::CommandState::Failed,
        State::Refused => api::CommandState::Refused,
    };
    let (outcome, error) = (command.outcome.clone(), command.error.clone());
    Ok(api::Command { id: command.id, node: command.node, kind: command.kind, state, outcome, error })
}

/// Gives the order; gives the command's id.
pub(crate) fn order(tx: &mut Tx<'_>, actor: &str, new: &NodeOrder) -> Result<String, Error> {
    let record = nodes::get(tx.txn, &new.node)?;
    let record = record.ok_or_else(|| Error::UnknownNode(audit::clip(&new.node)))?;
    let allowed = || KINDS.into_iter().find(|kind| *kind == new.kind).and_then(kinds::find);
    let Some(kind) = allowed() else {
        return Err(Error::bad("kind", format!("expected one of {}", KINDS.join(", "))));
    };
    let role = Role::from_wire(&record.node.role).filter(|role| kind.roles.contains(role));
    let Some(role) = role else {
        return Err(Error::bad(
            "kind",
            format!("a node of role {} does not run {}", record.node.role, kind.name),
        ));
    };
    if new.not_after_ms <= tx.now_ms {
        return Err(Error::bad("not_after_ms", "it is over already"));
    }
    if new.min_generation > specs::status(tx.txn, &new.node)?.generation {
        return Err(Error::bad("min_generation", "the node's spec has not come to it yet"));
    }
    if !has_room(tx.txn, &new.node)? {
        return Err(Error::bad("node", "it has too many open commands; wait for some to end"));
    }
    let id = create(
        tx,
        Order {
            kind: kind.name,
            node: &new.node,
            role,
            run: "",
            lease_epoch: 0,
            args: Vec::new(),
            not_after_ms: new.not_after_ms,
            at_most_once: new.at_most_once,
            min_generation: new.min_generation,
        },
    )?;
    let detail = json!({"command": id, "kind": kind.name});
    audit::append(tx, actor, "command.ordered", &new.node, detail)?;
    Ok(id)
}
