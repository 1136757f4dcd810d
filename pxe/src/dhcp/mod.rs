//! DHCP (RFC 2131) and proxyDHCP (PXE 2.1): who gets which address and which boot file.

mod client;
mod clock;
mod decide;
mod leases;
mod packet;
mod reply;
mod server;

pub use client::{Arch, BootFile, BootFiles, Client};
pub use decide::{Config, Decision, Mode, Port, Reply, Subnet, decide};
pub use leases::{Leases, MAX_POOL, Pool, PoolError};
pub use packet::{MAX_PACKET, MessageType, PacketError, Request, option};
pub use reply::MIN_PAYLOAD;
pub use server::{Counters, SaveLeases, Seen, Server, ServerError, Sockets};
