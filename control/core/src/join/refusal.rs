//! Refusals: a short code for the peer, the full reason for the audit log.

use crate::{error::Error, store::StoreError};

/// The stable codes; what a refused peer may know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RefusalCode {
    /// No machine of that id and MAC.
    UnknownMachine,
    /// A first join without a token.
    TokenMissing,
    /// A token that control never gave, or has replaced.
    TokenUnknown,
    /// A token that was used.
    TokenUsed,
    /// A token that is too old.
    TokenExpired,
    /// A token for another machine, or another role of this one.
    TokenOfOtherMachine,
    /// No chain from the EK certificate to a trusted root.
    EkUntrusted,
    /// Another TPM behind a known machine.
    EkMismatch,
    /// This machine has to prove itself by its TPM.
    TpmRequired,
    /// No assertion of the machine's site, or not a valid one.
    SiteAssertionInvalid,
    /// The assertion was made under a lease that is not current.
    StaleLease,
    /// A proof, quote or certification that does not hold.
    ProofInvalid,
    /// Not the message that it should be.
    Malformed,
    /// Too many attempts; try later.
    RateLimited,
}

impl RefusalCode {
    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UnknownMachine => "unknown_machine",
            Self::TokenMissing => "token_missing",
            Self::TokenUnknown => "token_unknown",
            Self::TokenUsed => "token_used",
            Self::TokenExpired => "token_expired",
            Self::TokenOfOtherMachine => "token_of_other_machine",
            Self::EkUntrusted => "ek_untrusted",
            Self::EkMismatch => "ek_mismatch",
            Self::TpmRequired => "tpm_required",
            Self::SiteAssertionInvalid => "site_assertion_invalid",
            Self::StaleLease => "stale_lease",
            Self::ProofInvalid => "proof_invalid",
            Self::Malformed => "malformed",
            Self::RateLimited => "rate_limited",
        }
    }
}

/// A join that policy refuses. The peer gets the code only; `reason` is for the audit log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("join refused: {}: {reason}", code.as_str())]
pub struct Refusal {
    /// What the peer may know.
    pub code: RefusalCode,
    /// What exactly is wrong.
    pub reason: String,
}

impl Refusal {
    pub(crate) fn new(code: RefusalCode, reason: impl Into<String>) -> Self {
        Self { code, reason: reason.into() }
    }
}

/// Why no certificate is given.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// Policy: gRPC `PERMISSION_DENIED` with the code as its message.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// An error of control's own: gRPC `INTERNAL` without particulars.
    #[error(transparent)]
    Internal(#[from] Error),
}

impl From<StoreError> for JoinError {
    fn from(error: StoreError) -> Self {
        Self::Internal(error.into())
    }
}
