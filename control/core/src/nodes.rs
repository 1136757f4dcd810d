//! Nodes: the joined identities of machines and site agents.

use std::collections::BTreeMap;

use ironwright_proto::{
    api::{Node, NodeState},
    ids::{Digest, Name},
    kinds::Role,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{audit, error::Error, machines, output::Change, store::ReadTxn, table::Table, tx::Tx};

/// A node with what only control needs to know of it.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) node: Node,
    /// The key of its newest join; certificates for older ones are worth nothing any more.
    #[serde(with = "hex::serde")]
    pub(crate) spki_der: Vec<u8>,
    /// Role of its newest join. A ramdisk cannot open the session of an operating system.
    pub(crate) joined_as: String,
    pub(crate) journal_id: String,
    /// When its newest session was opened.
    pub(crate) hello_ms: i64,
    /// Newest event taken from the journal.
    pub(crate) event_seq: u64,
    /// The gateway that opened its newest session, or adopted it since.
    #[serde(default)]
    gateway: String,
}

impl Record {
    /// Whether this is what a gateway knew of the node when it opened or adopted its session.
    pub(crate) fn is_held_by(&self, gateway: &str, epoch: u64) -> bool {
        self.gateway == gateway && self.node.session_epoch == epoch
    }
}

const NODES: Table<Record> = Table::new("node");
/// `<gateway>/<node>`: which nodes a gateway watches.
const HELD: Table<()> = Table::new("node-of-gateway");

/// What a join has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Joined {
    pub(crate) role: Role,
    pub(crate) machine: Option<Name>,
    pub(crate) site: Option<Name>,
    pub(crate) spki_der: Vec<u8>,
    pub(crate) ek_fingerprint: Option<Digest>,
    pub(crate) pcrs: BTreeMap<u8, String>,
}

/// Makes the node of a machine or site agent, or brings the machine's one up to date. Gives its id.
pub(crate) fn join(tx: &mut Tx<'_>, joined: Joined) -> Result<String, Error> {
    let known = match &joined.machine {
        Some(machine) => machines::need(tx.txn, machine.as_str())?.node_id,
        None => None,
    };
    let old = known.map(|id| NODES.get(tx.txn, &id)).transpose()?.flatten();
    let proof = if joined.ek_fingerprint.is_some() { "tpm" } else { "token" };
    let (id, joined_ms, session_epoch) = match &old {
        Some(old) => (old.node.id.clone(), old.node.joined_ms, old.node.session_epoch),
        None => (tx.new_id("node"), tx.now_ms, 0),
    };
    let node = Node {
        id: id.clone(),
        machine: joined.machine.clone(),
        site: joined.site.clone(),
        role: old.as_ref().map_or_else(|| joined.role.as_str().to_owned(), |old| old.node.role.clone()),
        state: NodeState::Joined,
        connected: false,
        session_epoch,
        boot_id: old.as_ref().and_then(|old| old.node.boot_id.clone()),
        agent_version: old.as_ref().and_then(|old| old.node.agent_version.clone()),
        proof: proof.to_owned(),
        ek_fingerprint: joined.ek_fingerprint,
        pcrs: joined.pcrs,
        joined_ms,
        changed_ms: tx.now_ms,
    };
    let record = Record {
        node,
        spki_der: joined.spki_der,
        joined_as: joined.role.as_str().to_owned(),
        journal_id: old.as_ref().map(|old| old.journal_id.clone()).unwrap_or_default(),
        hello_ms: old.as_ref().map_or(0, |old| old.hello_ms),
        event_seq: old.as_ref().map_or(0, |old| old.event_seq),
        gateway: old.as_ref().map(|old| old.gateway.clone()).unwrap_or_default(),
    };
    put(tx, &record)?;
    if let Some(machine) = &joined.machine {
        machines::bind(tx, machine, &id, joined.ek_fingerprint)?;
    }
    let detail = json!({
        "role": joined.role.as_str(), "machine": joined.machine, "site": joined.site, "proof": proof,
        "ek": joined.ek_fingerprint, "again": old.is_some(),
    });
    audit::append(tx, &id, "node.joined", &id, detail)?;
    Ok(id)
}

pub(crate) fn get(txn: &dyn ReadTxn, id: &str) -> Result<Option<Record>, Error> {
    NODES.get(txn, id)
}

/// Whether a session is still the newest of its node. Checked in every transaction that a frame causes, so that a
/// fenced session changes nothing, whichever process has it.
pub(crate) fn is_current(txn: &dyn ReadTxn, id: &str, epoch: u64) -> Result<bool, Error> {
    Ok(NODES.get(txn, id)?.is_some_and(|record| record.node.session_epoch == epoch))
}

pub(crate) fn put(tx: &mut Tx<'_>, record: &Record) -> Result<(), Error> {
    NODES.put(tx.txn, &record.node.id, record)
}

/// Removes a node; its certificates are worth nothing any more.
pub(crate) fn remove(tx: &mut Tx<'_>, id: &str) -> Result<(), Error> {
    let Some(record) = NODES.get(tx.txn, id)? else { return Ok(()) };
    HELD.delete(tx.txn, &format!("{}/{id}", record.gateway))?;
    NODES.delete(tx.txn, id)
}

/// Has a gateway watch the node. The record is then to be [`put`].
pub(crate) fn hold(tx: &mut Tx<'_>, record: &mut Record, gateway: &str) -> Result<(), Error> {
    let id = &record.node.id;
    if record.gateway != gateway {
        HELD.delete(tx.txn, &format!("{}/{id}", record.gateway))?;
        HELD.put(tx.txn, &format!("{gateway}/{id}"), &())?;
        gateway.clone_into(&mut record.gateway);
    }
    Ok(())
}

/// At most `limit` of the nodes that a gateway watches, in the order of their ids, after `after`.
pub(crate) fn held_by(
    txn: &dyn ReadTxn,
    gateway: &str,
    after: &str,
    limit: usize,
) -> Result<Vec<String>, Error> {
    let held = HELD.scan(txn, &format!("{gateway}/"), after, limit)?;
    Ok(held.into_iter().map(|(node, ())| node).collect())
}

pub(crate) fn all(txn: &dyn ReadTxn) -> Result<Vec<Record>, Error> {
    NODES.all(txn)
}

/// Sets the state of a node; a change is logged.
pub(crate) fn set_state(tx: &mut Tx<'_>, record: &mut Record, state: NodeState) -> Result<(), Error> {
    if record.node.state == state {
        return Ok(());
    }
    record.node.state = state;
    record.node.changed_ms = tx.now_ms;
    let id = record.node.id.clone();
    tx.effects.changes.push(Change::NodeState { node: id.clone(), state });
    let action = match state {
        NodeState::Active => "node.active",
        NodeState::Unreachable => "node.unreachable",
        NodeState::Joined | NodeState::Unknown => "node.provisioning",
    };
    audit::append(
        tx,
        "control",
        action,
        &id,
        json!({"machine": record.node.machine, "site": record.node.site}),
    )
}
