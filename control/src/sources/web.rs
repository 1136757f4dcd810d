//! GET over http and https: one connection a request, redirects followed a few times.

use std::{
    fmt::Display,
    net::{IpAddr, SocketAddr},
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyDataStream, Empty};
use hyper::body::{Body as _, Incoming};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use rustls_pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, lookup_host},
    time::timeout,
};
use tokio_rustls::TlsConnector;
use url::{Position, Url};

use super::Source;

const CONNECT_LIMIT: Duration = Duration::from_secs(20);
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
const MAX_REDIRECTS: usize = 5;

/// Opens the body at a URL. The error says, in words, which URL failed and why.
pub(super) async fn open(url: &Url) -> Result<Source, String> {
    let mut url = url.clone();
    for _ in 0..=MAX_REDIRECTS {
        let response = get(&url).await?;
        let status = response.status();
        if status == StatusCode::OK {
            let body = response.into_body();
            let len = body.size_hint().exact();
            let bytes = BodyDataStream::new(body).map(|item| item.map_err(std::io::Error::other)).boxed();
            return Ok(Source { bytes, len });
        }
        let location = response.headers().get(header::LOCATION).filter(|_| status.is_redirection());
        let Some(location) = location else { return Err(format!("the server answered {status}")) };
        url = redirected(&url, location)?;
    }
    Err(format!("more than {MAX_REDIRECTS} redirects"))
}

fn redirected(from: &Url, location: &HeaderValue) -> Result<Url, String> {
    let text = location.to_str().map_err(|_| "a redirect to a place that is not text".to_owned())?;
    let to = from.join(text).map_err(|e| format!("a redirect to `{text}`, which is not a URL: {e}"))?;
    match (from.scheme(), to.scheme()) {
        (_, "https") | ("http", "http") => Ok(to),
        ("https", "http") => Err(format!("a redirect from https to `{to}`, which is not encrypted")),
        (_, other) => Err(format!("a redirect to a `{other}` URL")),
    }
}

async fn get(url: &Url) -> Result<Response<Incoming>, String> {
    let host = url.host_str().ok_or("the URL has no host")?;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let port = url.port_or_known_default().ok_or("the URL has no port")?;
    let tcp = limited(CONNECT_LIMIT, "no connection", connect(bare, port)).await?;
    if url.scheme() == "http" {
        return send(url, tcp).await;
    }
    let name = ServerName::try_from(bare.to_owned()).map_err(|e| e.to_string())?;
    let connector = TlsConnector::from(tls()?);
    let tls = limited(CONNECT_LIMIT, "no TLS handshake", connector.connect(name, tcp)).await?;
    send(url, tls).await
}

async fn connect(host: &str, port: u16) -> Result<TcpStream, String> {
    let found = lookup_host((host, port)).await.map_err(|e| e.to_string())?;
    let addresses = usable(found).map_err(|address| {
        format!("it is at {address}, and control fetches nothing from link-local addresses")
    })?;
    TcpStream::connect(&addresses[..]).await.map_err(|e| e.to_string())
}

/// Addresses without the link-local ones (RFC 3927, RFC 4291 section 2.5.6), where clouds tell a machine its secrets;
/// the error is one of those, where there are no others.
fn usable(found: impl Iterator<Item = SocketAddr>) -> Result<Vec<SocketAddr>, IpAddr> {
    let (refused, usable): (Vec<_>, Vec<_>) = found.partition(|address| match address.ip().to_canonical() {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    });
    match refused.first() {
        Some(address) if usable.is_empty() => Err(address.ip()),
        _ => Ok(usable),
    }
}

async fn send(
    url: &Url,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<Response<Incoming>, String> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
    // Ends by itself once the body is read or dropped.
    tokio::spawn(connection);
    let request = Request::get(&url[Position::BeforePath..Position::AfterQuery])
        .header(header::HOST, &url[Position::BeforeHost..Position::AfterPort])
        .header(header::USER_AGENT, concat!("ironwright/", env!("CARGO_PKG_VERSION")))
        .body(Empty::<Bytes>::new())
        .map_err(|e| e.to_string())?;
    limited(ANSWER_LIMIT, "no answer", sender.send_request(request)).await
}

async fn limited<T, E: Display>(
    limit: Duration,
    what: &str,
    future: impl Future<Output = Result<T, E>>,
) -> Result<T, String> {
    match timeout(limit, future).await {
        Ok(result) => result.map_err(|e| e.to_string()),
        Err(_) => Err(format!("{what} within {} s", limit.as_secs())),
    }
}

/// TLS with the system's trusted CAs, read once.
fn tls() -> Result<Arc<ClientConfig>, String> {
    static TLS: OnceLock<Result<Arc<ClientConfig>, String>> = OnceLock::new();
    TLS.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            return Err("this system has no trusted CAs; install the package ca-certificates".to_owned());
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| e.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Arc::new(config))
    })
    .clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(from: &str, location: &'static str) -> Result<String, String> {
        redirected(&Url::parse(from).unwrap(), &HeaderValue::from_static(location)).map(String::from)
    }

    #[test]
    fn i2_redirects_are_resolved_with_their_whole_query() {
        assert_eq!(to("http://a/x/y?z=1", "../b?X-Sig=abc=").unwrap(), "http://a/b?X-Sig=abc=");
        assert_eq!(to("http://a/x", "https://b/y").unwrap(), "https://b/y");
        assert!(to("https://a/x", "http://b/y").unwrap_err().contains("not encrypted"));
        assert!(to("http://a/x", "file:///etc/passwd").is_err());
    }

    #[test]
    fn link_local_addresses_are_not_used() {
        let usable = |texts: &[&str]| usable(texts.iter().map(|text| text.parse().unwrap()));
        for refused in ["169.254.169.254:80", "[fe80::1]:80", "[febf::1]:80", "[::ffff:169.254.0.1]:80"] {
            assert!(usable(&[refused]).is_err(), "{refused}");
            assert_eq!(usable(&[refused, "10.0.0.1:80"]).unwrap(), ["10.0.0.1:80".parse().unwrap()]);
        }
        assert_eq!(usable(&["127.0.0.1:80", "[::1]:80", "[fd00::1]:80"]).unwrap().len(), 3);
    }
}
