//! The formulas that both sides of a join compute: over the two rounds' bytes, and over the quote's context.

use hmac::{Hmac, Mac};
use rand::{CryptoRng, RngCore};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Length of a join's secret in bytes: what the smallest endorsement key profile (SHA-256) can carry.
pub const SECRET_BYTES: usize = 32;

/// The secret of one join, which only the TPM with the right endorsement *and* attestation key can read.
///
/// Wiped when dropped; never printed. It can be stored, since control keeps it between the two rounds.
#[derive(Clone, Zeroize, ZeroizeOnDrop, Serialize, Deserialize)]
pub struct Secret(#[serde(with = "hex::serde")] [u8; SECRET_BYTES]);

impl Secret {
    /// A fresh secret.
    pub fn random(rng: &mut (impl RngCore + CryptoRng)) -> Self {
        let mut bytes = [0; SECRET_BYTES];
        rng.fill_bytes(&mut bytes);
        Self(bytes)
    }

    /// Takes the bytes that a TPM gave; `None` where they are not [`SECRET_BYTES`] long.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// The bytes themselves.
    pub fn as_bytes(&self) -> &[u8; SECRET_BYTES] {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// SHA-256 over the exact bytes of the first round: request, then response.
pub fn transcript(round1_request: &[u8], round1_response: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(round1_request).chain_update(round1_response).finalize().into()
}

fn proof_mac(secret: &Secret, transcript: &[u8; 32]) -> Hmac<Sha256> {
    let mac =
        <Hmac<Sha256> as Mac>::new_from_slice(secret.as_bytes()).expect("HMAC takes a key of any length");
    mac.chain_update(b"join/v1").chain_update(transcript)
}

/// What the machine answers in the second round: HMAC-SHA256(secret, "join/v1" ‖ transcript). The
/// transcript is in it so that halves of two joins cannot be spliced.
pub fn proof(secret: &Secret, transcript: &[u8; 32]) -> [u8; 32] {
    proof_mac(secret, transcript).finalize().into_bytes().into()
}

/// Compares a received proof with the right one in constant time.
pub fn proof_is_valid(secret: &Secret, transcript: &[u8; 32], received: &[u8]) -> bool {
    proof_mac(secret, transcript).verify_slice(received).is_ok()
}

/// Qualifying data of a join's quote:
/// SHA-256("join-quote/v1" ‖ join id ‖ nonce ‖ AK name ‖ node key name ‖ SHA-256(CSR)).
///
/// Both names are TPM names, 2 + 32 bytes, so the parts need no separators.
pub fn quote_extra(
    join_id: &[u8; 16],
    nonce: &[u8; 32],
    ak_name: &[u8],
    node_name: &[u8],
    csr_sha256: &[u8; 32],
) -> [u8; 32] {
    Sha256::new()
        .chain_update(b"join-quote/v1")
        .chain_update(join_id)
        .chain_update(nonce)
        .chain_update(ak_name)
        .chain_update(node_name)
        .chain_update(csr_sha256)
        .finalize()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values were computed with Python's hashlib and hmac.
    #[test]
    fn formulas_match_an_independent_implementation() {
        let transcript = transcript(b"request", b"response");
        assert_eq!(
            hex::encode(transcript),
            "5a970de9a15cc56fdfdcb8a343e2e538a544ee6716872e916eb362b91a208057"
        );
        let secret = Secret::from_slice(&[0x11; 32]).unwrap();
        assert_eq!(
            hex::encode(proof(&secret, &transcript)),
            "c2022c719a57bf4649684085de7d93a3bca793dd94c7c52d4c89c682a4e5c5bf"
        );
        let extra = quote_extra(&[1; 16], &[2; 32], &[3; 34], &[4; 34], &[5; 32]);
        assert_eq!(hex::encode(extra), "87fab8c0fb4595f6502350f8c3feb7739478f14e08a6f6425de4a41b6539520d");
    }

    #[test]
    fn only_the_right_proof_is_valid() {
        let secret = Secret::from_slice(&[7; 32]).unwrap();
        let right = proof(&secret, &[1; 32]);
        assert!(proof_is_valid(&secret, &[1; 32], &right));
        assert!(!proof_is_valid(&secret, &[2; 32], &right), "another transcript");
        assert!(!proof_is_valid(&Secret::from_slice(&[8; 32]).unwrap(), &[1; 32], &right), "another secret");
        assert!(!proof_is_valid(&secret, &[1; 32], &right[..31]), "cut short");
        assert!(!proof_is_valid(&secret, &[1; 32], &[]), "none");
    }

    #[test]
    fn a_secret_is_stored_but_not_printed() {
        let secret = Secret::from_slice(&[0xab; 32]).unwrap();
        assert!(!format!("{secret:?}").contains("171") && !format!("{secret:?}").contains("ab"));
        let back: Secret = serde_json::from_str(&serde_json::to_string(&secret).unwrap()).unwrap();
        assert_eq!(back.as_bytes(), secret.as_bytes());
        assert!(Secret::from_slice(&[0; 31]).is_none());
    }
}
