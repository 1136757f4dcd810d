//! Links, addresses and the default route, by rtnetlink.

use std::net::{IpAddr, Ipv4Addr};

use rtnetlink::{
    AddressMessageBuilder, Handle, LinkUnspec, RouteMessageBuilder, packet_core::ErrorMessage,
    packet_route::route::RouteMessage,
};
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
        let Some(router) = lease.router else {
            let stale = old.and_then(|old| old.router);
            return match stale {
                Some(router) => self.unroute(index, router).await,
                None => Ok(()),
            };
        };
        let result = self.handle.route().add(default_route(index, router)).replace().execute().await;
        result.map_err(refused(|| format!("routing by {router}")))
    }

    /// Takes the default route away that an earlier lease gave.
    async fn unroute(&self, index: u32, router: Ipv4Addr) -> Result<(), LinkError> {
        match self.handle.route().del(default_route(index, router)).execute().await {
            // The kernel drops routes with the address they came from.
            Err(rtnetlink::Error::NetlinkError(error)) if is(&error, nix::libc::ESRCH) => Ok(()),
            result => result.map_err(refused(|| format!("no longer routing by {router}"))),
        }
    }

    /// Takes the lease's address away; the kernel drops its routes with it.
    pub async fn clear(&self, index: u32, lease: &Lease) -> Result<(), LinkError> {
        let message = AddressMessageBuilder::<Ipv4Addr>::new()
            .index(index)
            .address(lease.address, lease.prefix)
            .build();
        match self.handle.address().del(message).execute().await {
            Err(rtnetlink::Error::NetlinkError(error)) if is(&error, nix::libc::EADDRNOTAVAIL) => Ok(()),
            result => result.map_err(refused(|| format!("removing the address {}", lease.address))),
        }
    }
}

fn refused(doing: impl FnOnce() -> String) -> impl FnOnce(rtnetlink::Error) -> LinkError {
    move |source| LinkError::Refused { doing: doing(), source }
}

fn is(error: &ErrorMessage, errno: i32) -> bool {
    error.to_io().raw_os_error() == Some(errno)
}

/// `onlink`, because some networks give a router outside of the prefix.
fn default_route(index: u32, router: Ipv4Addr) -> RouteMessage {
    RouteMessageBuilder::<Ipv4Addr>::new().gateway(router).output_interface(index).onlink().build()
}

#[cfg(test)]
mod tests {
    use std::{process::Command, thread, time::Duration};

    use nix::sched::{CloneFlags, unshare};

    use super::*;

    /// `ip` in the network namespace of this thread.
    fn ip(line: &str) -> String {
        let output = Command::new("ip").args(line.split(' ')).output().unwrap();
        assert!(output.status.success(), "ip {line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn lease(router: Option<Ipv4Addr>) -> Lease {
        let hour = Duration::from_secs(3600);
        Lease {
            address: [10, 0, 0, 50].into(),
            prefix: 24,
            router,
            name_servers: Vec::new(),
            server: [10, 0, 0, 1].into(),
            holds: hour,
            renew_after: hour / 2,
            rebind_after: hour * 7 / 8,
        }
    }

    async fn routes_follow_the_lease() {
        let links = Links::open().unwrap();
        let index = nix::net::if_::if_nametoindex("iw0").unwrap();
        let default = || ip("-4 route show default").trim_end().to_owned();
        let routed = |last: u8| lease(Some([10, 0, 0, last].into()));
        let unrouted = lease(None);

        links.configure(index, &routed(1), None).await.unwrap();
        assert!(default().starts_with("default via 10.0.0.1 dev iw0"), "{}", default());
        links.configure(index, &routed(2), Some(&routed(1))).await.unwrap();
        assert!(default().starts_with("default via 10.0.0.2 dev iw0"), "{}", default());
        assert_eq!(default().lines().count(), 1);
        // The second time the route is gone already.
        for _ in 0..2 {
            links.configure(index, &unrouted, Some(&routed(2))).await.unwrap();
            assert_eq!(default(), "");
        }
        assert!(ip("-4 address show dev iw0").contains("inet 10.0.0.50/24"));

        let moved = Lease { address: [10, 0, 0, 51].into(), ..lease(None) };
        links.configure(index, &routed(2), Some(&unrouted)).await.unwrap();
        links.configure(index, &moved, Some(&routed(2))).await.unwrap();
        assert_eq!(default(), "");
    }

    #[test]
    fn a_lease_without_a_router_leaves_no_default_route() {
        // The namespace lives as long as this thread.
        let test = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            ip("link add iw0 type veth peer name iw1");
            ip("link set iw1 up");
            ip("link set iw0 up");
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(routes_follow_the_lease());
        });
        test.join().unwrap();
    }
}
