//! The node's own key: made in the TPM, and usable only there.

use p256::ecdsa::Signature as EcdsaSignature;
use rcgen::{PKCS_ECDSA_P256_SHA256, PublicKeyData, SignatureAlgorithm, SigningKey};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tss_esapi::{
    constants::{
        response_code::Tss2ResponseCodeKind,
        tss::{TPM2_RH_NULL, TPM2_ST_HASHCHECK},
    },
    interface_types::session_handles::AuthSession,
    structures::{Digest, Signature, SignatureScheme},
    tss2_esys::TPMT_TK_HASHCHECK,
};

use super::{
    connection::Connection,
    error::{DeviceError, kind},
    objects,
};
use crate::{templates::NODE_KEY, verify::CheckedKey};

/// A node key at rest. `private` is encrypted by the TPM that made it and useless without it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeKeyBlobs {
    /// `TPMT_PUBLIC`.
    #[serde(with = "hex::serde")]
    pub public: Vec<u8>,
    /// `TPM2B_PRIVATE` body.
    #[serde(with = "hex::serde")]
    pub private: Vec<u8>,
}

impl std::fmt::Debug for NodeKeyBlobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeKeyBlobs").field("public", &hex::encode(&self.public)).finish_non_exhaustive()
    }
}

/// A key in the TPM. Each signature loads it, signs and flushes it again, so it occupies no slot between.
pub struct NodeKey {
    connection: Connection,
    blobs: NodeKeyBlobs,
    /// Uncompressed point (SEC 1).
    point: Vec<u8>,
    spki_der: Vec<u8>,
}

impl NodeKey {
    /// Makes a new key.
    pub(super) fn create(connection: &Connection) -> Result<Self, DeviceError> {
        let blobs = connection.run("making the node key", |context| objects::create(context, &NODE_KEY))?;
        Self::new(connection, blobs)
    }

    /// Takes a key that this TPM made before, and loads it once to see that.
    pub(super) fn open(connection: &Connection, blobs: NodeKeyBlobs) -> Result<Self, DeviceError> {
        let key = Self::new(connection, blobs)?;
        let load = connection.run("loading the stored node key", |context| {
            objects::with_created(context, &key.blobs, |_, _| Ok(()))
        });
        load.map_err(foreign)?;
        Ok(key)
    }

    fn new(connection: &Connection, blobs: NodeKeyBlobs) -> Result<Self, DeviceError> {
        let checked = CheckedKey::node(&blobs.public).map_err(|_| DeviceError::ForeignNodeKey)?;
        let spki_der = checked.spki_der();
        let point = checked.key.to_encoded_point(false).as_bytes().to_vec();
        Ok(Self { connection: connection.clone(), blobs, point, spki_der })
    }

    /// ECDSA P-256 with SHA-256 over `message`; DER (RFC 3279).
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, DeviceError> {
        let digest = Sha256::digest(message);
        let signature = self.connection.run("signing with the node key", |context| {
            let digest = Digest::try_from(digest.as_slice())?;
            // The key is not restricted, so it needs no proof of who hashed.
            let ticket =
                TPMT_TK_HASHCHECK { tag: TPM2_ST_HASHCHECK, hierarchy: TPM2_RH_NULL, ..Default::default() };
            let ticket = ticket.try_into()?;
            objects::with_created(context, &self.blobs, |context, key| {
                context.execute_with_session(Some(AuthSession::Password), |context| {
                    context.sign(key, digest, SignatureScheme::Null, ticket)
                })
            })
        })?;
        to_der(&signature).ok_or(DeviceError::Answer("signing with the node key"))
    }

    /// The public key as a DER `SubjectPublicKeyInfo` (RFC 5280).
    pub fn spki_der(&self) -> &[u8] {
        &self.spki_der
    }

    /// The key as it can be stored and given to [`super::Tpm::begin_join_with`] later.
    pub fn blobs(&self) -> &NodeKeyBlobs {
        &self.blobs
    }
}

impl std::fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeKey").field("blobs", &self.blobs).finish_non_exhaustive()
    }
}

impl PublicKeyData for NodeKey {
    fn der_bytes(&self) -> &[u8] {
        &self.point
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

impl SigningKey for NodeKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        Self::sign(self, message).map_err(|_| rcgen::Error::RemoteKeyError)
    }
}

/// The TPM refuses to load what it did not make.
fn foreign(error: DeviceError) -> DeviceError {
    match error {
        DeviceError::Tpm { source, .. } if kind(source) == Some(Tss2ResponseCodeKind::Integrity) => {
            DeviceError::ForeignNodeKey
        }
        other => other,
    }
}

fn to_der(signature: &Signature) -> Option<Vec<u8>> {
    let Signature::EcDsa(parts) = signature else { return None };
    let scalar = |bytes: &[u8]| {
        let mut out = [0; 32];
        out.get_mut(32usize.checked_sub(bytes.len())?..)?.copy_from_slice(bytes);
        Some(out)
    };
    let signature =
        EcdsaSignature::from_scalars(scalar(parts.signature_r())?, scalar(parts.signature_s())?).ok()?;
    Some(signature.to_der().as_bytes().to_vec())
}
