//! Clients of the API and the gateway over real TLS.

use std::{net::SocketAddr, sync::Arc};

use bytes::Bytes;
use futures::TryStreamExt;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::{io::AsyncBufReadExt, net::TcpStream, sync::mpsc, time::timeout};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::io::StreamReader;
use tonic::transport::{Channel, Endpoint};

use crate::rig::DEADLINE;

/// A client certificate: chain and key.
pub(crate) type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Private keys are not `Clone` by design.
pub(crate) fn copy((chain, key): &Identity) -> Identity {
    (chain.clone(), key.clone_key())
}

/// A TLS client that trusts one CA and shows what it has.
pub(crate) fn tls(
    ca: &CertificateDer<'static>,
    identity: Option<&Identity>,
    alpn: &[u8],
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(ca.clone()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match identity {
        Some((chain, key)) => builder.with_client_auth_cert(chain.clone(), key.clone_key()).unwrap(),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![alpn.to_vec()];
    Arc::new(config)
}

pub(crate) async fn connect(
    address: SocketAddr,
    config: Arc<ClientConfig>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let tcp = TcpStream::connect(address).await?;
    TlsConnector::from(config).connect(ServerName::try_from("localhost").unwrap(), tcp).await
}

/// One HTTP/1.1 request on its own connection.
pub(crate) async fn request(
    address: SocketAddr,
    config: Arc<ClientConfig>,
    request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, Box<dyn std::error::Error + Send + Sync>> {
    let stream = connect(address, config).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(timeout(DEADLINE, sender.send_request(request)).await??)
}

/// A gRPC channel over TLS.
pub(crate) async fn channel(
    address: SocketAddr,
    ca: CertificateDer<'static>,
    identity: Option<Identity>,
) -> Result<Channel, tonic::transport::Error> {
    let config = tls(&ca, identity.as_ref(), b"h2");
    let connector = tower::service_fn(move |_| {
        let config = config.clone();
        async move { connect(address, config).await.map(TokioIo::new) }
    });
    Endpoint::from_static("https://localhost").connect_with_connector(connector).await
}

/// An API client with the admin's token.
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
    ca: CertificateDer<'static>,
}

impl Client {
    pub(crate) fn new(address: SocketAddr, ca: CertificateDer<'static>, token: String) -> Self {
        Self { address, token, ca }
    }

    /// A request with exactly this `Authorization`.
    pub(crate) async fn raw(
        &self,
        method: Method,
        path: &str,
        authorization: Option<&str>,
        body: impl Into<Bytes>,
    ) -> Response<Incoming> {
        let mut builder = Request::builder().method(method).uri(path).header(header::HOST, "localhost");
        if let Some(authorization) = authorization {
            builder = builder.header(header::AUTHORIZATION, authorization);
        }
        let built = builder.body(Full::new(body.into())).unwrap();
        request(self.address, tls(&self.ca, None, b"http/1.1"), built).await.expect("control answers")
    }

    pub(crate) async fn bytes(
        &self,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
    ) -> (StatusCode, Value) {
        let bearer = format!("Bearer {}", self.token);
        let response = self.raw(method, path, Some(&bearer), body).await;
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    pub(crate) async fn get(&self, path: &str) -> (StatusCode, Value) {
        self.bytes(Method::GET, path, Bytes::new()).await
    }

    pub(crate) async fn post(&self, path: &str, body: &impl Serialize) -> (StatusCode, Value) {
        self.bytes(Method::POST, path, serde_json::to_vec(body).unwrap()).await
    }

    /// A GET that has to succeed.
    pub(crate) async fn read<T: DeserializeOwned>(&self, path: &str) -> T {
        let (status, value) = self.get(path).await;
        assert_eq!(status, StatusCode::OK, "{path}: {value}");
        serde_json::from_value(value).unwrap()
    }

    /// Reads an answer of one JSON document a line, to its end.
    pub(crate) async fn lines<T: DeserializeOwned + Send + 'static>(&self, path: &str) -> mpsc::Receiver<T> {
        let bearer = format!("Bearer {}", self.token);
        let response = self.raw(Method::GET, path, Some(&bearer), Bytes::new()).await;
        assert_eq!(response.status(), StatusCode::OK);
        let (lines, received) = mpsc::channel(100);
        let body = response.into_body().into_data_stream().map_err(std::io::Error::other);
        tokio::spawn(async move {
            let mut body = StreamReader::new(body).lines();
            while let Ok(Some(line)) = body.next_line().await {
                if !line.is_empty() && lines.send(serde_json::from_str(&line).unwrap()).await.is_err() {
                    return;
                }
            }
        });
        received
    }

    /// A POST that has to succeed.
    pub(crate) async fn create<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> T {
        let (status, value) = self.post(path, body).await;
        assert!(status.is_success(), "{path}: {status} {value}");
        serde_json::from_value(value).unwrap()
    }
}
