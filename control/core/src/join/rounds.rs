//! The rounds of a join, over the store.
//!
//! ```text
//!   Begin ── checked, admitted ──▶ pending ── Finish ──▶ used ── proof, quote, admitted again ──▶ node
//!                                     │                    └──▶ refused (the join id is worth nothing now)
//!                                     └── 120 s, or a newer Begin of the same TPM ──▶ gone
//! ```

use std::collections::BTreeMap;

use ironwright_proto::{
    Message,
    ids::Digest,
    kinds::Role,
    wire::{JoinBegin, JoinChallenge, JoinClaim, JoinFinish, RenewRequest, TokenJoin},
};
use ironwright_tpm::{
    join::{Secret, proof_is_valid, quote_extra, transcript},
    verify::{self, CheckedBegin, EkRoots, VerifyError},
};
use rand::{CryptoRng, RngCore};
use subtle::ConstantTimeEq;

use super::{
    Grant, JoinError,
    pending::{self, Claim, PENDING_TTL_MS, Pending},
    policy::{self, Admitted},
    refusal::{Refusal, RefusalCode},
    token,
};
use crate::{
    error::Error,
    nodes::{self, Joined},
    session::Peer,
    store::{ReadTxn, Store},
    tx::{Seed, Tx},
};

/// PCRs that a join's quote covers: 0 to 7, what firmware measures (TCG PC Client PFP §3.3.4).
pub const PCR_MASK: u32 = 0xff;
/// The SHA-256 bank (TPM_ALG_ID, TCG Algorithm Registry).
const PCR_BANK_SHA256: u32 = 0x000b;
/// Version of the token join.
const TOKEN_JOIN_VERSION: u32 = 1;

/// Reads a first round; bounded before anything is parsed.
pub(crate) fn decode_begin(body: &[u8]) -> Result<JoinBegin, Refusal> {
    let malformed = |reason: String| Refusal::new(RefusalCode::Malformed, reason);
    if body.len() > verify::MAX_BEGIN {
        return Err(malformed(format!("{} bytes are more than a first round has", body.len())));
    }
    JoinBegin::decode(body).map_err(|error| malformed(format!("decoding the first round: {error}")))
}

/// Checks everything in a first round that needs no store.
pub(crate) fn check_begin(begin: &JoinBegin, roots: &EkRoots, now_ms: i64) -> Result<CheckedBegin, Refusal> {
    verify::check_begin(begin, roots, now_ms.div_euclid(1000)).map_err(|error| refusal_of(&error))
}

/// Admits a checked first round and makes its challenge; gives the bytes of the answer.
pub(crate) fn challenge(
    store: &impl Store,
    body: &[u8],
    claim: &JoinClaim,
    checked: &CheckedBegin,
    now_ms: i64,
    rng: &mut (impl RngCore + CryptoRng),
) -> Result<Vec<u8>, JoinError> {
    let ek = &checked.ek_fingerprint;
    store.read(|txn| policy::admit_tpm(txn, claim, ek, now_ms))??;

    let (mut join_id, mut quote_nonce) = ([0; 16], [0; 32]);
    rng.fill_bytes(&mut join_id);
    rng.fill_bytes(&mut quote_nonce);
    let secret = Secret::random(rng);
    let (credential_blob, encrypted_secret) =
        verify::make_credential(&checked.ek, &checked.ak_name, &secret, rng).map_err(|e| refusal_of(&e))?;
    let answer = JoinChallenge {
        join_id: join_id.to_vec(),
        credential_blob,
        encrypted_secret,
        quote_nonce: quote_nonce.to_vec(),
        pcr_bank: PCR_BANK_SHA256,
        pcr_mask: PCR_MASK,
        expires_in_s: u32::try_from(PENDING_TTL_MS / 1000).unwrap_or(u32::MAX),
    }
    .encode_to_vec();
    let row = Pending {
        begin: checked.clone(),
        claim: Claim::new(claim),
        secret: Some(secret),
        quote_nonce,
        transcript: transcript(body, &answer),
        expires_ms: now_ms + PENDING_TTL_MS,
        used: false,
    };
    store.write(|txn| {
        let mut tx = Tx::new(txn, now_ms, Seed::NONE);
        pending::put(&mut tx, &join_id, &row)
    })?;
    Ok(answer)
}

/// The second round. Burns the join id first; everything then comes from its row.
pub(crate) fn finish(
    store: &impl Store,
    finish: &JoinFinish,
    now_ms: i64,
    rng: &mut (impl RngCore + CryptoRng),
) -> Result<Grant, JoinError> {
    let row = store.write(|txn| pending::burn(&mut Tx::new(txn, now_ms, Seed::NONE), &finish.join_id))??;
    let pcrs = check_finish(&row, finish)?;
    let claim = row.claim.decode()?;
    let ek = row.begin.ek_fingerprint;
    let seed = Seed::draw(rng);
    let granted = store.write::<_, Error>(|txn| {
        let mut tx = Tx::new(txn, now_ms, seed);
        // Once more, because all may have changed since the first round: the token, the lease, the binding.
        match policy::admit_tpm(tx.txn, &claim, &ek, now_ms)? {
            Ok(admitted) => {
                let spki_der = row.begin.node_spki_der.clone();
                make_node(&mut tx, admitted, spki_der, Some(ek), pcrs.clone()).map(Ok)
            }
            Err(refusal) => Ok(Err(refusal)),
        }
    })?;
    Ok(granted?)
}

