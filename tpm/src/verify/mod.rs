//! What control checks in a join, from cheap to costly. Nothing here stores, asks the time or talks.
//!
//! ```text
//! round 1   check_begin      1 version and sizes
//!                            2 endorsement key: exact template, a certificate for it, path to a trusted root
//!                            3 attestation key: exact public area; its name is computed here
//!                            4 request: signed by its key, which is the node key; certified by the
//!                              attestation key for exactly this request
//!           (admission is the caller's: who may join, with which token)
//!           make_credential  5 a secret that only this TPM opens, and only for this attestation key
//! round 2   join::proof_is_valid
//!           check_quote      6 fresh quote over exactly the wanted PCRs; the event log replays to it
//! ```
//! Why that is enough: only the TPM with the endorsement key *and* the named attestation key opens the secret;
//! the attestation key vouches for the node key and the request; the quote's extra data ties it to this join;
//! the proof over the transcript stops splicing two joins.

mod attest;
mod credential;
mod csr;
mod der;
mod ek_public;
mod endorsement;
pub mod event_log;
mod keys;
mod quote;

use ironwright_proto::{
    Message,
    ids::Digest,
    wire::{JoinBegin, JoinFinish},
};
use rand::{CryptoRng, RngCore};
use serde::{Deserialize, Serialize};

#[cfg(feature = "device")]
pub(crate) use self::endorsement::check_certificate_fits;
pub(crate) use self::keys::CheckedKey;
pub use self::{
    attest::{AttestError, CertifyError},
    credential::CredentialError,
    csr::{CheckedCsr, CsrError},
    der::DerError,
    ek_public::{EkPublic, NotAKey},
    endorsement::{EkError, EkRoots, EkRootsError, TpmModel},
    quote::{Attested, PCR_COUNT, QuoteError},
};
use crate::join::Secret;
pub use crate::structures::{Clock, StructureError};

/// Longest first-round message, in bytes.
pub const MAX_BEGIN: usize = 64 << 10;
/// The only version of the join.
const VERSION: u32 = 1;
const NONCE_BYTES: usize = 32;

/// Why a join is refused.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// Longer than is read.
    #[error("the first round has {0} bytes; at most {MAX_BEGIN} are read")]
    TooLarge(usize),
    /// Of a newer peer.
    #[error("the join has version {0}; only {VERSION} is spoken here")]
    Version(u32),
    /// A field of fixed length.
    #[error("the agent's nonce has {0} bytes instead of {NONCE_BYTES}")]
    Nonce(usize),
    /// The endorsement key.
    #[error("checking the endorsement key")]
    Endorsement(#[from] EkError),
    /// The attestation key.
    #[error("checking the attestation key")]
    AttestationKey(#[source] StructureError),
    /// The node key.
    #[error("checking the node key")]
    NodeKey(#[source] StructureError),
    /// The certificate request.
    #[error("checking the certificate request")]
    Csr(#[from] CsrError),
    /// The attestation key's statement on the node key.
    #[error("checking what the attestation key certifies")]
    Certify(#[from] CertifyError),
    /// The secret.
    #[error("making a credential")]
    Credential(#[from] CredentialError),
    /// The quote.
    #[error("checking the state of the machine")]
    Quote(#[from] QuoteError),
}

impl VerifyError {
    /// The stable code that the peer may know; the rest is for the audit log.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Endorsement(_) | Self::Credential(_) => "ek_untrusted",
            Self::Certify(_) | Self::Quote(_) => "proof_invalid",
            _ => "malformed",
        }
    }
}

/// What the first round has shown; control keeps it until the second.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckedBegin {
    /// The endorsement key.
    pub ek: EkPublic,
    /// SHA-256 of the endorsement key ([`EkPublic::fingerprint`]): which TPM this is.
    pub ek_fingerprint: Digest,
    /// What the manufacturer says of the TPM.
    pub model: TpmModel,
    /// The attestation key's `TPMT_PUBLIC`.
    #[serde(with = "hex::serde")]
    pub ak_pub: Vec<u8>,
    /// The attestation key's TPM name, computed from `ak_pub`.
    #[serde(with = "hex::serde")]
    pub ak_name: Vec<u8>,
    /// The node key's TPM name.
    #[serde(with = "hex::serde")]
    pub node_name: Vec<u8>,
    /// The node key as a DER `SubjectPublicKeyInfo`.
    #[serde(with = "hex::serde")]
    pub node_spki_der: Vec<u8>,
    /// SHA-256 of the certificate request.
    #[serde(with = "hex::serde")]
    pub csr_sha256: [u8; 32],
}

/// Checks the first round of a join, steps 1 to 4. `now_unix_s` is for the validity of certificates.
pub fn check_begin(begin: &JoinBegin, roots: &EkRoots, now_unix_s: i64) -> Result<CheckedBegin, VerifyError> {
    let size = begin.encoded_len();
    if size > MAX_BEGIN {
        return Err(VerifyError::TooLarge(size));
    }
    if begin.version != VERSION {
        return Err(VerifyError::Version(begin.version));
    }
    if begin.agent_nonce.len() != NONCE_BYTES {
        return Err(VerifyError::Nonce(begin.agent_nonce.len()));
    }

    let ek = EkPublic::from_public_area(&begin.ek_pub).map_err(EkError::Template)?;
    let ek_fingerprint = ek.fingerprint().map_err(EkError::Key)?;
    let model = endorsement::check(&ek, &begin.ek_certs, &begin.ek_ca_chain, roots, now_unix_s)?;

    let ak = CheckedKey::attestation(&begin.ak_pub).map_err(VerifyError::AttestationKey)?;
    let node = CheckedKey::node(&begin.node_pub).map_err(VerifyError::NodeKey)?;
    let csr = csr::check(&begin.csr_der)?;
    let node_spki_der = node.spki_der();
    if csr.spki_der != node_spki_der {
        return Err(CsrError::OtherKey.into());
    }
    attest::check_certify(&begin.certify_attest, &begin.certify_sig, &ak.key, &node.name, &csr.sha256)?;

    Ok(CheckedBegin {
        ek,
        ek_fingerprint,
        model,
        ak_pub: begin.ak_pub.clone(),
        ak_name: ak.name,
        node_name: node.name,
        node_spki_der,
        csr_sha256: csr.sha256,
    })
}

/// Step 5: `TPM2_MakeCredential` in software. Returns the credential blob and the encrypted secret: the bodies
/// of `TPM2B_ID_OBJECT` and `TPM2B_ENCRYPTED_SECRET`.
pub fn make_credential(
    ek: &EkPublic,
    ak_name: &[u8],
    secret: &Secret,
    rng: &mut (impl RngCore + CryptoRng),
) -> Result<(Vec<u8>, Vec<u8>), VerifyError> {
    Ok(credential::make(ek, ak_name, secret, rng)?)
}

/// Step 6: checks the quote of the second round, over the SHA-256 bank's PCRs in `mask` (bit n is PCR n).
/// `extra` is [`crate::join::quote_extra`] of what the first round stored.
pub fn check_quote(
    ak_pub: &[u8],
    extra: &[u8; 32],
    mask: u32,
    finish: &JoinFinish,
) -> Result<Attested, VerifyError> {
    Ok(quote::check(ak_pub, extra, mask, finish)?)
}

/// Checks a certificate request on its own, as token joins and renewals send it.
pub fn check_csr(csr_der: &[u8]) -> Result<CheckedCsr, VerifyError> {
    Ok(csr::check(csr_der)?)
}

#[cfg(test)]
mod tests;
