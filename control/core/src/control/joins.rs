//! What the join service and `Gateway.Renew` call. The shell issues a certificate for each [`Grant`].

use ironwright_proto::wire::{self, JoinClaim};
use rand::{CryptoRng, RngCore};
use serde_json::json;

use super::Control;
use crate::{
    audit,
    error::Error,
    join::{self, Grant, JoinError, Refusal, RefusalCode},
    runs,
    session::Peer,
    store::Store,
    tx::{Seed, Tx},
};

impl<S: Store> Control<S> {
    /// Round 1: the exact bytes of the request's body in, the exact bytes of the answer's body out.
    /// `source` is the peer's IP address, for the rate limit.
    pub fn join_begin(
        &mut self,
        source: &str,
        body: &[u8],
        now_ms: i64,
        rng: &mut (impl RngCore + CryptoRng),
    ) -> Result<Vec<u8>, JoinError> {
        let mut claim = JoinClaim::default();
        let answer = self.begin(source, body, &mut claim, now_ms, rng);
        self.logged(source, "begin", &claim, now_ms, answer)
    }

    fn begin(
        &mut self,
        source: &str,
        body: &[u8],
        claim: &mut JoinClaim,
        now_ms: i64,
        rng: &mut (impl RngCore + CryptoRng),
    ) -> Result<Vec<u8>, JoinError> {
        self.admit_source(source, now_ms)?;
        let begin = join::decode_begin(body)?;
        *claim = begin.claim.clone().unwrap_or_default();
        let checked = join::check_begin(&begin, &self.ek_roots, now_ms)?;
        if !self.limits.joins_by_ek.admit(&checked.ek_fingerprint.hex(), now_ms) {
            return Err(Refusal::new(RefusalCode::RateLimited, "too many joins of this TPM").into());
        }
        join::challenge(&self.store, body, claim, &checked, now_ms, rng)
    }

    /// Round 2.
    pub fn join_finish(
        &mut self,
        source: &str,
        finish: &wire::JoinFinish,
        now_ms: i64,
        rng: &mut (impl RngCore + CryptoRng),
    ) -> Result<Grant, JoinError> {
        let granted = match self.admit_source(source, now_ms) {
            Ok(()) => join::finish(&self.store, finish, now_ms, rng),
            Err(refusal) => Err(refusal.into()),
        };
        self.logged(source, "finish", &JoinClaim::default(), now_ms, granted)
    }

    /// The one round of machines without a TPM, and of sites.
    pub fn join_with_token(
        &mut self,
        source: &str,
        join: &wire::TokenJoin,
        now_ms: i64,
        rng: &mut (impl RngCore + CryptoRng),
    ) -> Result<Grant, JoinError> {
        let granted = match self.admit_source(source, now_ms) {
            Ok(()) => join::with_token(&self.store, join, now_ms, rng),
            Err(refusal) => Err(refusal.into()),
        };
        self.logged(source, "token", &join.claim.clone().unwrap_or_default(), now_ms, granted)
    }

    /// A fresh certificate for the key that the peer just used.
    pub fn renew(
        &mut self,
        peer: &Peer,
        request: &wire::RenewRequest,
        now_ms: i64,
    ) -> Result<Grant, JoinError> {
        let granted = join::renew(&self.store, peer, request);
        self.logged(&peer.node_id, "renew", &JoinClaim::default(), now_ms, granted)
    }

    fn admit_source(&mut self, source: &str, now_ms: i64) -> Result<(), Refusal> {
        if self.limits.joins_by_source.admit(source, now_ms) {
            return Ok(());
        }
        Err(Refusal::new(RefusalCode::RateLimited, "too many joins from this address"))
    }

    /// Writes a refusal to the audit log, with its full reason, and to the run that waits for the machine; the peer gets
    /// the code only.
    fn logged<R>(
        &mut self,
        source: &str,
        round: &str,
        claim: &JoinClaim,
        now_ms: i64,
        outcome: Result<R, JoinError>,
    ) -> Result<R, JoinError> {
        let Err(JoinError::Refused(refusal)) = &outcome else { return outcome };
        // Strangers must not be able to fill the log.
        let log = refusal.code != RefusalCode::RateLimited && self.limits.logged_refusals.admit("", now_ms);
        if log {
            let machine = if claim.machine_id.is_empty() { "unknown" } else { &claim.machine_id };
            let detail = json!({
                "code": refusal.code.as_str(), "reason": audit::clip(&refusal.reason), "round": round,
                "source": audit::clip(source), "role": audit::clip(&claim.role), "mac": audit::clip(&claim.mac),
            });
            self.store.write::<_, Error>(|txn| {
                let mut tx = Tx::new(txn, now_ms, Seed::NONE);
                if let Ok(machine) = claim.machine_id.parse() {
                    runs::join_refused(&mut tx, &machine, refusal)?;
                }
                audit::append(&mut tx, source, "join.refused", machine, detail.clone())
            })?;
        }
        outcome
    }
}
