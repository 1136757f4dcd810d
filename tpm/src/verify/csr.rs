//! Certificate requests (PKCS#10, RFC 2986): only the key counts, and that the sender has it.
//!
//! Subject and extensions are not read: control chooses everything that a certificate says.

use p256::{
    ecdsa::{Signature, VerifyingKey, signature::Verifier},
    pkcs8::DecodePublicKey,
};
use sha2::{Digest, Sha256};
use x509_parser::{
    certification_request::X509CertificationRequest, oid_registry::OID_SIG_ECDSA_WITH_SHA256,
    prelude::FromDer,
};

/// Requests with a P-256 key are about 250 bytes; a renewal nonce adds little.
const MAX_CSR: usize = 4096;

/// Why a certificate request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CsrError {
    /// More than any request needs.
    #[error("the certificate request has {0} bytes; at most {MAX_CSR} are read")]
    TooLarge(usize),
    /// Not PKCS#10, or followed by something.
    #[error("the certificate request is not PKCS#10")]
    NotPkcs10,
    /// Another kind of key.
    #[error("the certificate request is not for an ECDSA P-256 key")]
    NotP256,
    /// The sender does not have the key.
    #[error("the signature of the certificate request is not by its key")]
    Signature,
    /// For another key than the certified node key.
    #[error("the certificate request is not for the node key")]
    OtherKey,
}

/// A request whose sender has the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedCsr {
    /// The key, as a DER `SubjectPublicKeyInfo` (RFC 5280).
    pub spki_der: Vec<u8>,
    /// SHA-256 of the request's bytes.
    pub sha256: [u8; 32],
}

/// Checks that `csr_der` is one PKCS#10 request for a P-256 key, signed by that key with SHA-256.
pub(super) fn check(csr_der: &[u8]) -> Result<CheckedCsr, CsrError> {
    if csr_der.len() > MAX_CSR {
        return Err(CsrError::TooLarge(csr_der.len()));
    }
    let (behind, csr) = X509CertificationRequest::from_der(csr_der).map_err(|_| CsrError::NotPkcs10)?;
    if !behind.is_empty() {
        return Err(CsrError::NotPkcs10);
    }
    let spki_der = csr.certification_request_info.subject_pki.raw;
    let key = VerifyingKey::from_public_key_der(spki_der).map_err(|_| CsrError::NotP256)?;
    if *csr.signature_algorithm.oid() != OID_SIG_ECDSA_WITH_SHA256 {
        return Err(CsrError::Signature);
    }
    let signature = Signature::from_der(&csr.signature_value.data).map_err(|_| CsrError::Signature)?;
    key.verify(csr.certification_request_info.raw, &signature).map_err(|_| CsrError::Signature)?;
    Ok(CheckedCsr { spki_der: spki_der.to_vec(), sha256: Sha256::digest(csr_der).into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(algorithm: &'static rcgen::SignatureAlgorithm) -> Vec<u8> {
        let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
        rcgen::CertificateParams::default().serialize_request(&key).unwrap().der().to_vec()
    }

    #[test]
    fn a_request_signed_by_its_key_is_accepted() {
        let der = request(&rcgen::PKCS_ECDSA_P256_SHA256);
        let checked = check(&der).unwrap();
        assert_eq!(checked.sha256, <[u8; 32]>::from(Sha256::digest(&der)));
        // SubjectPublicKeyInfo of a P-256 key: 26 bytes of header, then the uncompressed point.
        assert_eq!(checked.spki_der.len(), 91);
        assert!(der.windows(91).any(|window| window == checked.spki_der));
    }

    #[test]
    fn each_fault_has_its_name() {
        let good = request(&rcgen::PKCS_ECDSA_P256_SHA256);
        let mut changed = good.clone();
        // The last byte is the signature's s, a low one of it.
        *changed.last_mut().unwrap() ^= 1;
        assert_eq!(check(&changed), Err(CsrError::Signature));
        assert_eq!(check(&[&good[..], &[0]].concat()), Err(CsrError::NotPkcs10));
        assert_eq!(check(&good[..good.len() - 1]), Err(CsrError::NotPkcs10));
        assert_eq!(check(&[]), Err(CsrError::NotPkcs10));
        assert_eq!(check(&request(&rcgen::PKCS_ECDSA_P384_SHA384)), Err(CsrError::NotP256));
        assert_eq!(check(&vec![0x30; MAX_CSR + 1]), Err(CsrError::TooLarge(MAX_CSR + 1)));
    }
}
