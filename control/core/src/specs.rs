//! Desired state of nodes: what it is, and how far each node is with it.
//!
//! ```text
//!   set ──▶ due ── in a session of the node: sent ──▶ StatusReport of this generation ──▶ observed
//!            ▲                                   │
//!            └────────── next Hello ─────────────┘ the link broke before
//! ```
//! The spec is sent as a whole. A node that has observed it is not sent it again; one that has lost its journal says so
//! in its Hello, and is.

use std::collections::BTreeMap;

use ironwright_proto::wire::{SectionState, Spec, SpecSection, StatusReport};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    audit,
    error::Error,
    nodes,
    store::ReadTxn,
    table::{MAX_LIST, Table},
    tx::Tx,
};

/// Sections that a node's spec has at most.
const MAX_SECTIONS: usize = 64;
/// Longest name of a section, and largest body, in bytes.
const MAX_NAME: usize = 64;
const MAX_BODY: usize = 256 << 10;
/// Longest reason of a failed section, in characters.
const MAX_REASON: usize = 1024;

/// A node's spec, and what it reports.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Record {
    generation: u64,
    sections: BTreeMap<String, Body>,
    observed: u64,
    status: BTreeMap<String, SectionReport>,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Body(#[serde(with = "hex::serde")] Vec<u8>);

/// How far a node is with one section.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SectionReport {
    /// `applied`, `progressing` or `failed`.
    pub state: String,
    /// Why it failed.
    pub reason: String,
}

/// A node's spec in numbers, and its sections' states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecStatus {
    /// The generation that is wanted; 0 where nothing is.
    pub generation: u64,
    /// The one that the node has observed.
    pub observed: u64,
    /// By section.
    pub sections: BTreeMap<String, SectionReport>,
}

/// By node.
const SPECS: Table<Record> = Table::new("spec");
/// Nodes that have not observed their newest spec.
const DUE: Table<()> = Table::new("spec-due");

/// Replaces a section of a node's spec, or takes it out. Gives the spec's generation.
pub(crate) fn set(
    tx: &mut Tx<'_>,
    actor: &str,
    node: &str,
    name: &str,
    body: Option<&[u8]>,
) -> Result<u64, Error> {
    if nodes::get(tx.txn, node)?.is_none() {
        return Err(Error::UnknownNode(audit::clip(node)));
    }
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(Error::bad("name", format!("expected 1 to {MAX_NAME} bytes")));
    }
    if body.is_some_and(|body| body.len() > MAX_BODY) {
        return Err(Error::bad("body", format!("expected at most {MAX_BODY} bytes")));
    }
    let mut record = SPECS.get(tx.txn, node)?.unwrap_or_default();
    let body = body.map(|body| Body(body.to_owned()));
    if record.sections.get(name) == body.as_ref() {
        return Ok(record.generation);
    }
    match body {
        Some(body) => record.sections.insert(name.to_owned(), body),
        None => record.sections.remove(name),
    };
    if record.sections.len() > MAX_SECTIONS {
        return Err(Error::bad("name", format!("a spec has at most {MAX_SECTIONS} sections")));
    }
    record.generation += 1;
    SPECS.put(tx.txn, node, &record)?;
    DUE.put(tx.txn, node, &())?;
    tx.effects.specs.insert(node.to_owned());
    let detail = json!({"section": name, "generation": record.generation});
    audit::append(tx, actor, "spec.set", node, detail)?;
    Ok(record.generation)
}

/// The spec that a node has not observed yet; of two specs, the one that it is not known to have.
pub(crate) fn unobserved(txn: &dyn ReadTxn, node: &str) -> Result<Option<Spec>, Error> {
    let Some(record) = SPECS.get(txn, node)?.filter(|record| record.observed < record.generation) else {
        return Ok(None);
    };
    let section = |(name, body): (String, Body)| SpecSection { name, body: body.0 };
    let sections = record.sections.into_iter().map(section).collect();
    Ok(Some(Spec { generation: record.generation, sections }))
}

/// Takes what a Hello says of the spec in the agent's journal.
pub(crate) fn greet(tx: &mut Tx<'_>, node: &str, observed: u64) -> Result<(), Error> {
    let Some(mut record) = SPECS.get(tx.txn, node)? else { return Ok(()) };
    observe(tx, node, &mut record, observed)?;
    tx.effects.specs.insert(node.to_owned());
    SPECS.put(tx.txn, node, &record)
}

/// Takes a report.
pub(crate) fn report(tx: &mut Tx<'_>, node: &str, report: &StatusReport) -> Result<(), Error> {
    let Some(mut record) = SPECS.get(tx.txn, node)? else { return Ok(()) };
    observe(tx, node, &mut record, report.observed_generation)?;
    let wanted = report.sections.iter().filter(|section| record.sections.contains_key(&section.name));
    record.status = wanted
        .map(|section| {
            let state = match section.state() {
                SectionState::Applied => "applied",
                SectionState::Failed => "failed",
                SectionState::Progressing | SectionState::Unspecified => "progressing",
            };
            let reason = section.reason.chars().take(MAX_REASON).collect();
            (section.name.clone(), SectionReport { state: state.to_owned(), reason })
        })
        .collect();
    SPECS.put(tx.txn, node, &record)
}

/// A node may have lost its journal, so what it says counts, also where it is less. It cannot have what was never sent.
fn observe(tx: &mut Tx<'_>, node: &str, record: &mut Record, observed: u64) -> Result<(), Error> {
    record.observed = observed.min(record.generation);
    if record.observed == record.generation { DUE.delete(tx.txn, node) } else { DUE.put(tx.txn, node, &()) }
}

/// Nodes that have not observed their newest spec, at most [`MAX_LIST`].
pub(crate) fn due(txn: &dyn ReadTxn) -> Result<Vec<String>, Error> {
    Ok(DUE.scan(txn, "", "", MAX_LIST)?.into_iter().map(|(node, ())| node).collect())
}

/// Forgets the spec of a node that is removed.
pub(crate) fn forget(tx: &mut Tx<'_>, node: &str) -> Result<(), Error> {
    SPECS.delete(tx.txn, node)?;
    DUE.delete(tx.txn, node)
}

/// The state of a node's spec.
pub(crate) fn status(txn: &dyn ReadTxn, node: &str) -> Result<SpecStatus, Error> {
    let record = SPECS.get(txn, node)?.unwrap_or_default();
    Ok(SpecStatus { generation: record.generation, observed: record.observed, sections: record.status })
}
