//! An address by DHCP for IPv4, renewed for as long as the machine is ours: imaging can outlast a lease.
//!
//! [`client`] decides, [`message`] reads and writes, [`run`] moves bytes between them and the interface.

pub mod client;
pub mod message;
mod sift;
mod socket;
#[cfg(test)]
mod tests;

use std::{io, time::Duration};

use ironwright_proto::ids::Mac;
use tokio::{sync::mpsc, time};

use self::{
    client::{Client, Effect, Input},
    message::Lease,
    socket::{ClientPort, MAX_DATAGRAM},
};

/// Pause after a socket error, so that an interface that is down does not make a busy loop.
const ERROR_PAUSE: Duration = Duration::from_millis(200);

/// What the client tells the one who sets the interface up.
#[derive(Debug, PartialEq, Eq)]
pub enum News {
    /// Use this address.
    Bound(Lease),
    /// Use none, for this reason.
    Lost(&'static str),
}

/// Runs a client on `interface` until nobody listens to its news.
pub async fn run(interface: &str, mac: Mac, news: mpsc::Sender<News>) -> io::Result<()> {
    let port = ClientPort::open(interface)?;
    let mut client = Client::new(mac, rand::random(), time::Instant::now().into_std());
    let mut buffer = [0; MAX_DATAGRAM];
    loop {
        let wake = time::Instant::from_std(client.wake());
        let effects = tokio::select! {
            received = port.receive(&mut buffer) => match received {
                Ok(length) => client.step(Input::Datagram(&buffer[..length]), time::Instant::now().into_std()),
                Err(error) => {
                    tracing::debug!(%error, interface, "reading the DHCP port");
                    time::sleep(ERROR_PAUSE).await;
                    continue;
                }
            },
            () = time::sleep_until(wake) => client.step(Input::Time, time::Instant::now().into_std()),
            () = news.closed() => return Ok(()),
        };
        for effect in effects {
            let told = match effect {
                Effect::Send { to, bytes } => {
                    // Not fatal: the client asks again.
                    if let Err(error) = port.send(to, &bytes).await {
                        tracing::debug!(%error, interface, %to, "sending a DHCP request");
                    }
                    Ok(())
                }
                Effect::Bound(lease) => news.send(News::Bound(lease)).await,
                Effect::Lost(why) => news.send(News::Lost(why)).await,
            };
            if told.is_err() {
                return Ok(());
            }
        }
    }
}
