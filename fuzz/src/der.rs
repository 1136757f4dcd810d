//! Enough DER to put a signature below any bytes.

const BIT_STRING: u8 = 0x03;
/// `AlgorithmIdentifier` of ecdsa-with-SHA256 (RFC 5758 section 3.2).
const ECDSA_WITH_SHA256: &[u8] = &[0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];

use p256::ecdsa::{DerSignature, SigningKey, signature::Signer};

/// `SEQUENCE { signed, ecdsa-with-SHA256, signature }`: the outer form of certificates and of requests.
#[must_use]
pub fn signed(to_be_signed: &[u8], key: &SigningKey) -> Vec<u8> {
    let signature: DerSignature = key.sign(to_be_signed);
    let bits = tlv(BIT_STRING, &[&[0], signature.as_bytes()]);
    tlv(0x30, &[to_be_signed, ECDSA_WITH_SHA256, &bits])
}

/// The first value inside of a `SEQUENCE` with a length of two bytes, as a whole: what was signed.
#[must_use]
pub fn to_be_signed(signed: &[u8]) -> &[u8] {
    let inner = &signed[header_len(signed)..];
    let len = header_len(inner) + content_len(inner);
    &inner[..len]
}

fn header_len(der: &[u8]) -> usize {
    2 + if der[1] < 0x80 { 0 } else { usize::from(der[1] & 0x7f) }
}

fn content_len(der: &[u8]) -> usize {
    if der[1] < 0x80 {
        return usize::from(der[1]);
    }
    der[2..header_len(der)].iter().fold(0, |len, &byte| len << 8 | usize::from(byte))
}

fn tlv(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let len = u32::try_from(content.len()).unwrap_or(u32::MAX).to_be_bytes();
    let skip = len.iter().take_while(|&&byte| byte == 0).count().min(3);
    let mut out = vec![tag];
    if content.len() >= 0x80 {
        out.push(0x84 - u8::try_from(skip).unwrap_or(0));
    }
    out.extend_from_slice(&len[skip..]);
    out.extend(content);
    out
}
