//! The join policy: who becomes a node.

mod pending;
mod policy;
mod refusal;
mod rounds;
pub(crate) mod token;

pub use pending::PENDING_TTL_MS;
pub use policy::ASSERTION_SKEW_MS;
pub use refusal::{JoinError, Refusal, RefusalCode};
pub use rounds::PCR_MASK;

use ironwright_proto::{ids::Name, kinds::Role};

pub(crate) use rounds::{challenge, check_begin, decode_begin, finish, renew, with_token};

/// Attempts to join that one source address has in a minute, in all rounds together.
pub const JOINS_PER_SOURCE_AND_MINUTE: u32 = 120;
/// First rounds that one TPM has in a minute.
pub const JOINS_PER_EK_AND_MINUTE: u32 = 10;
/// Refusals that are written to the audit log in a minute. Beyond it they are refused all the same.
pub const REFUSALS_LOGGED_PER_MINUTE: u32 = 300;

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
