//! One write transaction as domain code sees it, and the effects that follow its commit.

use std::collections::BTreeSet;

use ironwright_proto::api::ApiErrorBody;
use rand::{CryptoRng, RngCore, SeedableRng, rngs::StdRng};

use crate::{output::Change, store::WriteTxn};

/// What is done after the commit. Losing it to a crash is harmless: when the agents come back, reconciliation
/// finds in the store what was to be sent.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Effects {
    /// Nodes for which commands may be waiting.
    pub(crate) dispatch: BTreeSet<String>,
    /// Nodes to which a spec may have to be sent.
    pub(crate) specs: BTreeSet<String>,
    /// Commands (node, id) to call back.
    pub(crate) cancel: BTreeSet<(String, String)>,
    /// What became different.
    pub(crate) changes: Vec<Change>,
}

/// A write transaction with the time and the randomness that it may use.
pub(crate) struct Tx<'t> {
    pub(crate) txn: &'t mut dyn WriteTxn,
    pub(crate) now_ms: i64,
    pub(crate) rng: StdRng,
    pub(crate) effects: Effects,
}

impl<'t> Tx<'t> {
    pub(crate) fn new(txn: &'t mut dyn WriteTxn, now_ms: i64, seed: Seed) -> Self {
        Self { txn, now_ms, rng: StdRng::from_seed(seed.0), effects: Effects::default() }
    }

    /// A new id: prefix, time and a random part, so that ids sort by age.
    pub(crate) fn new_id(&mut self, prefix: &str) -> String {
        let random = self.rng.next_u64() >> 24;
        format!("{prefix}-{:011x}{random:010x}", self.now_ms.max(0))
    }
}

/// Randomness for one transaction. Drawn before it, because a transaction may be run again.
#[derive(Clone, Copy)]
pub(crate) struct Seed([u8; 32]);

impl Seed {
    pub(crate) fn draw(rng: &mut (impl RngCore + CryptoRng)) -> Self {
        let mut seed = [0; 32];
        rng.fill_bytes(&mut seed);
        Self(seed)
    }

    /// For transactions that use no randomness.
    pub(crate) const NONE: Self = Self([0; 32]);
}

/// An error of a command or a step.
pub(crate) fn failure(code: &str, message: impl Into<String>) -> ApiErrorBody {
    ApiErrorBody { code: code.to_owned(), message: message.into(), field: None }
}
