//! The running process: binds, serves, and ends cleanly.
//!
//! ```text
//! bind ── listen ── ready ── … ── shutdown ── no new connections, Drain to all agents ── ≤ 10 s ── driver ends
//! ```

use std::{
    collections::BTreeSet,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use axum::{
    Router,
    extract::{Request, State},
    middleware::{self, Next},
    response::Response,
};
use ironwright_control_core::{Control, Settings, SetupError, store::StoreError};
use ironwright_images::store::Store as BlobStore;
use ironwright_proto::api::{Image, ImageState};
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
    sources::{Bounds, ImageFolder, Room, Transfers, free_bytes},
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
    connections: 32_768,
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
    /// Control's own folder.
    #[error("looking at the folder `{dir}`")]
    Folder {
        /// The folder.
        dir: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The store needs space. Nothing that was answered is lost.
    #[error("the disk is full: {free} bytes are left; free space in `{dir}`, then start control again")]
    DiskFull {
        /// Control's folder.
        dir: PathBuf,
        /// What is left.
        free: u64,
        /// What failed.
        #[source]
        source: Box<ServeError>,
    },
    /// A bug: the driver ended by itself.
    #[error("control's driver ended by itself")]
    Driver,
}

/// With less than this left, a failing store most likely fails for want of space. It does not always say so: after the
/// first failed write its errors only name that.
const FULL_BYTES: u64 = 16 << 20;

impl ServeError {
    /// Says what to do where the disk is full.
    fn explained(self, dir: &Path) -> Self {
        // Where even this fails, the error at hand is the better one.
        self.with_free(dir, free_bytes(dir).unwrap_or(u64::MAX))
    }

    fn with_free(self, dir: &Path, free: u64) -> Self {
        let writes =
            matches!(self, Self::Open(_) | Self::Store(_) | Self::Blobs(_) | Self::Start(_) | Self::Ca(_));
        if !writes || free >= FULL_BYTES {
            return self;
        }
        Self::DiskFull { dir: dir.to_owned(), free, source: Box::new(self) }
    }
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
    image_bounds: Bounds,
    image_folder: ImageFolder,
    dir: PathBuf,
}

impl Server {
    /// Opens everything and binds both ports; nothing is served yet.
    pub async fn bind(config: &Config) -> Result<Self, ServeError> {
        Self::open(config).await.map_err(|error| error.explained(config.dir()))
    }

    async fn open(config: &Config) -> Result<Self, ServeError> {
        // First, because it is also the lock of the folder: a second control changes nothing in it.
        let store = RedbStore::open(&config.dir().join(STORE_FILE)).map_err(ServeError::Open)?;
        let ca = Authority::load(config.dir())?;
        let identity = ServerIdentity::load(config.dir(), &ca, config.names(), OffsetDateTime::now_utc())?;
        let room = Room::of(config.dir())
            .map_err(|source| ServeError::Folder { dir: config.dir().to_owned(), source })?;
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
        let images = core.images().map_err(SetupError::from)?;
        tell_of_lost_images(&images, &blobs);
        let kept: BTreeSet<[u8; 32]> = images.into_iter().filter_map(|image| Some(image.digest?.0)).collect();
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
            image_bounds: Bounds { most: config.max_image_bytes(), room },
            image_folder: ImageFolder(config.image_folder().map(Path::to_owned)),
            dir: config.dir().into(),
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
            self.image_bounds,
            self.image_folder,
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
            let error = ended.map_err(|_| ServeError::Driver)?.err();
            return Err(error.map_or(ServeError::Driver, ServeError::Store).explained(&self.dir));
        }
        end(handle, driver, &tasks, &abort).await.map_err(|error| error.explained(&self.dir))
    }
}

/// Names the images whose bytes are gone, as after a restored backup without them; runs would fail at their site.
fn tell_of_lost_images(images: &[Image], blobs: &BlobStore) {
    for image in lost_images(images, blobs) {
        tracing::error!(
            image = %image.name,
            "the bytes of this image are missing in the folder `{BLOBS_DIR}`; restore them, or remove the image \
             and add it again"
        );
    }
}

fn lost_images<'i>(images: &'i [Image], blobs: &BlobStore) -> impl Iterator<Item = &'i Image> {
    images.iter().filter(|image| {
        image.state == ImageState::Ready && image.digest.is_some_and(|digest| !blobs.contains(&digest.0))
    })
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

#[cfg(test)]
mod tests {
    use ironwright_proto::ids::Digest;

    use super::*;

    #[test]
    fn a_store_that_fails_on_a_full_disk_says_what_to_do() {
        let failed = || ServeError::Store(StoreError::backend("syncing", io::Error::other("previous")));
        let dir = Path::new("/srv/control");
        let said = failed().with_free(dir, 4096).to_string();
        assert!(said.contains("free space in `/srv/control`, then start control again"), "{said}");
        assert!(matches!(failed().with_free(dir, 1 << 30), ServeError::Store(_)));
        assert!(matches!(ServeError::Driver.with_free(dir, 0), ServeError::Driver));
    }

    #[test]
    fn a_ready_image_without_its_bytes_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = BlobStore::at(dir.path()).unwrap();
        let kept = blobs.ingest(&mut &b"abc"[..], 3, None).unwrap().digest;
        let image = |name: &str, state, digest| Image {
            name: name.parse().unwrap(),
            source: "upload".to_owned(),
            state,
            digest: Some(Digest(digest)),
            size_bytes: 3,
            raw_size_bytes: 3,
            format: None,
            fetched_bytes: 3,
            error: None,
            created_ms: 0,
        };
        let images = [
            image("kept", ImageState::Ready, kept),
            image("lost", ImageState::Ready, [7; 32]),
            image("failed", ImageState::Failed, [7; 32]),
        ];
        let lost: Vec<_> = lost_images(&images, &blobs).map(|image| image.name.as_str()).collect();
        assert_eq!(lost, ["lost"]);
    }
}
