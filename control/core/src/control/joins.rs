//! What the join service and `Gateway.Renew` call. The shell issues a certificate for each [`Grant`].

use ironwright_proto::wire;
use rand::{CryptoRng, RngCore};

use super::Control;
use crate::{
    join::{Grant, JoinError},
    session::Peer,
    store::Store,
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
        unimplemented!()
    }
    /// Round 2.
    pub fn join_finish(
        &mut self,
        source: &str,
        finish: &wire::JoinFinish,
        now_ms: i64,
        rng: &mut (impl RngCore + CryptoRng),
    ) -> Result<Grant, JoinError> {
        unimplemented!()
    }
    /// The one round of machines without a TPM, and of sites.
    pub fn join_with_token(
        &mut self,
        source: &str,
        join: &wire::TokenJoin,
        now_ms: i64,
        rng: &mut (impl RngCore + CryptoRng),
    ) -> Result<Grant, JoinError> {
        unimplemented!()
    }
    /// A fresh certificate for the key that the peer just used.
    pub fn renew(
        &mut self,
        peer: &Peer,
        request: &wire::RenewRequest,
        now_ms: i64,
    ) -> Result<Grant, JoinError> {
        unimplemented!()
    }
}
