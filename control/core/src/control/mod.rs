//! The façade: every operation of control over one store, with the little state that lives in memory only
//! (open sessions, progress, rate limits).
//!
//! One task of the shell owns a [`Control`]; after each call it carries out the [`Output`] and, where
//! [`Control::version`] changed, wakes whoever watches. After a restart of the process [`Control::new`] on the
//! same store continues: agents open their sessions again, and [`Control::tick`] moves the runs.
//!
//! Randomness comes in as `&mut (impl RngCore + CryptoRng)`, time as milliseconds since the Unix epoch.

mod api;
mod joins;
mod links;

use std::collections::BTreeMap;

use ironwright_proto::{
    api::Progress,
    ids::Digest,
    wire::{self, gateway_frame::Frame},
};
use ironwright_tpm::verify::{EkRoots, EkRootsError};
use rand::{CryptoRng, RngCore};

use crate::{
    commands,
    error::Error,
    gateways::Pulse,
    join::{JOINS_PER_EK_AND_MINUTE, JOINS_PER_SOURCE_AND_MINUTE, REFUSALS_LOGGED_PER_MINUTE},
    limits::PerMinute,
    nodes,
    output::{Change, Output, SessionRef},
    runs::ControlFacts,
    session::{EVENTS_PER_NODE_AND_MINUTE, Sessions},
    specs,
    store::{ReadTxn, Store},
    table::MAX_LIST,
    tx::{Effects, Seed, Tx},
};

/// How many commands' progress is kept.
const MAX_PROGRESS: usize = 10_000;

/// What control tells machines about itself.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Base URL of the API and the join service, `https://host:port`, as machines reach it.
    pub control_url: String,
    /// SHA-256 of the CA certificate's DER.
    pub ca_pin: Digest,
    /// Which of the gateways on its store this process is. No two that run may have the same name.
    pub gateway: String,
    /// PEM certificates of the EK authorities that are trusted; empty for none.
    pub ek_roots_pem: String,
}

/// Why control cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The EK authorities.
    #[error("reading the trusted EK authorities")]
    EkRoots(#[from] EkRootsError),
    /// The store.
    #[error(transparent)]
    Store(#[from] Error),
}

/// Control's decisions over a store.
#[derive(Debug)]
pub struct Control<S> {
    store: S,
    settings: Settings,
    facts: ControlFacts,
    ek_roots: EkRoots,
    sessions: Sessions,
    pulse: Pulse,
    memory: Memory,
    limits: Limits,
}

/// What is shown, but not kept.
#[derive(Debug, Default)]
struct Memory {
    /// By command id.
    progress: BTreeMap<String, Progress>,
    /// Bytes of fetching images, by name.
    fetched: BTreeMap<String, u64>,
    /// The store's version when work of other gateways was looked for.
    looked_at: u64,
    version: u64,
}

#[derive(Debug)]
struct Limits {
    joins_by_source: PerMinute,
    joins_by_ek: PerMinute,
    logged_refusals: PerMinute,
    events_by_node: PerMinute,
}

impl<S: Store> Control<S> {
    /// Begins, or continues, on a store.
    pub fn new(store: S, settings: Settings, now_ms: i64) -> Result<Self, SetupError> {
        let ek_roots = EkRoots::from_pem(&settings.ek_roots_pem)?;
        let facts = ControlFacts { url: settings.control_url.clone(), ca_pin: settings.ca_pin };
        let mut sessions = Sessions::default();
        store.read(|txn| watch_held(txn, &settings.gateway, &mut sessions, now_ms))?;
        let limits = Limits {
            joins_by_source: PerMinute::new(JOINS_PER_SOURCE_AND_MINUTE),
            joins_by_ek: PerMinute::new(JOINS_PER_EK_AND_MINUTE),
            logged_refusals: PerMinute::new(REFUSALS_LOGGED_PER_MINUTE),
            events_by_node: PerMinute::new(EVENTS_PER_NODE_AND_MINUTE),
        };
        let (pulse, memory) = (Pulse::default(), Memory::default());
        Ok(Self { store, settings, facts, ek_roots, sessions, pulse, memory, limits })
    }

    /// The store.
    pub const fn store(&self) -> &S {
        &self.store
    }

    /// The settings.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Grows with every change that a reader could see, also of progress. Watchers read again when it grew.
    pub fn version(&self) -> u64 {
        self.store.version() + self.memory.version
    }

    /// One transaction; gives the effects that follow its commit.
    fn commit<R, E: From<Error> + From<crate::store::StoreError>>(
        &self,
        now_ms: i64,
        rng: &mut (impl RngCore + CryptoRng),
        mut f: impl FnMut(&mut Tx<'_>) -> Result<R, E>,
    ) -> Result<(R, Effects), E> {
        let seed = Seed::draw(rng);
        self.store.write(|txn| {
            let mut tx = Tx::new(txn, now_ms, seed);
            let value = f(&mut tx)?;
            Ok((value, tx.effects))
        })
    }

    /// Carries out what follows a commit: sends what can be sent in open sessions.
    fn deliver(
        &mut self,
        effects: Effects,
        now_ms: i64,
        rng: &mut (impl RngCore + CryptoRng),
    ) -> Result<Output, Error> {
        let mut output = Output::default();
        for change in &effects.changes {
            if let Change::CommandEnded { id, .. } = change {
                self.memory.progress.remove(id);
            }
        }
        output.changes = effects.changes;
        for (node, id) in effects.cancel {
            let Some(live) = self.sessions.of(&node) else {
                self.commit::<_, Error>(now_ms, rng, |tx| commands::leave_call_back(tx, &node, &id))?;
                continue;
            };
            let to = SessionRef { node: node.clone(), epoch: live.epoch };
            self.commit::<_, Error>(now_ms, rng, |tx| commands::called_back(tx, &node, &id))?;
            output.send(&to, Frame::Cancel(wire::Cancel { id }));
        }
        for node in effects.specs {
            let Some(epoch) = self.sessions.of(&node).map(|live| live.epoch) else { continue };
            let Some(spec) = self.store.read(|txn| specs::unobserved(txn, &node))? else { continue };
            if self.sessions.send_spec(&node, spec.generation) {
                output.send(&SessionRef { node, epoch }, Frame::Spec(spec));
            }
        }
        for node in effects.dispatch {
            let Some(live) = self.sessions.of(&node) else { continue };
            let to = SessionRef { node: node.clone(), epoch: live.epoch };
            let (ready, _) = self.commit::<_, Error>(now_ms, rng, |tx| {
                // Where another gateway has a newer session, it sends them.
                if !nodes::is_current(tx.txn, &node, live.epoch)? {
                    return Ok(Vec::new());
                }
                commands::dispatch(tx, &node, live.role, &live.boot_id)
            })?;
            for command in ready {
                output.send(&to, Frame::Command(command));
            }
        }
        Ok(output)
    }
}

/// Has the nodes that an earlier process of this gateway watched watched again, each with the full time.
fn watch_held(txn: &dyn ReadTxn, gateway: &str, sessions: &mut Sessions, now_ms: i64) -> Result<(), Error> {
    let mut after = String::new();
    loop {
        let held = nodes::held_by(txn, gateway, &after, MAX_LIST)?;
        for node in &held {
            if let Some(record) = nodes::get(txn, node)? {
                sessions.watch(node, record.node.session_epoch, now_ms);
            }
        }
        match held.into_iter().next_back() {
            Some(last) => after = last,
            None => return Ok(()),
        }
    }
}
