//! For simulations and tests of other crates. Whoever has the store could write all this themselves.

use std::collections::BTreeMap;

use ironwright_proto::kinds::Role;
use rand::{CryptoRng, RngCore};

use crate::{
    error::Error,
    nodes::{self, Joined},
    store::Store,
    tx::{Seed, Tx},
};

/// Has the next session of a node get the epoch that its first one had: a mistake for simulations to find.
pub fn forget_epoch(store: &impl Store, node: &str) -> Result<(), Error> {
    store.write(|txn| {
        let mut tx = Tx::new(txn, 0, Seed::NONE);
        let Some(mut record) = nodes::get(tx.txn, node)? else { return Ok(()) };
        record.node.session_epoch = 0;
        nodes::put(&mut tx, &record)
    })
}

/// Makes a node without a machine and without any proof, as if it had joined with this key. Gives its id.
pub fn join_unproven(
    store: &impl Store,
    role: Role,
    spki_der: &[u8],
    now_ms: i64,
    rng: &mut (impl RngCore + CryptoRng),
) -> Result<String, Error> {
    let seed = Seed::draw(rng);
    store.write(|txn| {
        let joined = Joined {
            role,
            machine: None,
            site: None,
            spki_der: spki_der.to_owned(),
            ek_fingerprint: None,
            pcrs: BTreeMap::new(),
        };
        nodes::join(&mut Tx::new(txn, now_ms, seed), joined)
    })
}
