//! Admin tokens.

use rand::{CryptoRng, RngCore};

use crate::{error::Error, store::Store};

/// Makes an admin token for a person, `iwa_…`; only its hash is stored.
pub fn add_token(
    store: &impl Store,
    name: &str,
    now_ms: i64,
    rng: &mut (impl RngCore + CryptoRng),
) -> Result<String, Error> {
    unimplemented!()
}
