//! A control plane whose every answer is the test's: the join service on one port, the gateway on another.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use ironwright_proto::{
    Message,
    envelope::{TIME, pre_auth_encoding},
    wire::{
        AgentFrame, Envelope, GatewayFrame, JoinFinish, JoinGrant, JoinRound, RenewRequest, TimePayload,
        TimeRequest, TokenJoin,
        gateway_server::{Gateway, GatewayServer},
        join_server::{Join, JoinServer},
    },
};
use ironwright_tpm::verify::EkRoots;
use rcgen::{KeyPair, SigningKey};
use rustls::{
    RootCertStore, ServerConfig,
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::{net::TcpListener, sync::mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::{Request, Response, Status, Streaming, service::Routes};

use crate::{
    authority::{Authority, CURRENT, Years},
    tpm::Pending,
};

pub(crate) const NODE: &str = "n-1";

/// How joins are answered.
#[derive(Clone)]
pub(crate) enum JoinAnswer {
    Grant(Years),
    /// A certificate that soon expires, and no renewals.
    Brief(Duration),
    Refuse(&'static str),
    /// A certificate for another key than the one asked for.
    OtherKey,
    /// A certificate of another CA.
    OtherCa,
}

/// How `Join.Time` is answered.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum TimeAnswer {
    Good(i64),
    /// Repeats another nonce.
    Replayed,
    /// Signed by a node's certificate.
    ByNode,
    /// The signature is over other bytes.
    Forged,
}

/// One session's two ends.
pub(crate) struct Peer {
    pub(crate) from_agent: Streaming<AgentFrame>,
    pub(crate) to_agent: mpsc::Sender<Result<GatewayFrame, Status>>,
}

pub(crate) struct Control {
    pub(crate) shared: Arc<Shared>,
    pub(crate) api_url: String,
    sessions: mpsc::Receiver<Peer>,
    _servers: [AbortOnDropHandle<()>; 2],
}

pub(crate) struct Shared {
    pub(crate) authority: Authority,
    pub(crate) join: Mutex<JoinAnswer>,
    pub(crate) time: Mutex<TimeAnswer>,
    pub(crate) joins: AtomicUsize,
    pub(crate) renewals: AtomicUsize,
    /// Joins by TPM: whom control trusts, and the join between its rounds.
    pub(crate) ek_roots: Mutex<Option<EkRoots>>,
    pending: Mutex<Option<Pending>>,
    pub(crate) last_join: Mutex<Option<TokenJoin>>,
    gateway_url: String,
    server: (Vec<CertificateDer<'static>>, KeyPair),
    sessions: mpsc::Sender<Peer>,
}

impl Control {
    pub(crate) async fn start() -> Self {
        Self::start_with(CURRENT).await
    }

    /// With a server certificate of these years on the API's port.
    pub(crate) async fn start_with(api_years: Years) -> Self {
        let authority = Authority::new();
        let (api, gateway) = (listen().await, listen().await);
        let url = |listener: &TcpListener| format!("https://{}", listener.local_addr().unwrap());
        let api_url = url(&api);
        let (sessions, opened) = mpsc::channel(16);
        let server = authority.server(api_years);
        let gateway_tls = server_config(&authority.server(CURRENT), Some(client_verifier(&authority)));
        let shared = Arc::new(Shared {
            join: Mutex::new(JoinAnswer::Grant(CURRENT)),
            time: Mutex::new(TimeAnswer::Good(0)),
            joins: AtomicUsize::new(0),
            renewals: AtomicUsize::new(0),
            ek_roots: Mutex::new(None),
            pending: Mutex::new(None),
            last_join: Mutex::new(None),
            gateway_url: url(&gateway),
            server,
            sessions,
            authority,
        });
        let join = Routes::new(JoinServer::from_arc(Arc::new(Service(shared.clone()))));
        let session = Routes::new(GatewayServer::from_arc(Arc::new(Service(shared.clone()))));
        let servers =
            [serve(api, server_config(&shared.server, None), join), serve(gateway, gateway_tls, session)];
        Self { shared, api_url, sessions: opened, _servers: servers }
    }

    /// The next session that an agent opens.
    pub(crate) async fn session(&mut self) -> Peer {
        crate::rig::soon("a session", self.sessions.recv()).await.expect("the gateway runs")
    }
}

async fn listen() -> TcpListener {
    TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap()
}

fn client_verifier(authority: &Authority) -> Arc<dyn ClientCertVerifier> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap()
}

fn server_config(
    (chain, key): &(Vec<CertificateDer<'static>>, KeyPair),
    clients: Option<Arc<dyn ClientCertVerifier>>,
) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let builder = match clients {
        Some(verifier) => builder.with_client_cert_verifier(verifier),
        None => builder.with_no_client_auth(),
    };
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let mut config = builder.with_single_cert(chain.clone(), key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}

/// Serves until dropped; connections end with it.
fn serve(listener: TcpListener, tls: ServerConfig, routes: Routes) -> AbortOnDropHandle<()> {
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    AbortOnDropHandle::new(tokio::spawn(async move {
        let mut connections = tokio::task::JoinSet::new();
        loop {
            let Ok((stream, _)) = listener.accept().await else { return };
            let (acceptor, routes) = (acceptor.clone(), routes.clone());
            connections.spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                let service = TowerToHyperService::new(routes);
                let server = auto::Builder::new(TokioExecutor::new());
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    }))
}

struct Service(Arc<Shared>);

#[tonic::async_trait]
impl Join for Service {
    async fn time(&self, request: Request<TimeRequest>) -> Result<Response<Envelope>, Status> {
        let answer = *self.0.time.lock().unwrap();
        let mut payload = TimePayload { nonce: request.into_inner().nonce, unix_ms: 0 };
        match answer {
            TimeAnswer::Good(unix_ms) => payload.unix_ms = unix_ms,
            TimeAnswer::Replayed => payload.nonce = vec![0; 32],
            TimeAnswer::ByNode | TimeAnswer::Forged => {}
        }
        let node = self.0.authority.client();
        let (chain, key) = if answer == TimeAnswer::ByNode { &node } else { &self.0.server };
        let mut payload = payload.encode_to_vec();
        let signature = key.sign(&pre_auth_encoding(TIME, &payload)).unwrap();
        if answer == TimeAnswer::Forged {
            payload.extend(TimePayload { unix_ms: 9, ..TimePayload::default() }.encode_to_vec());
        }
        let chain = chain.iter().map(|der| der.to_vec()).collect();
        let (payload_type, key_id) = (TIME.to_owned(), "control".to_owned());
        Ok(Response::new(Envelope { payload_type, payload, key_id, signature, chain }))
    }

    async fn begin(&self, request: Request<JoinRound>) -> Result<Response<JoinRound>, Status> {
        let roots = self.0.ek_roots.lock().unwrap().take().expect("the test gave EK roots");
        let (pending, body) = Pending::begin(&request.into_inner().body, &roots);
        *self.0.pending.lock().unwrap() = Some(pending);
        Ok(Response::new(JoinRound { body }))
    }

    async fn finish(&self, request: Request<JoinFinish>) -> Result<Response<JoinGrant>, Status> {
        let pending = self.0.pending.lock().unwrap().take().expect("a first round");
        let csr_der = pending.finish(&request.into_inner());
        match *self.0.join.lock().unwrap() {
            JoinAnswer::Refuse(code) => Err(Status::permission_denied(code)),
            _ => Ok(Response::new(self.0.authority.grant(&csr_der, NODE, &self.0.gateway_url, CURRENT))),
        }
    }

    async fn with_token(&self, request: Request<TokenJoin>) -> Result<Response<JoinGrant>, Status> {
        let shared = &self.0;
        shared.joins.fetch_add(1, Ordering::SeqCst);
        let join = request.into_inner();
        *shared.last_join.lock().unwrap() = Some(join.clone());
        let answer = shared.join.lock().unwrap().clone();
        let grant =
            |authority: &Authority, csr: &[u8], years| authority.grant(csr, NODE, &shared.gateway_url, years);
        Ok(Response::new(match answer {
            JoinAnswer::Grant(years) => grant(&shared.authority, &join.csr_der, years),
            JoinAnswer::Brief(life) => {
                shared.authority.brief_grant(&join.csr_der, NODE, &shared.gateway_url, life)
            }
            JoinAnswer::Refuse(code) => return Err(Status::permission_denied(code)),
            JoinAnswer::OtherCa => grant(&Authority::new(), &join.csr_der, CURRENT),
            JoinAnswer::OtherKey => {
                let key = KeyPair::generate().unwrap();
                let csr = rcgen::CertificateParams::default().serialize_request(&key).unwrap();
                grant(&shared.authority, csr.der(), CURRENT)
            }
        }))
    }
}

#[tonic::async_trait]
impl Gateway for Service {
    type SessionStream = ReceiverStream<Result<GatewayFrame, Status>>;

    async fn session(
        &self,
        request: Request<Streaming<AgentFrame>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let (to_agent, frames) = mpsc::channel(16);
        let peer = Peer { from_agent: request.into_inner(), to_agent };
        self.0.sessions.send(peer).await.map_err(|_| Status::unavailable("the test is over"))?;
        Ok(Response::new(ReceiverStream::new(frames)))
    }

    async fn renew(&self, request: Request<RenewRequest>) -> Result<Response<JoinGrant>, Status> {
        self.0.renewals.fetch_add(1, Ordering::SeqCst);
        if matches!(*self.0.join.lock().unwrap(), JoinAnswer::Brief(_)) {
            return Err(Status::unavailable("no renewals"));
        }
        let csr_der = request.into_inner().csr_der;
        Ok(Response::new(self.0.authority.grant(&csr_der, NODE, &self.0.gateway_url, CURRENT)))
    }
}
