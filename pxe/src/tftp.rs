//! TFTP server (RFC 1350, 2347, 2348, 2349), read-only, for the named boot files alone.
//!
//! This is our own server rather than the async-tftp crate: its read transfer looks at ACKs only, so that a
//! client's ERROR 8 after a size probe (field report T2) is not heard. It goes on sending for up to
//! 100 × 3 s, and ignores a new request from the same port until then, which is the port PXE ROMs use again.
//!
//! Decisions are in [`transfer`] and [`slots`]; here are one socket for requests and one per transfer.

pub mod slots;
pub mod transfer;

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{
    net::UdpSocket,
    time::{Instant, timeout_at},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, info};

use crate::files::Files;
use slots::{Admit, Id, MAX_TRANSFERS, Slots};
use transfer::{MAX_REQUEST, Request, RequestError, Step, Transfer};

/// ACK and ERROR packets are short; the rest of a longer one does not matter.
const MAX_ANSWER: usize = 512;

/// Why TFTP cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Mostly: the port is taken, or we are not root.
    #[error("cannot listen for TFTP on {addr}")]
    Bind {
        /// The address.
        addr: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The socket failed later.
    #[error("cannot receive TFTP requests")]
    Receive(#[source] io::Error),
}

/// A bound TFTP server.
#[derive(Debug)]
pub struct Server {
    socket: UdpSocket,
    addr: SocketAddr,
}

impl Server {
    /// Binds; port 0 takes a free one.
    pub async fn bind(addr: SocketAddr) -> Result<Self, ServerError> {
        let failed = |source| ServerError::Bind { addr, source };
        let socket = UdpSocket::bind(addr).await.map_err(failed)?;
        let addr = socket.local_addr().map_err(failed)?;
        Ok(Self { socket, addr })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Serves until shutdown; transfers that are under way end with it.
    pub async fn run(self, files: Arc<Files>, shutdown: CancellationToken) -> Result<(), ServerError> {
        info!(addr = %self.addr, "TFTP is ready");
        let running = Arc::new(Running::default());
        let transfers = TaskTracker::new();
        let mut buf = [0; MAX_REQUEST + 1];
        loop {
            let received = tokio::select! {
                () = shutdown.cancelled() => break,
                received = self.socket.recv_from(&mut buf) => received,
            };
            let (len, peer) = match received {
                Ok(received) => received,
                // An ICMP answer to one of our error packets.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
                Err(error) => return Err(ServerError::Receive(error)),
            };
            let opened = open(&buf[..len], &files)
                .and_then(|transfer| Ok((transfer, running.admit(peer, &shutdown)?)));
            let (transfer, slot) = match opened {
                Ok((transfer, Some(slot))) => (transfer, slot),
                Ok((_, None)) => {
                    // Those many are being served well: this client is better off asking again than failing.
                    debug!(%peer, "dropped a TFTP request: {MAX_TRANSFERS} transfers are under way");
                    continue;
                }
                Err(refusal) => {
                    debug!(%peer, error = %refusal, "refused a TFTP request");
                    if let Some(packet) = refusal.packet() {
                        let _ = self.socket.send_to(&packet, peer).await;
                    }
                    continue;
                }
            };
            let ip = self.addr.ip();
            transfers.spawn(async move {
                tokio::select! {
                    () = slot.stop.cancelled() => debug!(%peer, "TFTP transfer stopped"),
                    ended = serve(transfer, ip, peer) => debug!(%peer, ?ended, "TFTP transfer ended"),
                }
            });
        }
        transfers.close();
        transfers.wait().await;
        Ok(())
    }
}

fn open(packet: &[u8], files: &Files) -> Result<Transfer, RequestError> {
    let request = Request::parse(packet)?;
    let name = request.file.clone();
    let data = files.get(&name).ok_or(RequestError::NotFound(name))?;
    Ok(Transfer::new(&request, data))
}

/// The transfers under way.
#[derive(Default)]
struct Running(Mutex<Transfers>);

#[derive(Default)]
struct Transfers {
    slots: Slots,
    /// What stops each.
    stops: BTreeMap<Id, CancellationToken>,
}

/// A transfer's place among those under way, given back when it is dropped, however the transfer ends.
struct Slot {
    running: Arc<Running>,
    peer: SocketAddr,
    id: Id,
    stop: CancellationToken,
}

impl Running {
    fn lock(&self) -> MutexGuard<'_, Transfers> {
        // Nothing that holds the lock leaves it half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A slot for a transfer, and the end of the one that it replaces; `None` where all slots are taken.
    fn admit(
        self: &Arc<Self>,
        peer: SocketAddr,
        shutdown: &CancellationToken,
    ) -> Result<Option<Slot>, RequestError> {
        let mut running = self.lock();
        let id = match running.slots.admit(peer) {
            Admit::Start(id) => id,
            Admit::Replace { old, new } => {
                if let Some(stop) = running.stops.remove(&old) {
                    stop.cancel();
                }
                new
            }
            Admit::ClientFull => return Err(RequestError::ClientFull),
            Admit::Full => return Ok(None),
        };
        let stop = shutdown.child_token();
        running.stops.insert(id, stop.clone());
        Ok(Some(Slot { running: self.clone(), peer, id, stop }))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut running = self.running.lock();
        running.slots.ended(self.peer, self.id);
        running.stops.remove(&self.id);
    }
}

/// Runs one transfer from its own port, which is its transfer id (RFC 1350 section 4).
async fn serve(mut transfer: Transfer, local: IpAddr, peer: SocketAddr) -> io::Result<()> {
    let socket = UdpSocket::bind((local, 0)).await?;
    socket.connect(peer).await?;
    let mut buf = [0; MAX_ANSWER];
    let mut step = transfer.start();
    let mut deadline = Instant::now();
    loop {
        match step {
            Step::Send(packet) => {
                socket.send(&packet).await?;
                // Counted from sending: a client that only ever sends something else must not hold the
                // transfer for ever, nor keep us from sending again.
                deadline = Instant::now() + transfer.patience();
            }
            Step::Wait => {}
            Step::Done => return Ok(()),
        }
        step = match timeout_at(deadline, socket.recv(&mut buf)).await {
            Ok(received) => transfer.answer(&buf[..received?]),
            Err(_) => transfer.silence(),
        };
    }
}
