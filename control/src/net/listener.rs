//! One TLS listener: bounded connections, in all and of each client, and bounded handshakes.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use axum::Router;
use rustls::ServerConfig;
use rustls_pki_types::CertificateDer;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    clients::{Clients, Refusals, Seat},
    connection,
    stall::Stall,
};

const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
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
    /// Of them, one client's.
    pub(crate) per_client: PerClient,
    /// What an HTTP/2 connection may send ahead of being read.
    pub(crate) window_bytes: u32,
}

/// Which connections of one client count.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PerClient {
    /// All of them, at most this many.
    All(usize),
    /// Only those whose handshake has not ended; after it, each has shown a certificate that control issued.
    Handshakes(usize),
}

impl PerClient {
    const fn most(self) -> usize {
        match self {
            Self::All(most) | Self::Handshakes(most) => most,
        }
    }
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
        let clients = Arc::new(Clients::new(self.limits.per_client.most()));
        let mut refusals = Refusals::default();
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
            let Some(place) = Place::take(&free, &clients, address) else {
                if let Some(count) = refusals.count(Instant::now()) {
                    let listener = self.limits.name;
                    tracing::warn!(listener, %address, count, "too many connections; refused the last");
                }
                continue;
            };
            let (tls, limits, router) = (self.tls.clone(), self.limits, router.clone());
            let (shutdown, abort) = (shutdown.clone(), abort.clone());
            connections.spawn(async move {
                tokio::select! {
                    () = abort.cancelled() => {}
                    () = serve_connection(tcp, address, place, &tls, limits, router, shutdown) => {}
                }
            });
        }
    }
}

/// What a connection takes up; others can have it once this is dropped.
struct Place {
    _permit: OwnedSemaphorePermit,
    seat: Option<Seat>,
}

impl Place {
    fn take(free: &Arc<Semaphore>, clients: &Arc<Clients>, address: SocketAddr) -> Option<Self> {
        let permit = free.clone().try_acquire_owned().ok()?;
        Some(Self { _permit: permit, seat: Some(clients.enter(address.ip())?) })
    }
}

async fn serve_connection(
    tcp: TcpStream,
    address: SocketAddr,
    mut place: Place,
    tls: &TlsAcceptor,
    limits: ListenerLimits,
    router: Router,
    shutdown: CancellationToken,
) {
    // Frames are small and wanted at once.
    let _ = tcp.set_nodelay(true);
    let handshake = tokio::select! {
        () = shutdown.cancelled() => return,
        handshake = timeout(HANDSHAKE_LIMIT, tls.accept(Stall::new(tcp))) => handshake,
    };
    let stream = match handshake {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%address, %error, "TLS handshake failed"),
        Err(_) => return tracing::debug!(%address, "TLS handshake took too long"),
    };
    let peer = Peer { address: address.ip().to_canonical(), certificate: client_certificate(&stream) };
    if matches!(limits.per_client, PerClient::Handshakes(_)) && peer.certificate.is_some() {
        place.seat = None;
    }
    // The protocol is what TLS agreed on, so that no connection waits for its first byte without a limit.
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    connection::serve(stream, http2, limits.window_bytes, peer, router, shutdown).await;
}

fn client_certificate<S>(stream: &TlsStream<S>) -> Option<CertificateDer<'static>> {
    stream.get_ref().1.peer_certificates()?.first().map(|certificate| certificate.clone().into_owned())
}

#[cfg(test)]
mod tests;
