//! The two other keys of a join: the attestation key and the node key.

use p256::{ecdsa::VerifyingKey, pkcs8::EncodePublicKey};

use crate::{
    structures::{StructureError, name_sha256},
    templates::{ATTESTATION_KEY, NODE_KEY, Template},
};

/// A P-256 key whose public area is exactly as it has to be.
pub(crate) struct CheckedKey {
    pub(crate) key: VerifyingKey,
    /// The TPM name, computed here: a name that was sent would prove nothing.
    pub(crate) name: Vec<u8>,
}

impl CheckedKey {
    /// Reads the public area of an attestation key.
    pub(crate) fn attestation(public: &[u8]) -> Result<Self, StructureError> {
        Self::read(&ATTESTATION_KEY, public)
    }

    /// Reads the public area of a node key.
    pub(crate) fn node(public: &[u8]) -> Result<Self, StructureError> {
        Self::read(&NODE_KEY, public)
    }

    fn read(template: &Template, public: &[u8]) -> Result<Self, StructureError> {
        let mut unique = template.unique(public)?;
        let x: [u8; 32] = unique.number("unique.x")?;
        let y: [u8; 32] = unique.number("unique.y")?;
        unique.finish()?;
        // Refuses points that are not on the curve.
        let key = VerifyingKey::from_sec1_bytes(&[&[4][..], &x, &y].concat())
            .map_err(|_| StructureError::Differs { what: template.what, field: "unique" })?;
        Ok(Self { key, name: name_sha256(public) })
    }

    /// The key as a DER `SubjectPublicKeyInfo` (RFC 5280).
    pub(crate) fn spki_der(&self) -> Vec<u8> {
        self.key.to_public_key_der().expect("a P-256 key has an encoding").into_vec()
    }
}
