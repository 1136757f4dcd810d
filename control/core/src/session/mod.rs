//! Sessions of agents: one for each node, with an epoch that grows and fences the older one.

mod events;
mod hello;
mod live;
mod lived;

pub use events::{EVENTS_PER_NODE_AND_MINUTE, MAX_EVENT_JSON};
pub use hello::MAX_LISTED;
pub use live::{HEARTBEAT_INTERVAL_MS, PING_AFTER_MS, SILENCE_LIMIT_MS};

pub(crate) use events::take as take_event;
pub(crate) use hello::{greet, renew_lease};
pub(crate) use live::Sessions;

use ironwright_proto::wire;

use crate::output::Output;

/// Who the TLS layer says is at the other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Node id: the CN of the verified certificate.
    pub node_id: String,
    /// SubjectPublicKeyInfo DER of the verified certificate.
    pub spki_der: Vec<u8>,
}

/// Answer to a Hello.
#[derive(Debug, Clone, PartialEq)]
pub enum Opened {
    /// The session is open. The first frame of the output is its Welcome.
    Welcome {
        /// Epoch of the session, to be given with all its frames.
        epoch: u64,
        /// What to send and which older session to close.
        output: Output,
    },
    /// To be sent as the only frame; then the stream ends.
    Rejected(wire::Rejected),
}
