//! The client port of one interface.
//!
//! A UDP socket bound to the device is enough: until there is an address we ask servers to broadcast, and
//! Linux delivers broadcasts to an interface without one.

use std::{
    io,
    net::{Ipv4Addr, SocketAddrV4},
};

use dhcproto::v4::CLIENT_PORT;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;

use super::client::Client;

/// Longest datagram read; we announce that we take 1472.
pub(super) const MAX_DATAGRAM: usize = 1500;

/// UDP port 68 on one interface.
#[derive(Debug)]
pub(super) struct ClientPort(UdpSocket);

impl ClientPort {
    pub(super) fn open(interface: &str) -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM.nonblocking().cloexec(), Some(Protocol::UDP))?;
        socket.set_reuse_address(true)?;
        socket.set_broadcast(true)?;
        socket.bind_device(Some(interface.as_bytes()))?;
        socket.bind(&SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, CLIENT_PORT).into())?;
        Ok(Self(UdpSocket::from_std(socket.into())?))
    }

    pub(super) async fn send(&self, to: Ipv4Addr, bytes: &[u8]) -> io::Result<()> {
        self.0.send_to(bytes, SocketAddrV4::new(to, Client::SERVER_PORT)).await.map(drop)
    }

    pub(super) async fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.recv(buffer).await
    }
}
