//! The running process: binds, serves, and ends cleanly.
//!
//! ```text
//! bind ── listen ── ready ── … ── shutdown ── no new connections, Drain to all agents ── ≤ 10 s ── driver ends
//! ```

use std::{collections::BTreeSet, io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Request, State},
    middleware::{self, Next},
    response::Response,
};
use ironwright_control_core::{Control, Settings, SetupError, store::StoreError};
use ironwright_images::store::Store as BlobStore;
use ironwright_proto::api::Image;
use rand::rngs::OsRng;
use time::OffsetDateTime;
use tokio::{
    sync::Semaphore,
    task::JoinHandle,
    time::{MissedTickBehavior, interval, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    Config,
    api::{self, Api},
    ca::{Authority, CaError, ServerIdentity},
    clock::unix_ms,
    config::Listen,
    driver::{self, Handle},
    gateway,
    init::STORE_FILE,
    join::{Issuer, JoinService},
    net::{Listener, ListenerLimits, PerClient, TlsError, api_tls, gateway_tls},
    sources::Transfers,
    store::RedbStore,
};

/// Folder of image bytes, in control's folder.
const BLOBS_DIR: &str = "blobs";

/// The one gateway of a redb store: only one process can have it open.
const GATEWAY: &str = "control";

/// Many nodes that join, and people, may share one address behind a NAT; each needs a place only for a moment.
const API_LIMITS: ListenerLimits = ListenerLimits {
    name: "api",
    connections: 1024,
    per_client: PerClient::All(128),
    window_bytes: 128 << 10,
};
/// A whole fleet may be behind one NAT with a connection each, and come back at once after a restart.
const GATEWAY_LIMITS: ListenerLimits = ListenerLimits {
    name: "gateway",
    connections: 16_384,
    per_client: PerClient::Handshakes(1024),
    window_bytes: 1 << 20,
};
/// Requests of joins that are read at the same time. Anybody may send them, and each may take 1 MiB of memory.
const MAX_JOINS: usize = 256;
const TICK: Duration = Duration::from_secs(1);
/// What still goes on after this long is cut.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(10);
/// When agents come back after a shutdown; long enough for a restart.
const DRAIN_RETRY_MS: u32 = 3_000;

/// Why control does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Another program has the port, or the address is not this machine's.
    #[error("listening on {address} for the {listener}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// `api` or `gateway`.
        listener: &'static str,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Keys and certificates.
    #[error(transparent)]
    Ca(#[from] CaError),
    /// TLS.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The store is in use, missing or damaged. It is never replaced by an empty one.
    #[error("opening the store {STORE_FILE}; only one control can run on a folder")]
    Open(#[source] StoreError),
    /// The store's disk failed while control was running; what was answered before is safe.
    #[error("using the store {STORE_FILE}")]
    Store(#[from] StoreError),
    /// The folder of image bytes.
    #[error("using the folder `{BLOBS_DIR}` of control's folder")]
    Blobs(#[source] ironwright_images::store::StoreError),
    /// What is in the store cannot be worked with.
    #[error("starting on what is in the store")]
    Start(#[from] SetupError),
    /// A bug: the driver ended by itself.
    #[error("control's driver ended by itself")]
    Driver,
}

/// Serves until `shutdown` is cancelled.
pub async fn serve(config: Config, shutdown: CancellationToken) -> Result<(), ServeError> {
    Server::bind(&config).await?.run(shutdown).await
}

/// A control that is bound to its ports.
pub struct Server {
    api: Listener,
    gateway: Listener,
    api_address: SocketAddr,
    gateway_address: SocketAddr,
    issuer: Arc<Issuer>,
    identity: Arc<ServerIdentity>,
    blobs: BlobStore,
    store: RedbStore,
    core: driver::Core,
    unfinished_images: Vec<Image>,
    max_image_bytes: u64,
}

impl Server {
    /// Opens everything and binds both ports; nothing is served yet.
    pub async fn bind(config: &Config) -> Result<Self, ServeError> {
        // First, because it is also the lock of the folder: a second control changes nothing in it.
        let store = RedbStore::open(&config.dir().join(STORE_FILE)).map_err(ServeError::Open)?;
        let ca = Authority::load(config.dir())?;
        let identity = ServerIdentity::load(config.dir(), &ca, config.names(), OffsetDateTime::now_utc())?;
        let blobs = BlobStore::at(&config.dir().join(BLOBS_DIR)).map_err(ServeError::Blobs)?;

        let (api, api_address, control_url) =
            bind(config, config.api(), api_tls(&identity)?, API_LIMITS).await?;
        let (gateway, gateway_address, gateway_url) =
            bind(config, config.gateway(), gateway_tls(&identity, &ca)?, GATEWAY_LIMITS).await?;

        let settings = Settings {
            control_url,
            ca_pin: ca.pin(),
            gateway: GATEWAY.to_owned(),
            ek_roots_pem: config.ek_roots_pem().to_owned(),
        };
        let mut core = Control::new(store.clone(), settings, unix_ms())?;
        let unfinished_images = core.resume_images(unix_ms()).map_err(SetupError::from)?;
        let kept: BTreeSet<[u8; 32]> = core
            .images()
            .map_err(SetupError::from)?
            .into_iter()
            .filter_map(|image| Some(image.digest?.0))
            .collect();
        blobs.gc(&kept).map_err(ServeError::Blobs)?;
        Ok(Self {
            api,
            gateway,
            api_address,
            gateway_address,
            issuer: Arc::new(Issuer::new(ca, gateway_url)),
            identity,
            blobs,
            store,
            core,
            unfinished_images,
            max_image_bytes: config.max_image_bytes(),
        })
    }

    /// Where the API listens.
    pub fn api_address(&self) -> SocketAddr {
        self.api_address
    }

    /// Where the gateway listens.
    pub fn gateway_address(&self) -> SocketAddr {
        self.gateway_address
    }

    /// Serves until `shutdown` is cancelled or the store fails.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), ServeError> {
        // A failed store ends everything as a shutdown does.
        let stop = shutdown.child_token();
        let abort = CancellationToken::new();
        let tasks = TaskTracker::new();
        let (handle, mut driver) = driver::start(self.core, self.store);

        let transfers = Transfers::new(
            handle.clone(),
            self.blobs.clone(),
            self.max_image_bytes,
            tasks.clone(),
            stop.clone(),
        );
        for image in self.unfinished_images {
            // The core knows the digest that was asked for, and checks it.
            transfers.fetch(image.name, image.source, None);
        }
        let join = JoinService::server(handle.clone(), self.issuer.clone(), self.identity);
        let api_routes = Router::new()
            .route_service("/ironwright.v1.Join/{method}", join)
            .layer(middleware::from_fn_with_state(Arc::new(Semaphore::new(MAX_JOINS)), take_turns))
            .layer(middleware::from_fn(api::time_limit))
            .merge(api::router(Api { driver: handle.clone(), transfers, shutdown: stop.clone() }));
        let gateway_routes =
            gateway::router(handle.clone(), self.issuer, self.blobs, tasks.clone(), stop.clone());

        tasks.spawn(self.api.serve(api_routes, tasks.clone(), stop.clone(), abort.clone()));
        tasks.spawn(self.gateway.serve(gateway_routes, tasks.clone(), stop.clone(), abort.clone()));
        tasks.spawn(tick(handle.clone(), stop.clone()));
        tasks.close();
        tracing::info!(api = %self.api_address, gateway = %self.gateway_address, "ready");

        let ended = tokio::select! {
            () = stop.cancelled() => None,
            ended = &mut driver => Some(ended),
        };
        stop.cancel();
        if let Some(ended) = ended {
            abort.cancel();
            return Err(ended
                .map_err(|_| ServeError::Driver)?
                .err()
                .map_or(ServeError::Driver, ServeError::Store));
        }
        end(handle, driver, &tasks, &abort).await
    }
}

async fn bind(
    config: &Config,
    listen: &Listen,
    tls: Arc<rustls::ServerConfig>,
    limits: ListenerLimits,
) -> Result<(Listener, SocketAddr, String), ServeError> {
    let failed = |source| ServeError::Listen { address: listen.address, listener: limits.name, source };
    let listener = Listener::bind(listen.address, tls, limits).await.map_err(failed)?;
    let address = listener.address().map_err(failed)?;
    let url = listen.url.clone().unwrap_or_else(|| config.names()[0].https(address.port()));
    Ok((listener, address, url))
}

/// Has requests wait for their turn, with their bodies unread.
async fn take_turns(State(turns): State<Arc<Semaphore>>, request: Request, next: Next) -> Response {
    // It is never closed; the time limit ends a wait that is too long.
    let _turn = turns.acquire().await;
    next.run(request).await
}

/// Time passes for the core.
async fn tick(handle: Handle, stop: CancellationToken) {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let ticked = handle
            .call_with_output(|core, now_ms| core.tick(now_ms, &mut OsRng).map(|output| ((), output)))
            .await;
        match ticked {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(error = &error as &dyn std::error::Error, "a tick failed"),
            Err(_) => return,
        }
    }
}

/// Lets what is under way finish, then ends the driver.
async fn end(
    handle: Handle,
    driver: JoinHandle<Result<(), StoreError>>,
    tasks: &TaskTracker,
    abort: &CancellationToken,
) -> Result<(), ServeError> {
    // Where the driver is gone, so are its sessions.
    let _ = handle.apply(|state, _| state.links.drain(DRAIN_RETRY_MS)).await;
    if timeout(SHUTDOWN_LIMIT, tasks.wait()).await.is_err() {
        tracing::warn!("cutting what did not end in time");
        abort.cancel();
    }
    handle.stop().await;
    driver.await.map_err(|_| ServeError::Driver)?.map_err(ServeError::Store)
}
