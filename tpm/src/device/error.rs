//! What can go wrong between us and the TPM.

use tss_esapi::{Error as TssError, constants::response_code::Tss2ResponseCodeKind};

use crate::verify::EkError;

/// Why the TPM could not be used.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// Forms that libtss2 would accept, but read as something else, are refused here.
    #[error(
        "`{0}` names no TPM: use device:<path> (device:/dev/tpmrm0) or swtpm:host=<address>,port=<number>"
    )]
    Tcti(String),
    /// A command failed.
    #[error("the TPM failed at {doing}")]
    Tpm {
        /// What was being done.
        doing: &'static str,
        /// The TPM's answer.
        #[source]
        source: TssError,
    },
    /// The TPM answered something that it never should.
    #[error("the TPM gave an unusable answer at {0}")]
    Answer(&'static str),
    /// The certificate in the TPM is not for the key that the TPM makes: another TPM answered, or its
    /// endorsement seed was changed.
    #[error("the endorsement certificate in the TPM does not fit its endorsement key")]
    EndorsementCertificate(#[source] EkError),
    /// The node key's blobs were made by another TPM, or this one was cleared since.
    #[error("the stored node key does not belong to this TPM; it may have been cleared")]
    ForeignNodeKey,
    /// A challenge is only answered while a join waits for it, and only once.
    #[error("there is no join in progress that waits for this step")]
    NoJoin,
    /// The credential was made for another TPM or another attestation key, or was changed on its way.
    #[error("the credential is not for this TPM and its attestation key")]
    ForeignCredential,
    /// The certificate request could not be built.
    #[error("building the certificate request")]
    Csr(#[source] rcgen::Error),
    /// The mask selects no PCR or one that does not exist.
    #[error("the PCR mask {0:#x} selects none, or more than PCR 0 to 23")]
    Mask(u32),
    /// Something kept extending PCRs.
    #[error("the PCRs changed during each of {0} quotes")]
    PcrsChanging(u32),
}

/// The kind of a TPM's answer; `None` for errors of the library around it.
pub(super) fn kind(error: TssError) -> Option<Tss2ResponseCodeKind> {
    match error {
        TssError::Tss2Error(code) => code.kind(),
        TssError::WrapperError(_) => None,
    }
}

/// For answers that no TPM gives, inside closures that speak the library's errors.
pub(super) const UNUSABLE: TssError = TssError::WrapperError(tss_esapi::WrapperErrorKind::WrongValueFromTpm);
