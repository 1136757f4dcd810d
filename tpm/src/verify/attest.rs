//! What a TPM says under its attestation key: `TPMS_ATTEST` (Part 2, 10.12) and its signature.

use p256::ecdsa::{VerifyingKey, signature::Verifier};

use crate::structures::{Clock, Reader, StructureError, ecdsa_signature};

/// `TPM_GENERATED_VALUE`: "\xffTCG". A restricted key signs nothing else that begins so.
const MAGIC: u32 = 0xff54_4347;

/// Largest `TPM2B_NAME` and `TPM2B_DATA` of a TPM with digests of up to 64 bytes.
const MAX_NAME: usize = 66;

/// `TPM_ST` of the attestations that a join has (Part 2, 6.9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Certify = 0x8017,
    Quote = 0x8018,
}

impl Kind {
    fn what(self) -> &'static str {
        match self {
            Self::Certify => "the certification of the node key",
            Self::Quote => "the quote",
        }
    }
}

/// Why an attestation is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AttestError {
    /// Not by this attestation key, or not over these bytes.
    #[error("the signature is not by the attestation key")]
    Signature,
    /// Not made by a TPM, or another kind of attestation.
    #[error("reading the attestation")]
    Structure(#[from] StructureError),
    /// Made for another join, another request or at another time.
    #[error("the attestation is not for this join: its extra data differs")]
    ExtraData,
}

/// Checks the signature over the raw bytes, the kind and the extra data. Returns clock and the reader, which
/// stands at the part that only this kind has.
pub(super) fn open<'a>(
    kind: Kind,
    attest: &'a [u8],
    signature: &[u8],
    ak: &VerifyingKey,
    extra: &[u8; 32],
) -> Result<(Clock, Reader<'a>), AttestError> {
    let signature = ecdsa_signature(signature, "the attestation's signature")?;
    ak.verify(attest, &signature).map_err(|_| AttestError::Signature)?;

    let mut reader = Reader::new(attest, kind.what());
    let magic = reader.u32("magic")?;
    reader.expect("magic", magic, MAGIC)?;
    let found = reader.u16("type")?;
    reader.expect("type", found, kind as u16)?;
    reader.sized(MAX_NAME, "qualifiedSigner")?;
    if reader.sized(MAX_NAME, "extraData")? != extra {
        return Err(AttestError::ExtraData);
    }
    let clock = Clock::read(&mut reader)?;
    Ok((clock, reader))
}

/// Why the certification of a key is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CertifyError {
    /// What every attestation must fulfil.
    #[error("checking the certification of the node key")]
    Attest(#[from] AttestError),
    /// A true statement about another key.
    #[error("the attestation key certified another key than the node key")]
    OtherKey,
}

/// Checks that the attestation key certified the key named `node_name`, for the request with this digest.
pub(super) fn check_certify(
    attest: &[u8],
    signature: &[u8],
    ak: &VerifyingKey,
    node_name: &[u8],
    csr_sha256: &[u8; 32],
) -> Result<(), CertifyError> {
    let (_, mut reader) = open(Kind::Certify, attest, signature, ak, csr_sha256)?;
    let mut names = || {
        let name = reader.sized(MAX_NAME, "name")?;
        reader.sized(MAX_NAME, "qualifiedName")?;
        Ok::<_, StructureError>(name)
    };
    let certified = names().map_err(AttestError::from)?;
    reader.finish().map_err(AttestError::from)?;
    if certified == node_name { Ok(()) } else { Err(CertifyError::OtherKey) }
}
