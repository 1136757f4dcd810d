//! Endorsement keys: of the three supported profiles, as a public area and as a certificate's key.

use ironwright_proto::ids::Digest;
use p256::pkcs8::EncodePublicKey;
use rsa::{BigUint, RsaPublicKey, pkcs1::DecodeRsaPublicKey, traits::PublicKeyParts};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use x509_parser::{
    oid_registry::{
        OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY, OID_NIST_EC_P384, OID_PKCS1_RSAENCRYPTION, Oid, asn1_rs::oid,
    },
    x509::SubjectPublicKeyInfo,
};

use crate::{
    structures::{Reader, StructureError},
    templates::{EK_P256, EK_P384, EK_RSA_2048},
};

/// id-RSAES-OAEP (RFC 8017): some vendors name it in endorsement certificates instead of rsaEncryption.
const OID_RSAES_OAEP: Oid = oid!(1.2.840.113549.1.1.7);

/// The only exponent that the RSA profile has.
const RSA_EXPONENT: u32 = 65537;
const RSA_2048_BYTES: usize = 256;

/// A public endorsement key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EkPublic {
    /// RSA-2048 with exponent 65537 (profile L-1).
    Rsa2048 {
        /// 256 bytes, big-endian.
        #[serde(with = "hex::serde")]
        modulus: Vec<u8>,
    },
    /// ECC P-256 (profile L-2).
    P256 {
        /// Affine coordinate, big-endian.
        #[serde(with = "hex::serde")]
        x: [u8; 32],
        /// Affine coordinate, big-endian.
        #[serde(with = "hex::serde")]
        y: [u8; 32],
    },
    /// ECC P-384 (profile H-3).
    P384 {
        /// Affine coordinate, big-endian.
        #[serde(with = "hex::serde")]
        x: [u8; 48],
        /// Affine coordinate, big-endian.
        #[serde(with = "hex::serde")]
        y: [u8; 48],
    },
}

/// The numbers are no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the endorsement key is not a usable {0} key")]
pub struct NotAKey(pub(super) &'static str);

impl EkPublic {
    /// Reads a `TPMT_PUBLIC`, which must be exactly one of the three templates with its `unique` field filled.
    pub(super) fn from_public_area(public: &[u8]) -> Result<Self, StructureError> {
        if EK_P384.is_kind_of(public) {
            let (x, y) = point(EK_P384.unique(public)?)?;
            return Ok(Self::P384 { x, y });
        }
        if EK_P256.is_kind_of(public) {
            let (x, y) = point(EK_P256.unique(public)?)?;
            return Ok(Self::P256 { x, y });
        }
        let mut reader = EK_RSA_2048.unique(public)?;
        let modulus = reader.number::<RSA_2048_BYTES>("unique")?.to_vec();
        reader.finish()?;
        Ok(Self::Rsa2048 { modulus })
    }

    /// Reads a certificate's key; `None` where it is of no supported profile, or no key at all.
    pub(super) fn from_spki(spki: &SubjectPublicKeyInfo) -> Option<Self> {
        let algorithm = spki.algorithm.oid();
        let key = spki.subject_public_key.data.as_ref();
        if *algorithm == OID_PKCS1_RSAENCRYPTION || *algorithm == OID_RSAES_OAEP {
            let key = RsaPublicKey::from_pkcs1_der(key).ok()?;
            let fits = key.size() == RSA_2048_BYTES && *key.e() == BigUint::from(RSA_EXPONENT);
            return fits.then(|| Self::Rsa2048 { modulus: key.n().to_bytes_be() });
        }
        if *algorithm != OID_KEY_TYPE_EC_PUBLIC_KEY || key.first() != Some(&4) {
            return None;
        }
        let curve = spki.algorithm.parameters()?.as_oid().ok()?;
        let found = if curve == OID_EC_P256 {
            let (x, y) = key.get(1..)?.split_at_checked(32)?;
            Self::P256 { x: x.try_into().ok()?, y: y.try_into().ok()? }
        } else if curve == OID_NIST_EC_P384 {
            let (x, y) = key.get(1..)?.split_at_checked(48)?;
            Self::P384 { x: x.try_into().ok()?, y: y.try_into().ok()? }
        } else {
            return None;
        };
        Some(found)
    }

    /// SHA-256 of the key as a DER `SubjectPublicKeyInfo` (RFC 5280): the identity of the TPM.
    ///
    /// Of the key, not of its certificate, so that a TPM stays itself when its certificate is renewed, or
    /// when it comes padded differently.
    pub fn fingerprint(&self) -> Result<Digest, NotAKey> {
        let der = match self {
            Self::Rsa2048 { .. } => self.rsa()?.to_public_key_der(),
            Self::P256 { .. } => self.p256()?.to_public_key_der(),
            Self::P384 { .. } => self.p384()?.to_public_key_der(),
        };
        let der = der.map_err(|_| NotAKey("DER"))?;
        Ok(Digest(Sha256::digest(der.as_bytes()).into()))
    }

    pub(super) fn rsa(&self) -> Result<RsaPublicKey, NotAKey> {
        let bad = NotAKey("RSA-2048");
        let Self::Rsa2048 { modulus } = self else { return Err(bad) };
        let key = RsaPublicKey::new(BigUint::from_bytes_be(modulus), RSA_EXPONENT.into()).map_err(|_| bad)?;
        if key.size() == RSA_2048_BYTES { Ok(key) } else { Err(bad) }
    }

    /// The key, once its point is known to be on the curve.
    pub(super) fn p256(&self) -> Result<p256::PublicKey, NotAKey> {
        let bad = NotAKey("P-256");
        let Self::P256 { x, y } = self else { return Err(bad) };
        p256::PublicKey::from_sec1_bytes(&[&[4][..], x, y].concat()).map_err(|_| bad)
    }

    /// The key, once its point is known to be on the curve.
    pub(super) fn p384(&self) -> Result<p384::PublicKey, NotAKey> {
        let bad = NotAKey("P-384");
        let Self::P384 { x, y } = self else { return Err(bad) };
        p384::PublicKey::from_sec1_bytes(&[&[4][..], x, y].concat()).map_err(|_| bad)
    }
}

fn point<const N: usize>(mut reader: Reader) -> Result<([u8; N], [u8; N]), StructureError> {
    let x = reader.number("unique.x")?;
    let y = reader.number("unique.y")?;
    reader.finish()?;
    Ok((x, y))
}
