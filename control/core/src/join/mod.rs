//! The join policy: who becomes a node.

mod refusal;

pub use refusal::{JoinError, Refusal, RefusalCode};

use ironwright_proto::{ids::Name, kinds::Role};

/// A right to a certificate. Everything in the certificate comes from here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Id of the node: CN, and URI SAN `ironwright:node/<id>`.
    pub node_id: String,
    /// SubjectPublicKeyInfo (RFC 5280 §4.1.2.7) of the node's key.
    pub spki_der: Vec<u8>,
    /// Role that it joined with.
    pub role: Role,
    /// Machine of the node.
    pub machine: Option<Name>,
    /// Site of a site agent.
    pub site: Option<Name>,
}