fn check_finish(row: &Pending, finish: &JoinFinish) -> Result<BTreeMap<u8, String>, Refusal> {
    let secret = row.secret.as_ref();
    if !secret.is_some_and(|secret| proof_is_valid(secret, &row.transcript, &finish.proof)) {
        return Err(Refusal::new(RefusalCode::ProofInvalid, "the TPM did not open the secret"));
    }
    let join_id: [u8; 16] = finish.join_id.as_slice().try_into().unwrap_or_default();
    let begin = &row.begin;
    let extra = quote_extra(&join_id, &row.quote_nonce, &begin.ak_name, &begin.node_name, &begin.csr_sha256);
    let attested =
        verify::check_quote(&begin.ak_pub, &extra, PCR_MASK, finish).map_err(|e| refusal_of(&e))?;
    Ok(attested.pcrs.into_iter().map(|(pcr, value)| (pcr, hex::encode(value))).collect())
}

/// The one round of token joins.
pub(crate) fn with_token(
    store: &impl Store,
    join: &TokenJoin,
    now_ms: i64,
    rng: &mut (impl RngCore + CryptoRng),
) -> Result<Grant, JoinError> {
    let malformed = |reason: String| Refusal::new(RefusalCode::Malformed, reason);
    if join.version != TOKEN_JOIN_VERSION {
        return Err(malformed(format!("token join of version {}", join.version)).into());
    }
    let claim = join.claim.as_ref().ok_or_else(|| malformed("the join has no claim".into()))?;
    let csr = verify::check_csr(&join.csr_der).map_err(|error| refusal_of(&error))?;
    let seed = Seed::draw(rng);
    let granted = store.write::<_, Error>(|txn| {
        let mut tx = Tx::new(txn, now_ms, seed);
        match policy::admit_token(tx.txn, claim, now_ms)? {
            Ok(admitted) => make_node(&mut tx, admitted, csr.spki_der.clone(), None, BTreeMap::new()).map(Ok),
            Err(refusal) if refusal.code == RefusalCode::TokenUsed => {
                let same = asked_again(tx.txn, &claim.join_token, &csr.spki_der)?;
                Ok(same.ok_or(refusal))
            }
            Err(refusal) => Ok(Err(refusal)),
        }
    })?;
    Ok(granted?)
}

/// The grant of a join whose answer was lost: the same token with the same key gets the same answer.
fn asked_again(txn: &dyn ReadTxn, token: &str, spki_der: &[u8]) -> Result<Option<Grant>, Error> {
    let Some(node) = token::used_by(txn, token)? else { return Ok(None) };
    let record = nodes::get(txn, &node)?.filter(|record| record.spki_der == spki_der);
    record.map(grant_of).transpose()
}

fn grant_of(record: nodes::Record) -> Result<Grant, Error> {
    let role = Role::from_wire(&record.joined_as)
        .ok_or_else(|| Error::Internal(format!("node {} has role `{}`", record.node.id, record.joined_as)))?;
    Ok(Grant {
        node_id: record.node.id,
        spki_der: record.spki_der,
        role,
        machine: record.node.machine,
        site: record.node.site,
    })
}

fn make_node(
    tx: &mut Tx<'_>,
    admitted: Admitted,
    spki_der: Vec<u8>,
    ek_fingerprint: Option<Digest>,
    pcrs: BTreeMap<u8, String>,
) -> Result<Grant, Error> {
    let Admitted { role, machine, site, token } = admitted;
    let joined = Joined {
        role,
        machine: machine.clone(),
        site: site.clone(),
        spki_der: spki_der.clone(),
        ek_fingerprint,
        pcrs,
    };
    let node_id = nodes::join(tx, joined)?;
    if let Some(key) = &token {
        token::burn(tx, key, &node_id)?;
    }
    Ok(Grant { node_id, spki_der, role, machine, site })
}

/// A fresh certificate for the key that the peer has just proven to have.
pub(crate) fn renew(store: &impl Store, peer: &Peer, request: &RenewRequest) -> Result<Grant, JoinError> {
    let csr = verify::check_csr(&request.csr_der).map_err(|error| refusal_of(&error))?;
    let refused = |reason: &str| Refusal::new(RefusalCode::ProofInvalid, reason.to_owned());
    let record = store.read(|txn| nodes::get(txn, &peer.node_id))?.ok_or_else(|| refused("no such node"))?;
    if !bool::from(record.spki_der.ct_eq(&peer.spki_der)) {
        return Err(refused("the node has joined with another key since").into());
    }
    if csr.spki_der != peer.spki_der {
        return Err(refused("a renewal is for the key that asks for it").into());
    }
    Ok(grant_of(record)?)
}

/// The refusal that a failed check means, with its causes in the reason.
fn refusal_of(error: &VerifyError) -> Refusal {
    let code = match error.code() {
        "malformed" => RefusalCode::Malformed,
        "ek_untrusted" => RefusalCode::EkUntrusted,
        _ => RefusalCode::ProofInvalid,
    };
    let mut reason = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        reason = format!("{reason}: {cause}");
        source = cause.source();
    }
    Refusal::new(code, reason)
}

#[cfg(test)]
mod tests;
