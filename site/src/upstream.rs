//! Control as a site sees it: the identity that signs and connects, and the session's events.

use std::{
    io,
    sync::{Arc, PoisonError, RwLock},
};

use anyhow::Context;
use futures::future::BoxFuture;
use ironwright_agent::{EventSink, Identity};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, rustls::pki_types::ServerName};

use crate::authority::{Connection, Report, Signer, Upstream};

/// Where an HTTPS URL has no port.
const HTTPS_PORT: u16 = 443;

/// The site's identity, from the moment it has joined. Machines can be left to their disks before that.
#[derive(Clone, Default)]
pub(crate) struct Joined(Arc<RwLock<Option<Identity>>>);

impl Joined {
    /// Takes the identity; a site that had to join anew has another one.
    pub(crate) fn set(&self, identity: Identity) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(identity);
    }

    fn get(&self) -> io::Result<Identity> {
        let identity = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        identity.ok_or_else(|| io::Error::other("this site has not joined control yet"))
    }
}

impl Signer for Joined {
    fn sign(&self, message: &[u8]) -> anyhow::Result<(String, Vec<u8>)> {
        let identity = self.get()?;
        Ok((identity.node_id().to_owned(), identity.sign(message)?))
    }
}

impl Upstream for Joined {
    fn connect(&self) -> BoxFuture<'_, io::Result<Connection>> {
        Box::pin(async move {
            let identity = self.get()?;
            let url = identity.gateway_url();
            let (host, port, authority) = split(&url).map_err(io::Error::other)?;
            let mut tls = identity.client_config();
            tls.alpn_protocols = vec![b"http/1.1".to_vec()];
            let stream = TcpStream::connect((host.as_str(), port)).await?;
            stream.set_nodelay(true)?;
            let name = ServerName::try_from(host).map_err(io::Error::other)?;
            let stream = TlsConnector::from(Arc::new(tls)).connect(name, stream).await?;
            Ok(Connection { stream: Box::pin(stream), host: authority })
        })
    }
}

/// Host, port, and both as the `Host` header has them.
fn split(url: &str) -> anyhow::Result<(String, u16, String)> {
    let uri: http::Uri = url.parse().with_context(|| format!("reading the gateway's URL {url}"))?;
    let authority = uri.authority().with_context(|| format!("the gateway's URL {url} has no host"))?;
    let host = authority.host().trim_matches(['[', ']']).to_owned();
    Ok((host, authority.port_u16().unwrap_or(HTTPS_PORT), authority.to_string()))
}

impl Report for EventSink {
    fn event(&self, kind: &'static str, json: Value) {
        self.send(kind, &json);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateway_urls_are_split() {
        let parts = |host: &str, port, authority: &str| (host.to_owned(), port, authority.to_owned());
        assert_eq!(split("https://10.0.0.1:9443").unwrap(), parts("10.0.0.1", 9443, "10.0.0.1:9443"));
        assert_eq!(split("https://c.example").unwrap(), parts("c.example", 443, "c.example"));
        assert_eq!(split("https://[fd00::1]:9443").unwrap(), parts("fd00::1", 9443, "[fd00::1]:9443"));
        assert!(split("/x").is_err());
    }

    #[tokio::test]
    async fn nothing_is_signed_or_fetched_before_joining() {
        let joined = Joined::default();
        assert!(joined.sign(b"x").is_err());
        assert!(joined.connect().await.is_err());
    }
}
