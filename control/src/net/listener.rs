//! One TLS listener: bounded connections, bounded handshakes, and an end that lets requests finish.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::Router;
use http::Request;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use rustls::ServerConfig;
use rustls_pki_types::CertificateDer;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower_service::Service;

const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// From the end of the handshake to the end of the first request's head.
const FIRST_REQUEST_LIMIT: Duration = Duration::from_secs(30);
/// From the end of a request to the end of the next one's head (HTTP/1.1).
const HEADER_LIMIT: Duration = Duration::from_secs(30);
const MAX_HEADER_BYTES: u32 = 32 << 10;
/// A peer that died without a word is noticed after the sum of both (HTTP/2).
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(20);
const KEEP_ALIVE_LIMIT: Duration = Duration::from_secs(20);
const MAX_STREAMS: u32 = 64;
/// After an error of `accept`, e.g. because file descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Who is at the other end of a connection; every request carries it as an extension.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    /// Where the connection comes from.
    pub(crate) address: IpAddr,
    /// The verified client certificate; `None` on the API, which asks for none.
    pub(crate) certificate: Option<CertificateDer<'static>>,
}

/// What a listener takes at most.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListenerLimits {
    /// For the log.
    pub(crate) name: &'static str,
    pub(crate) connections: usize,
    /// What an HTTP/2 connection may send ahead of being read.
    pub(crate) window_bytes: u32,
}

/// A bound socket with its TLS.
pub(crate) struct Listener {
    tcp: TcpListener,
    tls: TlsAcceptor,
    limits: ListenerLimits,
}

impl Listener {
    pub(crate) async fn bind(
        address: SocketAddr,
        tls: Arc<ServerConfig>,
        limits: ListenerLimits,
    ) -> io::Result<Self> {
        Ok(Self { tcp: TcpListener::bind(address).await?, tls: TlsAcceptor::from(tls), limits })
    }

    /// The address it is bound to; tells the port where the config left it to the system.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Serves until `shutdown`, then accepts no more; connections end by themselves once their requests are done, or
    /// at once with `abort`. Each is a task of `connections`.
    pub(crate) async fn serve(
        self,
        router: Router,
        connections: TaskTracker,
        shutdown: CancellationToken,
        abort: CancellationToken,
    ) {
        let free = Arc::new(Semaphore::new(self.limits.connections));
        loop {
            let accepted = tokio::select! {
                () = shutdown.cancelled() => return,
                accepted = self.tcp.accept() => accepted,
            };
            let (tcp, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(listener = self.limits.name, %error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let Ok(permit) = free.clone().try_acquire_owned() else {
                tracing::warn!(listener = self.limits.name, %address, "too many connections; refusing one");
                continue;
            };
            let (tls, router) = (self.tls.clone(), router.clone());
            let window_bytes = self.limits.window_bytes;
            let (shutdown, abort) = (shutdown.clone(), abort.clone());
            connections.spawn(async move {
                let _permit = permit;
                tokio::select! {
                    () = abort.cancelled() => {}
                    () = serve_connection(tcp, address, &tls, window_bytes, router, shutdown) => {}
                }
            });
        }
    }
}

async fn serve_connection(
    tcp: TcpStream,
    address: SocketAddr,
    tls: &TlsAcceptor,
    window_bytes: u32,
    router: Router,
    shutdown: CancellationToken,
) {
    // Frames are small and wanted at once.
    let _ = tcp.set_nodelay(true);
    let handshake = tokio::select! {
        () = shutdown.cancelled() => return,
        handshake = timeout(HANDSHAKE_LIMIT, tls.accept(tcp)) => handshake,
    };
    let stream = match handshake {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%address, %error, "TLS handshake failed"),
        Err(_) => return tracing::debug!(%address, "TLS handshake took too long"),
    };
    let peer = Peer { address: address.ip().to_canonical(), certificate: client_certificate(&stream) };
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let asked = Arc::new(AtomicBool::new(false));
    let ask = asked.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        ask.store(true, Ordering::Relaxed);
        request.extensions_mut().insert(peer.clone());
        router.clone().call(request)
    });
    let builder = http_builder(http2, window_bytes);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = silence(&asked) => return tracing::debug!(%address, "no request came"),
        () = shutdown.cancelled() => {
            if !asked.load(Ordering::Relaxed) {
                return;
            }
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%address, error = %error, "connection ended");
    }
}

/// Ends where no first request comes in time.
async fn silence(asked: &AtomicBool) {
    sleep(FIRST_REQUEST_LIMIT).await;
    if asked.load(Ordering::Relaxed) {
        std::future::pending::<()>().await;
    }
}

/// The protocol is what TLS agreed on, so that no connection waits for its first byte without a limit.
fn http_builder(http2: bool, window_bytes: u32) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_LIMIT)
        .max_buf_size(MAX_HEADER_BYTES as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .initial_connection_window_size(window_bytes)
        .initial_stream_window_size(window_bytes)
        .max_header_list_size(MAX_HEADER_BYTES)
        .keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_LIMIT);
    if http2 { builder.http2_only() } else { builder.http1_only() }
}

fn client_certificate(stream: &TlsStream<TcpStream>) -> Option<CertificateDer<'static>> {
    stream.get_ref().1.peer_certificates()?.first().map(|certificate| certificate.clone().into_owned())
}
