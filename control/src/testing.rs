//! For measurements: nodes that have joined without a join. Whoever has control's folder could make them by hand.

use std::path::Path;

use ironwright_control_core::{Error, store::StoreError, testing::join_unproven};
use ironwright_proto::{kinds::Role, wire::JoinGrant};
use rand::rngs::OsRng;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData};
use time::OffsetDateTime;

use crate::{CaError, ca::Authority, clock::unix_ms, init::STORE_FILE, store::RedbStore};

/// A node, its key, and what a join would have given it.
pub struct JoinedNode {
    /// PKCS#8 in PEM.
    pub key_pem: String,
    /// Certificates, and where to go with them.
    pub grant: JoinGrant,
}

/// Why there are no nodes.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// Keys and certificates.
    #[error(transparent)]
    Ca(#[from] CaError),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What is in it.
    #[error("writing a node to the store")]
    Node(#[from] Error),
    /// A node's key.
    #[error("making a node's key")]
    Key(#[from] rcgen::Error),
}

/// Makes nodes of role `node` in a control folder that no process uses. Their gateway is at `gateway_url`.
pub fn join_fleet(dir: &Path, count: usize, gateway_url: &str) -> Result<Vec<JoinedNode>, FleetError> {
    let store = RedbStore::open(&dir.join(STORE_FILE))?;
    let ca = Authority::load(dir)?;
    store.defer();
    let mut fleet = Vec::with_capacity(count);
    for _ in 0..count {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let spki_der = key.subject_public_key_info();
        let node_id = join_unproven(&store, Role::Node, &spki_der, unix_ms(), &mut OsRng)?;
        let leaf = ca.issue_node(&node_id, &spki_der, OffsetDateTime::now_utc())?;
        let chain = vec![leaf.to_vec(), ca.certificate().to_vec()];
        let grant = JoinGrant { node_id, chain, gateway_url: gateway_url.to_owned() };
        fleet.push(JoinedNode { key_pem: key.serialize_pem(), grant });
    }
    store.sync()?;
    Ok(fleet)
}
