//! Bearer tokens: 256 random bits, stored as their SHA-256.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use rand::{CryptoRng, RngCore};
use sha2::{Digest, Sha256};

/// A new token. With this much entropy a plain hash is as good as a slow one.
pub(crate) fn new_token(prefix: &str, rng: &mut (impl RngCore + CryptoRng)) -> String {
    let mut bytes = [0; 32];
    rng.fill_bytes(&mut bytes);
    format!("{prefix}{}", URL_SAFE_NO_PAD.encode(bytes))
}

/// What is stored of a token.
pub(crate) fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}
