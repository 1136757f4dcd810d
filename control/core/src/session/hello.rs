//! The first frame of a session: checked, given an epoch, reconciled (decision 0001, "Session").

use std::collections::BTreeSet;

use ironwright_proto::{
    api::NodeState,
    kinds::Role,
    wire::{Hello, Lease, Rejected},
};
use subtle::ConstantTimeEq;

use super::Peer;
use crate::{
    audit::clip,
    commands::{self, AgentSide},
    error::Error,
    nodes, runs, sites, specs,
    tx::Tx,
};

/// Version of the session.
const VERSION: u32 = 1;
/// Most commands that a Hello may list.
pub const MAX_LISTED: usize = 4096;

/// A session that may open.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Greeted {
    pub(crate) epoch: u64,
    pub(crate) role: Role,
    pub(crate) site: Option<String>,
    pub(crate) lease: Option<Lease>,
    pub(crate) acks: Vec<String>,
}

fn rejected(code: &str, message: impl Into<String>) -> Rejected {
    Rejected { code: code.to_owned(), message: message.into() }
}

/// The role of the session, where the Hello is one that this node may send.
fn check(peer: &Peer, hello: &Hello, record: Option<&nodes::Record>) -> Result<Role, Rejected> {
    let Some(record) = record else {
        return Err(rejected(
            "node_unknown",
            format!("there is no node {}; join again", clip(&peer.node_id)),
        ));
    };
    if !bool::from(record.spki_der.ct_eq(&peer.spki_der)) {
        return Err(rejected("revoked", "this node has joined with another key since; join again"));
    }
    let bad = |message: String| rejected("bad_hello", message);
    if hello.version != VERSION {
        return Err(bad(format!("version {}; only {VERSION} is spoken here", hello.version)));
    }
    if hello.commands.len() > MAX_LISTED {
        return Err(bad(format!("more than {MAX_LISTED} commands are listed")));
    }
    if record.joined_as != hello.role {
        let said = clip(&hello.role);
        return Err(bad(format!("the node joined as `{}`, not as `{said}`", record.joined_as)));
    }
    if record.node.site.as_ref().is_some_and(|site| site.as_str() != hello.site) {
        return Err(bad(format!("the node is not of site `{}`", clip(&hello.site))));
    }
    Role::from_wire(&hello.role).ok_or_else(|| bad(format!("unknown role `{}`", clip(&hello.role))))
}

/// Gives or renews the lease of a site; where its holder changes, the site's runs turn to the new one.
pub(crate) fn renew_lease(tx: &mut Tx<'_>, site: &str, node: &str) -> Result<Lease, Error> {
    let (lease, taken) = sites::lease(tx, site, node)?;
    if taken {
        for run in runs::of_site(tx.txn, site)? {
            runs::step(tx, &run)?;
        }
    }
    Ok(lease)
}

/// Opens a session in the store: next epoch, reconciliation, runs moved.
pub(crate) fn greet(
    tx: &mut Tx<'_>,
    gateway: &str,
    peer: &Peer,
    hello: &Hello,
) -> Result<Result<Greeted, Rejected>, Error> {
    let record = nodes::get(tx.txn, &peer.node_id)?;
    let role = match check(peer, hello, record.as_ref()) {
        Ok(role) => role,
        Err(rejected) => return Ok(Err(rejected)),
    };
    let Some(mut record) = record else { return Err(Error::UnknownNode(peer.node_id.clone())) };
    let same_journal = record.journal_id == hello.journal_id;
    if !same_journal {
        record.journal_id = clip(&hello.journal_id);
        record.event_seq = 0;
    }
    record.hello_ms = tx.now_ms;
    let node = &mut record.node;
    node.session_epoch += 1;
    role.as_str().clone_into(&mut node.role);
    node.boot_id = Some(clip(&hello.boot_id));
    node.agent_version = Some(clip(&hello.agent_version));
    let (id, epoch, site) = (node.id.clone(), node.session_epoch, node.site.clone());
    let state = if role == Role::Ramdisk { NodeState::Joined } else { NodeState::Active };
    nodes::set_state(tx, &mut record, state)?;
    nodes::hold(tx, &mut record, gateway)?;
    nodes::put(tx, &record)?;

    let lease = site.as_ref().map(|site| renew_lease(tx, site.as_str(), &id)).transpose()?;
    if let Some(site) = &site {
        sites::set_address(tx, site.as_str(), &id, &hello.address)?;
    }
    specs::greet(tx, &id, hello.observed_generation)?;
    let agent = AgentSide { same_journal, boot_id: &hello.boot_id };
    let reconciled = commands::reconcile(tx, &id, agent, &hello.commands)?;
    let mut moved: BTreeSet<String> = reconciled.runs;
    if let Some(machine) = &record.node.machine {
        moved.extend(runs::of_machine(tx.txn, machine)?);
    }
    for run in moved {
        runs::step(tx, &run)?;
    }
    let site = site.map(|site| site.to_string());
    Ok(Ok(Greeted { epoch, role, site, lease, acks: reconciled.acks }))
}
