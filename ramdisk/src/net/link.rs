//! Links, addresses and the default route, by rtnetlink.

use std::net::{IpAddr, Ipv4Addr};

use rtnetlink::{AddressMessageBuilder, Handle, LinkUnspec, RouteMessageBuilder, packet_core::ErrorMessage};
use tokio_util::task::AbortOnDropHandle;

use super::dhcp::message::Lease;

/// The index of the loopback interface, which the kernel makes first in every network namespace.
const LOOPBACK: u32 = 1;

/// Why an interface could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// No netlink in this kernel?
    #[error("opening a netlink socket")]
    Open(#[source] std::io::Error),
    /// The kernel refused.
    #[error("{doing}")]
    Refused {
        /// What was being done.
        doing: String,
        /// The kernel's word.
        #[source]
        source: rtnetlink::Error,
    },
}

/// A netlink connection.
pub struct Links {
    handle: Handle,
    _connection: AbortOnDropHandle<()>,
}

impl Links {
    /// Connects to the kernel.
    pub fn open() -> Result<Self, LinkError> {
        let (connection, handle, _) = rtnetlink::new_connection().map_err(LinkError::Open)?;
        Ok(Self { handle, _connection: AbortOnDropHandle::new(tokio::spawn(connection)) })
    }

    /// Switches the loopback interface on.
    pub async fn up_loopback(&self) -> Result<(), LinkError> {
        self.up(LOOPBACK).await
    }

    /// Switches an interface on.
    pub async fn up(&self, index: u32) -> Result<(), LinkError> {
        let message = LinkUnspec::new_with_index(index).up().build();
        let result = self.handle.link().set(message).execute().await;
        result.map_err(refused(|| format!("switching interface {index} on")))
    }

    /// Gives the interface the lease's address and default route, in place of those of `old`.
    pub async fn configure(&self, index: u32, lease: &Lease, old: Option<&Lease>) -> Result<(), LinkError> {
        if let Some(old) = old.filter(|old| (old.address, old.prefix) != (lease.address, lease.prefix)) {
            self.clear(index, old).await?;
        }
        let address = self.handle.address().add(index, IpAddr::V4(lease.address), lease.prefix);
        let result = address.replace().execute().await;
        result.map_err(refused(|| format!("giving interface {index} the address {}", lease.address)))?;
        let Some(router) = lease.router else { return Ok(()) };
        // `onlink`, because some networks give a router outside of the prefix.
        let route =
            RouteMessageBuilder::<Ipv4Addr>::new().gateway(router).output_interface(index).onlink().build();
        let result = self.handle.route().add(route).replace().execute().await;
        result.map_err(refused(|| format!("routing by {router}")))
    }

    /// Takes the lease's address away; the kernel drops its routes with it.
    pub async fn clear(&self, index: u32, lease: &Lease) -> Result<(), LinkError> {
        let message = AddressMessageBuilder::<Ipv4Addr>::new()
            .index(index)
            .address(lease.address, lease.prefix)
            .build();
        match self.handle.address().del(message).execute().await {
            Err(rtnetlink::Error::NetlinkError(error)) if is_gone(&error) => Ok(()),
            result => result.map_err(refused(|| format!("removing the address {}", lease.address))),
        }
    }
}

fn refused(doing: impl FnOnce() -> String) -> impl FnOnce(rtnetlink::Error) -> LinkError {
    move |source| LinkError::Refused { doing: doing(), source }
}

fn is_gone(error: &ErrorMessage) -> bool {
    error.to_io().raw_os_error() == Some(nix::libc::EADDRNOTAVAIL)
}
