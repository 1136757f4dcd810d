//! The network of one machine: an interface up, an address by DHCP kept for as long as it is needed.

pub mod dhcp;
pub mod link;
pub mod nics;
mod resolv;

use std::{io, path::Path, time::Duration};

use tokio::{sync::mpsc, time};
use tokio_util::task::AbortOnDropHandle;

use self::{
    dhcp::{News, message::Lease},
    link::{LinkError, Links},
    nics::Nic,
};
use crate::{
    console::{chain, say},
    machine::uptime,
};

/// Where interfaces are listed.
pub const SYS_CLASS_NET: &str = "/sys/class/net";
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// A switch port may take this long to pass traffic after link up; after it we ask anyway.
const CARRIER_WAIT: Duration = Duration::from_secs(10);
const CARRIER_POLL: Duration = Duration::from_millis(20);
/// News of the DHCP client that wait to be acted on.
const NEWS_QUEUE: usize = 4;

/// Why there is no network.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// The kernel refused a setting.
    #[error("setting up {0}")]
    Link(String, #[source] LinkError),
    /// The DHCP port could not be opened or read.
    #[error("running the DHCP client on {0}")]
    Dhcp(String, #[source] io::Error),
    /// Nobody answered.
    #[error(
        "no DHCP server gave {0} an address within {wait} s; is the cable in, and does the site or another \
         server answer DHCP there?", wait = .1.as_secs()
    )]
    NoAddress(String, Duration),
}

/// A network that is kept up: the lease is renewed until this is dropped.
pub struct Network {
    /// The interface.
    pub nic: Nic,
    /// The lease at the beginning.
    pub lease: Lease,
    _keeper: AbortOnDropHandle<()>,
}

/// Brings `nic` up and gets an address within `limit`, carrier wait not counted.
pub async fn bring_up(nic: Nic, limit: Duration) -> Result<Network, NetError> {
    let named = |error| NetError::Link(nic.name.clone(), error);
    let links = Links::open().map_err(named)?;
    links.up_loopback().await.map_err(named)?;
    links.up(nic.index).await.map_err(named)?;
    wait_for_carrier(&nic).await;

    let (tx, mut news) = mpsc::channel(NEWS_QUEUE);
    let (name, mac) = (nic.name.clone(), nic.mac);
    let mut client = AbortOnDropHandle::new(tokio::spawn(async move { dhcp::run(&name, mac, tx).await }));
    let first = tokio::select! {
        first = news.recv() => first,
        () = time::sleep(limit) => return Err(NetError::NoAddress(nic.name.clone(), limit)),
    };
    let Some(News::Bound(lease)) = first else {
        // The first news is a lease; without one the client has ended with an error.
        let ended = (&mut client).await.unwrap_or_else(|e| Err(io::Error::other(e)));
        let error = ended.err().unwrap_or_else(|| io::Error::other("it ended"));
        return Err(NetError::Dhcp(nic.name.clone(), error));
    };
    apply(&links, &nic, &lease, None).await.map_err(named)?;
    let keeper = keep(links, nic.clone(), lease.clone(), news, client);
    Ok(Network { nic: nic.clone(), lease, _keeper: AbortOnDropHandle::new(tokio::spawn(keeper)) })
}

/// Says that the network is up, and since when.
pub(crate) fn say_up(network: &Network) {
    let (nic, lease) = (&network.nic.name, &network.lease);
    let router = lease.router.map_or_else(|| "no router".to_owned(), |router| format!("router {router}"));
    let up = uptime();
    say(
        "net",
        format_args!(
            "{nic} has {}/{} ({router}), {up} s after the kernel started",
            lease.address, lease.prefix
        ),
    );
}

async fn wait_for_carrier(nic: &Nic) {
    let deadline = time::Instant::now() + CARRIER_WAIT;
    while !nics::has_carrier(Path::new(SYS_CLASS_NET), nic) {
        if time::Instant::now() >= deadline {
            let wait = CARRIER_WAIT.as_secs();
            say("net", format_args!("{} has no link after {wait} s; asking for an address anyway", nic.name));
            return;
        }
        time::sleep(CARRIER_POLL).await;
    }
}

async fn apply(links: &Links, nic: &Nic, lease: &Lease, old: Option<&Lease>) -> Result<(), LinkError> {
    links.configure(nic.index, lease, old).await?;
    if let Err(error) = resolv::write(Path::new(RESOLV_CONF), &lease.name_servers) {
        say("net", format_args!("writing {RESOLV_CONF}: {error}; names cannot be resolved, addresses can"));
    }
    Ok(())
}

/// Acts on the client's later news; owns everything that has to live as long as the lease.
async fn keep(
    links: Links,
    nic: Nic,
    lease: Lease,
    mut news: mpsc::Receiver<News>,
    _client: AbortOnDropHandle<io::Result<()>>,
) {
    let mut held = Some(lease);
    while let Some(item) = news.recv().await {
        let result = match item {
            News::Bound(lease) => {
                if held.as_ref().is_none_or(|old| old.address != lease.address) {
                    say("net", format_args!("{} has now the address {}", nic.name, lease.address));
                }
                let result = apply(&links, &nic, &lease, held.as_ref()).await;
                held = Some(lease);
                result
            }
            News::Lost(why) => {
                say("net", format_args!("{} lost its address: {why}; asking for a new one", nic.name));
                match held.take() {
                    Some(old) => links.clear(nic.index, &old).await,
                    None => Ok(()),
                }
            }
        };
        if let Err(error) = result {
            say("net", format_args!("setting up {}: {}", nic.name, chain(&error)));
        }
    }
}
