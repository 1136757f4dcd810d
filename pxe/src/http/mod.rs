//! Boot HTTP: iPXE scripts, boot files and blobs, over HTTP/1.1 without TLS. What is served is checked by
//! digest or signature at the other end.
//!
//! | route | answer |
//! |---|---|
//! | GET `/boot/<mac>/ipxe` | a script by [`Boots`]: 200, 404 or 503; never HEAD, a script may spend a token |
//! | GET, HEAD `/blobs/sha256/<hex>` | a blob by [`Blobs`], with `Range` |
//! | GET, HEAD `/<name>` | a boot file |
//!
//! There are no redirects: firmware does not follow them (field report T5). `Content-Length` is always sent,
//! since iPXE shows progress by it and UEFI needs it.

mod answer;
mod clients;
pub mod range;
mod server;

use std::{fs::File, io};

use futures::future::BoxFuture;
use ironwright_proto::ids::{Digest, Mac};

pub use clients::MAX_PER_CLIENT;
pub use server::{MAX_CONNECTIONS, Server, ServerError};

/// Where blobs come from.
pub trait Blobs: Send + Sync {
    /// Opens a blob for reading, with its size; `None` for one that is not there.
    fn open(&self, digest: &Digest) -> io::Result<Option<(File, u64)>>;
}

/// Where scripts come from.
pub trait Boots: Send + Sync {
    /// The script for a machine. Asking may have effects (a token is handed out once), which are durable
    /// before the future ends.
    fn script(&self, mac: Mac) -> BoxFuture<'_, ScriptAnswer>;
}

/// Answer to a request for a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScriptAnswer {
    /// 200.
    Script(String),
    /// 404: no entry for this machine.
    Unknown,
    /// 503: there is an entry, but we may not serve it now.
    NotNow,
}
