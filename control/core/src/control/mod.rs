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

use ironwright_proto::ids::Digest;

use crate::{error::Error, store::Store};

/// What control tells machines about itself.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Base URL of the API and the join service, `https://host:port`, as machines reach it.
    pub control_url: String,
    /// SHA-256 of the CA certificate's DER.
    pub ca_pin: Digest,
    /// PEM certificates of the EK authorities that are trusted; empty for none.
    pub ek_roots_pem: String,
}

/// Control's decisions over a store.
#[derive(Debug)]
pub struct Control<S> {
    store: S,
    settings: Settings,
}

impl<S: Store> Control<S> {
    /// Begins, or continues, on a store.
    pub fn new(store: S, settings: Settings, now_ms: i64) -> Result<Self, Error> {
        let _ = now_ms;
        Ok(Self { store, settings })
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
        self.store.version()
    }
}
