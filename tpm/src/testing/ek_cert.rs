//! Endorsement certificates of a manufacturer that exists only here.

use base64::{Engine, engine::general_purpose::STANDARD};
use p256::ecdsa::{DerSignature, SigningKey, signature::Signer};
use p256::pkcs8::EncodePublicKey;

use super::der::{GENERALIZED_TIME, INTEGER, OID, SET, attribute, bits, common_name, extension, seq, tlv};

/// 2025-06-01, inside the validity of every certificate here that is not made to be outside.
pub(crate) const NOW: i64 = 1_748_736_000;

const ECDSA_WITH_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
const ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1d, 0x11];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
const EK_CERTIFICATE: &[u8] = &[0x67, 0x81, 0x05, 0x08, 0x01];

/// `keyAgreement` and `keyEncipherment` as the content of the BIT STRING.
pub(crate) const KEY_AGREEMENT: [u8; 4] = [0x03, 0x02, 0x03, 0x08];
pub(crate) const KEY_ENCIPHERMENT: [u8; 4] = [0x03, 0x02, 0x05, 0x20];

/// A certificate before it is signed; every field can be made wrong.
#[derive(Clone)]
pub(crate) struct Spec {
    /// Content of the INTEGER.
    pub(crate) serial: Vec<u8>,
    pub(crate) issuer: Vec<u8>,
    pub(crate) subject: Vec<u8>,
    pub(crate) not_after: &'static str,
    pub(crate) spki: Vec<u8>,
    pub(crate) extensions: Vec<Vec<u8>>,
}

impl Spec {
    /// An endorsement certificate as the profile wants it: no subject, critical alternative name.
    pub(crate) fn ek(spki: Vec<u8>, key_usage: [u8; 4]) -> Self {
        Self {
            serial: vec![0x11],
            issuer: common_name("Maker"),
            subject: seq(&[]),
            not_after: "99991231235959Z",
            spki,
            extensions: vec![
                extension(KEY_USAGE, true, &key_usage),
                alternative_name(&three_rdns()),
                extension(BASIC_CONSTRAINTS, true, &seq(&[])),
                purpose(),
            ],
        }
    }

    /// A CA certificate.
    pub(crate) fn ca(subject: &str, issuer: &str, key: &SigningKey) -> Self {
        Self {
            serial: vec![0x01],
            issuer: common_name(issuer),
            subject: common_name(subject),
            not_after: "20491231235959Z",
            spki: spki(key),
            extensions: vec![extension(BASIC_CONSTRAINTS, true, &seq(&[&[0x01, 0x01, 0xff]]))],
        }
    }

    pub(crate) fn sign(&self, issuer: &SigningKey) -> Vec<u8> {
        let algorithm = seq(&[&tlv(OID, &[ECDSA_WITH_SHA256])]);
        let validity = seq(&[
            &tlv(GENERALIZED_TIME, &[b"20200101000000Z"]),
            &tlv(GENERALIZED_TIME, &[self.not_after.as_bytes()]),
        ]);
        let extensions: Vec<&[u8]> = self.extensions.iter().map(Vec::as_slice).collect();
        let tbs = seq(&[
            &[0xa0, 0x03, 0x02, 0x01, 0x02],
            &tlv(INTEGER, &[&self.serial]),
            &algorithm,
            &self.issuer,
            &validity,
            &self.subject,
            &self.spki,
            &tlv(0xa3, &[&seq(&extensions)]),
        ]);
        let signature: DerSignature = issuer.sign(&tbs);
        seq(&[&tbs, &algorithm, &bits(signature.as_bytes())])
    }
}

pub(crate) fn spki(key: &SigningKey) -> Vec<u8> {
    key.verifying_key().to_public_key_der().unwrap().into_vec()
}

/// `SubjectPublicKeyInfo` of an RSA key with exponent 65537 under any algorithm (content of the OID).
pub(crate) fn rsa_spki(algorithm: &[u8], modulus: &[u8]) -> Vec<u8> {
    let key = seq(&[&tlv(INTEGER, &[&[0], modulus]), &tlv(INTEGER, &[&[1, 0, 1]])]);
    seq(&[&seq(&[&tlv(OID, &[algorithm]), &[0x05, 0x00]]), &bits(&key)])
}

fn model_attributes() -> [Vec<u8>; 3] {
    let oid = |last| [0x67, 0x81, 0x05, 0x02, last];
    [attribute(&oid(1), "id:4E544300"), attribute(&oid(2), "NPCT75x"), attribute(&oid(3), "id:00070002")]
}

/// The TPM's model as software TPMs write it.
fn three_rdns() -> Vec<u8> {
    let [maker, model, version] = model_attributes();
    seq(&[&tlv(SET, &[&maker]), &tlv(SET, &[&model]), &tlv(SET, &[&version])])
}

/// The TPM's model as Nuvoton writes it: one RDN, and its SET OF not in DER's order.
pub(crate) fn one_rdn_out_of_order() -> Vec<u8> {
    let [maker, model, version] = model_attributes();
    seq(&[&tlv(SET, &[&version, &maker, &model])])
}

/// A critical `subjectAltName` with a directory name alone.
pub(crate) fn alternative_name(name: &[u8]) -> Vec<u8> {
    extension(ALTERNATIVE_NAME, true, &seq(&[&tlv(0xa4, &[name])]))
}

pub(crate) fn ca_true() -> Vec<u8> {
    extension(BASIC_CONSTRAINTS, true, &seq(&[&[0x01, 0x01, 0xff]]))
}

/// `extKeyUsage` with tcg-kp-EKCertificate.
fn purpose() -> Vec<u8> {
    extension(EXTENDED_KEY_USAGE, false, &seq(&[&tlv(OID, &[EK_CERTIFICATE])]))
}

pub(crate) fn pem(der: &[u8]) -> String {
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", STANDARD.encode(der))
}
