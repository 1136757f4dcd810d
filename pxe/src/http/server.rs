//! The listener of boot HTTP.

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, info, warn};

use super::{
    Blobs, Boots,
    answer::{Content, answer},
};
use crate::files::Files;

/// Connections at one time; further ones wait in the listener's backlog.
pub const MAX_CONNECTIONS: usize = 512;
/// Longest request line and headers together.
const MAX_HEADER_BYTES: usize = 16 * 1024;
/// Most header fields of a request.
const MAX_HEADERS: usize = 64;
/// How long a client may take for its headers, and how long an idle connection is kept.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long sent bytes may stay unacknowledged, or a client may keep its window closed.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause after a failed accept, which mostly means that there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Why boot HTTP cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Mostly: the port is taken.
    #[error("cannot listen for boot HTTP on {addr}")]
    Bind {
        /// The address.
        addr: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}

/// A bound boot HTTP server.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    addr: SocketAddr,
}

impl Server {
    /// Binds; port 0 takes a free one.
    pub async fn bind(addr: SocketAddr) -> Result<Self, ServerError> {
        let failed = |source| ServerError::Bind { addr, source };
        let listener = TcpListener::bind(addr).await.map_err(failed)?;
        let addr = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, addr })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Serves until shutdown. Responses that are under way are cut: clients ask for the rest by `Range`.
    pub async fn run(
        self,
        files: Arc<Files>,
        blobs: Arc<dyn Blobs>,
        boots: Arc<dyn Boots>,
        shutdown: CancellationToken,
    ) {
        info!(addr = %self.addr, "boot HTTP is ready");
        let content = Arc::new(Content { files, blobs, boots });
        let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let connections = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                () = shutdown.cancelled() => break,
                accepted = async {
                    // The semaphore is never closed.
                    let permit = permits.clone().acquire_owned().await.ok();
                    (permit, self.listener.accept().await)
                } => accepted,
            };
            let (permit, stream) = match accepted {
                (Some(permit), Ok((stream, _))) => (permit, stream),
                (_, accepted) => {
                    warn!(error = ?accepted.err(), "cannot accept a boot HTTP connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let (content, shutdown) = (content.clone(), shutdown.clone());
            connections.spawn(async move {
                tokio::select! {
                    () = shutdown.cancelled() => {}
                    () = connection(stream, content) => {}
                }
                drop(permit);
            });
        }
        connections.close();
        connections.wait().await;
    }
}

async fn connection(stream: TcpStream, content: Arc<Content>) {
    let socket = socket2::SockRef::from(&stream);
    let _ = socket.set_tcp_user_timeout(Some(STALL_TIMEOUT));
    let _ = socket.set_tcp_nodelay(true);
    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let content = content.clone();
        async move {
            let (head, _body) = request.into_parts(); // GET and HEAD have none
            Ok::<_, Infallible>(answer(&content, &head).await)
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEADER_BYTES)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        debug!(%error, "a boot HTTP connection ended");
    }
}
