//! One TLS connection to control with gRPC on top of it.
//!
//! The connection is made here rather than inside tonic, so that its errors keep their types and so that
//! nothing reconnects behind the session's back.

use std::{io, sync::Arc, time::Duration};

use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::{CertificateError, ClientConfig};
use rustls_pki_types::ServerName;
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tonic::transport::{Channel, Endpoint};

use crate::tls::{ChainError, WrongCa};

/// Name lookup, TCP and TLS together take at most this long.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A silent connection is probed (HTTP/2 PING) after this time …
const PROBE_AFTER: Duration = Duration::from_secs(20);
/// … and given up when the probe is not answered within this one.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The address is none of ours.
    #[error("`{0}` is not an address like https://host:port")]
    BadUrl(String),
    /// Name lookup or TCP.
    #[error("connecting to {authority}")]
    Tcp {
        /// `host:port`.
        authority: String,
        /// The cause.
        source: io::Error,
    },
    /// Somebody answers who is not control.
    #[error("{authority} is not the control plane that this agent was told to trust")]
    WrongCa {
        /// `host:port`.
        authority: String,
        /// The pin that was not met.
        source: WrongCa,
    },
    /// The handshake failed otherwise.
    #[error("opening TLS to {authority}")]
    Tls {
        /// `host:port`.
        authority: String,
        /// The cause.
        source: io::Error,
    },
    /// The handshake went well, but HTTP/2 did not start.
    #[error("opening HTTP/2 to {authority}")]
    Http {
        /// `host:port`.
        authority: String,
        /// The cause.
        source: tonic::transport::Error,
    },
    /// Nobody answered in time.
    #[error("connecting to {authority} took longer than {} s", CONNECT_TIMEOUT.as_secs())]
    Timeout {
        /// `host:port`.
        authority: String,
    },
}

/// Opens gRPC to `url`.
pub(crate) async fn open(url: &str, config: ClientConfig) -> Result<Channel, ConnectError> {
    let target = Target::parse(url)?;
    let authority = target.authority.clone();
    // Boxed: a handshake's state is large, and this future is part of many others.
    match timeout(CONNECT_TIMEOUT, Box::pin(open_target(url, target, config))).await {
        Ok(result) => result,
        Err(_) => Err(ConnectError::Timeout { authority }),
    }
}

struct Target {
    host: String,
    port: u16,
    authority: String,
}

impl Target {
    fn parse(url: &str) -> Result<Self, ConnectError> {
        let bad = || ConnectError::BadUrl(url.chars().take(120).collect());
        let uri: Uri = url.parse().map_err(|_| bad())?;
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(bad)?;
        if uri.scheme_str() != Some("https") || !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(bad());
        }
        let port = match (uri.port_u16(), uri.authority()) {
            (Some(port), Some(whole)) if !whole.as_str().contains('@') => port,
            (None, Some(whole)) if whole.as_str() == host => 443,
            _ => return Err(bad()),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let authority =
            if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        Ok(Self { host, port, authority })
    }
}

async fn open_target(url: &str, target: Target, mut config: ClientConfig) -> Result<Channel, ConnectError> {
    config.alpn_protocols = vec![b"h2".to_vec()];
    let authority = target.authority.clone();
    let stream = connect_tls(&target, config).await?;
    let mut once = Some(TokioIo::new(stream));
    let connector = tower::service_fn(move |_: Uri| {
        let io = once.take().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected));
        std::future::ready(io)
    });
    Endpoint::from_shared(url.to_owned())
        .map_err(|_| ConnectError::BadUrl(url.to_owned()))?
        .http2_keep_alive_interval(PROBE_AFTER)
        .keep_alive_timeout(PROBE_TIMEOUT)
        .keep_alive_while_idle(true)
        .connect_with_connector(connector)
        .await
        .map_err(|source| ConnectError::Http { authority, source })
}

async fn connect_tls(target: &Target, config: ClientConfig) -> Result<TlsStream<TcpStream>, ConnectError> {
    let authority = || target.authority.clone();
    let name = ServerName::try_from(target.host.clone()).map_err(|_| ConnectError::BadUrl(authority()))?;
    let tcp = TcpStream::connect((target.host.as_str(), target.port))
        .await
        .map_err(|source| ConnectError::Tcp { authority: authority(), source })?;
    tcp.set_nodelay(true).map_err(|source| ConnectError::Tcp { authority: authority(), source })?;
    TlsConnector::from(Arc::new(config)).connect(name, tcp).await.map_err(|source| match wrong_ca(&source) {
        Some(source) => ConnectError::WrongCa { authority: authority(), source },
        None => ConnectError::Tls { authority: authority(), source },
    })
}

/// Our own verifier's refusal, from inside rustls' error.
fn wrong_ca(err: &io::Error) -> Option<WrongCa> {
    let tls = err.get_ref()?.downcast_ref::<rustls::Error>()?;
    let rustls::Error::InvalidCertificate(CertificateError::Other(other)) = tls else { return None };
    match other.0.downcast_ref::<ChainError>() {
        Some(ChainError::WrongCa(wrong)) => Some(*wrong),
        _ => other.0.downcast_ref::<WrongCa>().copied(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_or_refused() {
        let target = Target::parse("https://10.0.0.1:8443").unwrap();
        assert_eq!((target.host.as_str(), target.port), ("10.0.0.1", 8443));
        let target = Target::parse("https://[fd00::1]:9443").unwrap();
        assert_eq!((target.host.as_str(), target.authority.as_str()), ("fd00::1", "[fd00::1]:9443"));
        assert_eq!(Target::parse("https://control.example").unwrap().port, 443);
        for bad in [
            "",
            "http://a:1",
            "a:1",
            "https://",
            "https://a:1/path",
            "https://a:1?q",
            "https://u@a:1",
            "https://a:99999",
        ] {
            assert!(matches!(Target::parse(bad), Err(ConnectError::BadUrl(_))), "{bad}");
        }
    }
}
