use axum::routing::get;
use rcgen::{KeyPair, PublicKeyData};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use rustls_pki_types::{PrivateKeyDer, ServerName};
use time::OffsetDateTime;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::{Instant as TokioInstant, sleep, timeout_at},
};
use tokio_rustls::{TlsConnector, client};

use super::*;
use crate::{
    ca::{Authority, ServerIdentity},
    net::{api_tls, gateway_tls},
};

/// Whatever is waited for comes within this time.
const DEADLINE: Duration = Duration::from_secs(30);
const LIMITS: ListenerLimits =
    ListenerLimits { name: "test", connections: 100, per_client: PerClient::All(3), window_bytes: 1 << 16 };

/// A listener on loopback, and a client of it that can show a node certificate.
struct Served {
    address: SocketAddr,
    client: TlsConnector,
    shutdown: CancellationToken,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

impl Served {
    async fn start(per_client: PerClient) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let now = OffsetDateTime::now_utc();
        let ca = Authority::create(dir.path(), now).unwrap();
        let names = ["localhost".parse().unwrap()];
        let server = ServerIdentity::create(dir.path(), &ca, &names, now).unwrap();
        let tls = match per_client {
            PerClient::All(_) => api_tls(&server).unwrap(),
            PerClient::Handshakes(_) => gateway_tls(&server, &ca).unwrap(),
        };
        let limits = ListenerLimits { per_client, ..LIMITS };
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), tls, limits).await.unwrap();
        let address = listener.address().unwrap();
        let shutdown = CancellationToken::new();
        let router = Router::new().route("/", get(|| async { "here" }));
        tokio::spawn(listener.serve(router, TaskTracker::new(), shutdown.clone(), CancellationToken::new()));

        let mut roots = RootCertStore::empty();
        roots.add(ca.certificate().clone()).unwrap();
        let key = KeyPair::generate().unwrap();
        let node = ca.issue_node("n-1", &key.subject_public_key_info(), now).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![node], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
            .unwrap();
        Self { address, client: TlsConnector::from(Arc::new(config)), shutdown }
    }

    /// A connection on which a request was answered; an error where it is refused.
    async fn ask(&self) -> io::Result<client::TlsStream<TcpStream>> {
        let tcp = TcpStream::connect(self.address).await?;
        let mut tls = self.client.connect(ServerName::try_from("localhost").unwrap(), tcp).await?;
        tls.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await?;
        tls.read_u8().await?;
        Ok(tls)
    }

    /// The same, once there is a place.
    async fn ask_until_let_in(&self) -> client::TlsStream<TcpStream> {
        let end = TokioInstant::now() + DEADLINE;
        loop {
            match timeout_at(end, self.ask()).await.expect("an answer in time") {
                Ok(stream) => return stream,
                Err(_) => sleep(Duration::from_millis(10)).await,
            }
        }
    }
}

#[tokio::test]
async fn one_address_has_a_bounded_part_of_all_connections() {
    let served = Served::start(PerClient::All(3)).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(served.ask().await.unwrap());
    }
    assert!(served.ask().await.is_err(), "the fourth is refused");
    held.pop();
    held.push(served.ask_until_let_in().await);
}

#[tokio::test]
async fn connections_that_showed_a_node_certificate_do_not_count_and_handshakes_do() {
    let served = Served::start(PerClient::Handshakes(3)).await;
    let mut nodes = Vec::new();
    for _ in 0..10 {
        nodes.push(served.ask().await.unwrap());
    }
    let mut silent = Vec::new();
    for _ in 0..3 {
        silent.push(TcpStream::connect(served.address).await.unwrap());
    }
    assert!(served.ask().await.is_err(), "three handshakes are under way");
    silent.pop();
    nodes.push(served.ask_until_let_in().await);
}
