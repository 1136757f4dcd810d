//! Joins between their two rounds: one row for each EK, for two minutes, for one attempt.

use ironwright_proto::{ids::Digest, wire::JoinClaim};
use ironwright_tpm::{join::Secret, verify::CheckedBegin};
use serde::{Deserialize, Serialize};

use super::refusal::{Refusal, RefusalCode};
use crate::{error::Error, table::Table, tx::Tx};

/// How long a machine has for the second round.
pub const PENDING_TTL_MS: i64 = 120_000;

/// Everything that the second round is judged by. None of it is taken from the second round.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Pending {
    pub(crate) begin: CheckedBegin,
    pub(crate) claim: Claim,
    /// Wiped once the row is used.
    pub(crate) secret: Option<Secret>,
    #[serde(with = "hex::serde")]
    pub(crate) quote_nonce: [u8; 32],
    #[serde(with = "hex::serde")]
    pub(crate) transcript: [u8; 32],
    pub(crate) expires_ms: i64,
    pub(crate) used: bool,
}

/// The claim of the first round, as its encoded message.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Claim(#[serde(with = "hex::serde")] Vec<u8>);

impl Claim {
    pub(crate) fn new(claim: &JoinClaim) -> Self {
        use ironwright_proto::Message;
        Self(claim.encode_to_vec())
    }

    pub(crate) fn decode(&self) -> Result<JoinClaim, Error> {
        use ironwright_proto::Message;
        JoinClaim::decode(self.0.as_slice())
            .map_err(|error| Error::Internal(format!("decoding the claim of a pending join: {error}")))
    }
}

/// By join id.
const PENDING: Table<Pending> = Table::new("join");
/// EK fingerprint → join id.
const BY_EK: Table<String> = Table::new("join-ek");

/// Stores a row in place of the one that this EK had.
pub(crate) fn put(tx: &mut Tx<'_>, join_id: &[u8; 16], row: &Pending) -> Result<(), Error> {
    let id = hex::encode(join_id);
    let ek: Digest = row.begin.ek_fingerprint;
    if let Some(older) = BY_EK.get(tx.txn, &ek.hex())? {
        PENDING.delete(tx.txn, &older)?;
    }
    PENDING.put(tx.txn, &id, row)?;
    BY_EK.put(tx.txn, &ek.hex(), &id)
}

/// Marks a row as used, whatever comes of it, and gives it as it was.
pub(crate) fn burn(tx: &mut Tx<'_>, join_id: &[u8]) -> Result<Result<Pending, Refusal>, Error> {
    let refused = |reason: &str| Ok(Err(Refusal::new(RefusalCode::ProofInvalid, reason)));
    if join_id.len() != 16 {
        return Ok(Err(Refusal::new(RefusalCode::Malformed, "the join id does not have 16 bytes")));
    }
    let id = hex::encode(join_id);
    let Some(row) = PENDING.get(tx.txn, &id)? else {
        return refused("no join of this id was begun, or a newer one of the same TPM replaced it");
    };
    if row.used {
        return refused("the join id was used before");
    }
    PENDING.put(tx.txn, &id, &Pending { used: true, secret: None, ..row.clone() })?;
    if row.expires_ms <= tx.now_ms {
        return refused("the second round came too late");
    }
    Ok(Ok(row))
}
