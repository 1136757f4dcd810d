//! The session with control's gateway.
//!
//! ```text
//!  Handle ◄── watch: connected, lease, welcome ──┐          ┌── executors
//!    └── events ──► Port ──► session task ◄─────►│ core │◄──┤
//!                              │     ▲           └──────┘   └── journal
//!                              ▼     │
//!                            link task: TLS, gRPC
//! ```

mod connection;
mod renew;
mod running;
mod session;

pub use connection::chain as error_chain;
pub use session::run;

use std::{path::PathBuf, time::Instant};

use ironwright_proto::{kinds::Role, wire};
use tokio::sync::watch;

use crate::{
    events::{self, EventSink, EventSource},
    journal::JournalError,
};

/// Why sessions ended for good.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The journal cannot be used, so nothing may be done any more.
    #[error("keeping the journal")]
    Journal(#[from] JournalError),
    /// Control does not want this identity any more; joining anew may help.
    #[error("the gateway rejected this node ({code}): {message}")]
    Rejected {
        /// `revoked` or `node_unknown`.
        code: String,
        /// For people.
        message: String,
    },
    /// Control was away for longer than the certificate lasted; only joining anew helps. The stored identity
    /// need not be forgotten: a join passes over it, and takes it again should only the clock have been off.
    #[error("the node certificate has expired")]
    Expired,
}

/// What a session needs to know besides the identity.
#[derive(Debug, Clone)]
pub struct AgentConfig {
    /// The agent's role.
    pub role: Role,
    /// The kernel's id of this boot; see [`boot_id`].
    pub boot_id: String,
    /// Role `site`: which one, and where it serves.
    pub site: Option<SiteAddress>,
    /// Where the journal is.
    pub journal: JournalPlace,
}

/// What control tells machines about a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteAddress {
    /// The site's name.
    pub name: String,
    /// Base URL of its boot HTTP, as machines reach it.
    pub url: String,
}

/// Where the journal is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JournalPlace {
    /// In memory: a restart is a lost journal.
    Memory,
    /// `journal.redb` in this folder.
    Dir(PathBuf),
}

/// A site's lease, as last heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldLease {
    /// Site, epoch and time to live.
    pub lease: wire::Lease,
    /// When the agent asked for it: the time to live counts from here.
    pub asked: Instant,
}

/// What the rest of an agent sees of its sessions. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Handle {
    /// Whether a session is open now.
    pub connected: watch::Receiver<bool>,
    /// The latest lease; `None` until one was given.
    pub lease: watch::Receiver<Option<HeldLease>>,
    /// The latest Welcome.
    pub welcome: watch::Receiver<Option<wire::Welcome>>,
    /// Where events go.
    pub events: EventSink,
}

/// The session's side of a [`Handle`]; outlives single calls of `run`.
#[derive(Debug)]
pub struct Port {
    pub(crate) connected: watch::Sender<bool>,
    pub(crate) lease: watch::Sender<Option<HeldLease>>,
    pub(crate) welcome: watch::Sender<Option<wire::Welcome>>,
    pub(crate) sink: EventSink,
    pub(crate) events: EventSource,
}

/// Makes both sides.
pub fn channel() -> (Handle, Port) {
    let (connected, connected_seen) = watch::channel(false);
    let (lease, lease_seen) = watch::channel(None);
    let (welcome, welcome_seen) = watch::channel(None);
    let (sink, events) = events::channel();
    let handle =
        Handle { connected: connected_seen, lease: lease_seen, welcome: welcome_seen, events: sink.clone() };
    (handle, Port { connected, lease, welcome, sink, events })
}

/// Reads the kernel's id of this boot.
pub fn boot_id() -> std::io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}
