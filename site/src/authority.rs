//! What a site has from control: the lease, a key that control certified, ears for events, and images.

use std::{io, pin::Pin, sync::Arc};

use futures::future::BoxFuture;
use ironwright_agent::link::HeldLease;
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
};

/// Signs as the site's node.
pub trait Signer: Send + Sync {
    /// The node id, and an ECDSA P-256 SHA-256 signature of `message` in DER. May take milliseconds.
    fn sign(&self, message: &[u8]) -> anyhow::Result<(String, Vec<u8>)>;
}

/// Takes events for control's log.
pub trait Report: Send + Sync {
    /// Raises an event. Never blocks.
    fn event(&self, kind: &'static str, json: Value);
}

/// A byte stream.
pub trait Stream: AsyncRead + AsyncWrite + Send {}
impl<T: AsyncRead + AsyncWrite + Send> Stream for T {}

/// A fresh HTTP/1.1 connection.
pub struct Connection {
    /// TCP, with or without TLS.
    pub stream: Pin<Box<dyn Stream>>,
    /// The `Host` to ask for.
    pub host: String,
}

/// Reaches whoever has the blobs that machines need: control's gateway.
pub trait Upstream: Send + Sync {
    /// Opens a connection.
    fn connect(&self) -> BoxFuture<'_, io::Result<Connection>>;
}

/// All of it.
#[derive(Clone)]
pub struct Authority {
    /// The newest lease that the session heard of.
    pub lease: watch::Receiver<Option<HeldLease>>,
    /// Signs what the site says of a machine.
    pub signer: Arc<dyn Signer>,
    /// Where events go.
    pub report: Arc<dyn Report>,
}
