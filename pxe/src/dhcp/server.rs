//! The sockets around [`decide`](super::decide).

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use ironwright_proto::ids::Mac;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::{
    net::UdpSocket,
    sync::{mpsc, watch},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::{
    client::Client,
    decide::{Config, Decision, Mode, Port, Reply, decide},
    leases::Leases,
    packet::MAX_PACKET,
};
use crate::{now::Now, table::Table};

/// UDP port of DHCP servers (RFC 2131) and of PXE boot servers (PXE 2.1).
const PORTS: (u16, u16) = (67, 4011);

/// Why DHCP cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Mostly: the port is taken by another DHCP server, or we are not root.
    #[error("cannot listen on UDP port {port}{}", on(.interface.as_deref()))]
    Bind {
        /// The port.
        port: u16,
        /// The interface that was asked for.
        interface: Option<String>,
        /// What the system said.
        source: io::Error,
    },
    /// The socket failed later.
    #[error("cannot receive DHCP packets")]
    Receive(#[source] io::Error),
}

fn on(interface: Option<&str>) -> String {
    interface.map(|name| format!(" of interface {name}")).unwrap_or_default()
}

/// Both sockets, bound before privileges or namespaces change.
#[derive(Debug)]
pub struct Sockets {
    dhcp: UdpSocket,
    boot_server: UdpSocket,
}

impl Sockets {
    /// Binds ports 67 and 4011, on one interface where one is given.
    pub fn bind(interface: Option<&str>) -> Result<Self, ServerError> {
        let (dhcp, boot_server) = PORTS;
        Ok(Self { dhcp: bind(interface, dhcp)?, boot_server: bind(interface, boot_server)? })
    }
}

fn bind(interface: Option<&str>, port: u16) -> Result<UdpSocket, ServerError> {
    let open = || -> io::Result<UdpSocket> {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_nonblocking(true)?;
        socket.set_broadcast(true)?;
        if let Some(interface) = interface {
            socket.bind_device(Some(interface.as_bytes()))?;
        }
        socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)).into())?;
        UdpSocket::from_std(socket.into())
    };
    open().map_err(|source| ServerError::Bind { port, interface: interface.map(str::to_owned), source })
}

/// A machine that wants to network boot and is not in the table.
pub type Seen = (Mac, Client);

/// What the server has done since its start.
#[derive(Debug, Default)]
pub struct Counters {
    /// Packets received.
    pub received: AtomicU64,
    /// Replies sent.
    pub replied: AtomicU64,
    /// Packets dropped because they were no valid request.
    pub malformed: AtomicU64,
    /// Replies lost because leases could not be stored, or sending failed.
    pub failed: AtomicU64,
}

/// Stores the text of [`Leases::to_text`] durably.
pub type SaveLeases = Arc<dyn Fn(&str) -> io::Result<()> + Send + Sync>;

/// DHCP server or proxyDHCP server of one network. One task owns the leases.
pub struct Server {
    /// Bound sockets.
    pub sockets: Sockets,
    /// What to answer.
    pub config: Config,
    /// Newest boot table.
    pub table: watch::Receiver<Arc<Table>>,
    /// Leases from before a restart.
    pub leases: Leases,
    /// Called before the reply that depends on it is sent.
    pub save: SaveLeases,
    /// Told of unknown machines; what does not fit the queue is dropped.
    pub unknown: mpsc::Sender<Seen>,
    /// Shared with whoever reports them.
    pub counters: Arc<Counters>,
}

impl Server {
    /// Serves until shutdown.
    pub async fn run(mut self, shutdown: CancellationToken) -> Result<(), ServerError> {
        let mode = if matches!(self.config.mode, Mode::Proxy) { "proxyDHCP" } else { "DHCP" };
        info!(server = %self.config.boot.server, "{mode} is ready");
        let (mut dhcp, mut boot_server) = ([0; MAX_PACKET + 1], [0; MAX_PACKET + 1]);
        loop {
            let (port, packet, received) = tokio::select! {
                () = shutdown.cancelled() => break,
                got = self.sockets.dhcp.recv_from(&mut dhcp) => (Port::Dhcp, &dhcp, got),
                got = self.sockets.boot_server.recv_from(&mut boot_server) => {
                    (Port::BootServer, &boot_server, got)
                }
            };
            let (len, from) = received.map_err(ServerError::Receive)?;
            let SocketAddr::V4(from) = from else { continue };
            // The buffers are not borrowed across the next await of their sockets.
            let packet = packet[..len].to_vec();
            self.handle(&packet, port, from).await;
        }
        let Counters { received, replied, malformed, failed } = &*self.counters;
        let count = |counter: &AtomicU64| counter.load(Relaxed);
        let (received, replied) = (count(received), count(replied));
        info!(received, replied, malformed = count(malformed), failed = count(failed), "{mode} ends");
        Ok(())
    }

    async fn handle(&mut self, packet: &[u8], port: Port, from: SocketAddrV4) {
        self.counters.received.fetch_add(1, Relaxed);
        let table = self.table.borrow().clone();
        let decision = match decide(&self.config, &table, &mut self.leases, packet, (port, from), Now::read())
        {
            Ok(decision) => decision,
            Err(error) => {
                self.counters.malformed.fetch_add(1, Relaxed);
                debug!(%from, %error, "dropped a DHCP packet");
                return;
            }
        };
        let Decision { reply, leases_changed, unknown } = decision;
        if let Some(seen) = unknown {
            let _ = self.unknown.try_send(seen);
        }
        if leases_changed && !self.store_leases().await {
            self.counters.failed.fetch_add(1, Relaxed);
            return;
        }
        if let Some(reply) = reply {
            self.send(&reply, port).await;
        }
    }

    async fn store_leases(&self) -> bool {
        let (save, text) = (self.save.clone(), self.leases.to_text());
        match tokio::task::spawn_blocking(move || save(&text)).await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                error!(%error, "cannot store DHCP leases; the client gets no answer");
                false
            }
            Err(_) => false, // the runtime is going down
        }
    }

    async fn send(&self, reply: &Reply, port: Port) {
        let socket = match port {
            Port::Dhcp => &self.sockets.dhcp,
            Port::BootServer => &self.sockets.boot_server,
        };
        match socket.send_to(&reply.bytes, reply.dest).await {
            Ok(_) => {
                self.counters.replied.fetch_add(1, Relaxed);
                debug!(dest = %reply.dest, "sent a DHCP reply");
            }
            Err(error) => {
                self.counters.failed.fetch_add(1, Relaxed);
                warn!(dest = %reply.dest, %error, "cannot send a DHCP reply");
            }
        }
    }
}
