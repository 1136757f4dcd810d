//! The TPM behind the seeds. Its keys are known, so a target can sign what it has changed, and the code behind
//! a good signature is reached.

use ironwright_proto::{
    Message,
    wire::{JoinBegin, JoinFinish},
};
use ironwright_tpm::verify::EkRoots;
use p256::ecdsa::{Signature, SigningKey, signature::Signer};

use crate::der;

/// Inside the validity of the seeds' certificates: 2025-06-01.
pub const NOW_S: i64 = 1_748_736_000;
/// `extraData` of the seed quote.
pub const QUOTE_EXTRA: [u8; 32] = [0xee; 32];
/// PCRs of the seed quote.
pub const QUOTE_MASK: u32 = 0xff;

const BEGIN: &[u8] = include_bytes!("../seeds/join_begin/honest");
const FINISH: &[u8] = include_bytes!("../seeds/quote/honest");
const MAKER: &[u8] = include_bytes!("../seeds/maker.der");

fn key(scalar: [u8; 32]) -> SigningKey {
    SigningKey::from_slice(&scalar).expect("a scalar in range")
}

fn two_halves(low: u8) -> SigningKey {
    key(std::array::from_fn(|i| if i < 16 { 1 } else { low }))
}

/// Signs endorsement certificates.
#[must_use]
pub fn maker() -> SigningKey {
    key([0x77; 32])
}

/// The node key.
#[must_use]
pub fn node() -> SigningKey {
    two_halves(3)
}

/// The maker's certificate.
#[must_use]
pub fn maker_pem() -> String {
    use p256::pkcs8::der::pem::{LineEnding, encode_string};
    encode_string("CERTIFICATE", LineEnding::LF, MAKER).expect("DER can be written as PEM")
}

/// Roots that trust the maker.
#[must_use]
pub fn roots() -> EkRoots {
    EkRoots::from_pem(&maker_pem()).expect("the maker's certificate")
}

/// The first round of an honest machine.
#[must_use]
pub fn begin() -> JoinBegin {
    JoinBegin::decode(BEGIN).expect("the seed")
}

/// The second round of an honest machine.
#[must_use]
pub fn finish() -> JoinFinish {
    JoinFinish::decode(FINISH).expect("the seed")
}

/// A `TPMT_SIGNATURE` by the attestation key: `TPM_ALG_ECDSA`, SHA-256, then both numbers.
#[must_use]
pub fn attestation_signature(message: &[u8]) -> Vec<u8> {
    let signature: Signature = two_halves(2).sign(message);
    let (r, s) = signature.split_bytes();
    [&[0x00, 0x18, 0x00, 0x0b, 0, 32][..], &r, &[0, 32], &s].concat()
}

/// A certificate request by the node key over any `CertificationRequestInfo`.
#[must_use]
pub fn request(info: &[u8]) -> Vec<u8> {
    der::signed(info, &node())
}

/// An endorsement certificate by the maker over any `TBSCertificate`.
#[must_use]
pub fn certificate(tbs: &[u8]) -> Vec<u8> {
    der::signed(tbs, &maker())
}
