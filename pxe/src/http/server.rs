//! The listener of boot HTTP.

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

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
    clients::{Clients, MAX_PER_CLIENT, Refusals},
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
/// What a client with too many connections is told.
const TOO_MANY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nConnection: close\r\n\
    Content-Type: text/plain\r\nContent-Length: 43\r\n\r\nthis address has too many connections here\n";

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
        let (clients, mut refusals) = (Arc::new(Clients::default()), Refusals::default());
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
            let (permit, stream, ip) = match accepted {
                (Some(permit), Ok((stream, peer))) => (permit, stream, peer.ip()),
                (_, accepted) => {
                    warn!(error = ?accepted.err(), "cannot accept a boot HTTP connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let Some(seat) = clients.enter(ip) else {
                refuse(&stream);
                if let Some(refused) = refusals.count(Instant::now()) {
                    warn!(client = %ip, refused, "a client has {MAX_PER_CLIENT} boot HTTP connections");
                }
                continue;
            };
            let (content, shutdown) = (content.clone(), shutdown.clone());
            connections.spawn(async move {
                tokio::select! {
                    () = shutdown.cancelled() => {}
                    () = connection(stream, content) => {}
                }
                drop((permit, seat));
            });
        }
        connections.close();
        connections.wait().await;
    }
}

/// Tells the client without waiting for its request, since waiting would be one more connection. The buffer
/// of a new socket takes these few bytes at once.
fn refuse(stream: &TcpStream) {
    let _ = socket2::SockRef::from(stream).send(TOO_MANY);
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
