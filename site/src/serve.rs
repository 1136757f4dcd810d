//! The servers of a site, as one thing that is opened, told of control, and run.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context;
use ironwright_agent::Executor;
use ironwright_proto::ids::Digest;
use ironwright_pxe::{
    dhcp::{Config as DhcpConfig, Counters, Leases, Mode, SaveLeases, Server as DhcpServer, Sockets},
    files::Files,
    http::Server as HttpServer,
    tftp::Server as TftpServer,
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    authority::{Authority, Upstream},
    cache::Cache,
    config::Config,
    durable,
    executors::SiteExecutor,
    keeper::{Keeper, KeeperClient},
    script::Served,
};

/// Unknown machines that DHCP saw and the keeper has not looked at.
const UNKNOWN_QUEUE: usize = 64;
/// The file of DHCP leases, in the state folder.
const LEASES_FILE: &str = "dhcp-leases";
/// A full pool's leases have about 200 KiB.
const MAX_LEASES_FILE: u64 = 4 << 20;

/// A site whose sockets are bound and whose state is read.
pub struct Site {
    http: HttpServer,
    tftp: TftpServer,
    dhcp: Option<DhcpServer>,
    files: Arc<Files>,
    cache: Cache,
    served: Served,
    keeper: Keeper,
    client: KeeperClient,
}

/// Where a site listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// Boot HTTP.
    pub http: SocketAddr,
    /// TFTP.
    pub tftp: SocketAddr,
}

impl Site {
    /// Reads kernel, ramdisk, boot files and state, and binds all sockets. Port 0 takes a free one.
    pub async fn open(config: &Config) -> anyhow::Result<Self> {
        let state_dir = config.state_dir.clone();
        std::fs::create_dir_all(&state_dir).with_context(|| format!("creating {}", state_dir.display()))?;
        let files = Arc::new(Files::load(config.boot_files())?);
        let http = HttpServer::bind((config.address, config.http_port).into()).await?;
        let tftp = TftpServer::bind((config.address, config.tftp_port).into()).await?;
        let addresses = Addresses { http: http.local_addr(), tftp: tftp.local_addr() };
        let dhcp = config.dhcp(addresses.http.port())?;
        let sockets = dhcp.as_ref().map(|_| Sockets::bind(config.interface.as_deref())).transpose()?;

        let cache = Cache::open(&state_dir.join("cache"))?;
        let served = Served {
            site: config.site.clone(),
            base_url: format!("http://{}", addresses.http),
            kernel: cache.add_file(&config.kernel).await?,
            ramdisk: cache.add_file(&config.ramdisk).await?,
            agent_bundle: add_some(&cache, config.agent_bundle.as_deref()).await?,
            kernel_args: config.kernel_args.clone(),
        };
        let (unknown, seen) = mpsc::channel(UNKNOWN_QUEUE);
        let (keeper, client, table) = Keeper::open(&state_dir, served.clone(), seen)?;
        let dhcp = match dhcp.zip(sockets) {
            None => None,
            Some((config, sockets)) => {
                let (leases, save) = leases(&config, state_dir.join(LEASES_FILE))?;
                let counters = Arc::new(Counters::default());
                Some(DhcpServer { sockets, config, table, leases, save, unknown, counters })
            }
        };
        Ok(Self { http, tftp, dhcp, files, cache, served, keeper, client })
    }

    /// Where it listens.
    pub fn addresses(&self) -> Addresses {
        Addresses { http: self.http.local_addr(), tftp: self.tftp.local_addr() }
    }

    /// Base URL of boot HTTP, as machines reach it.
    pub fn base_url(&self) -> &str {
        &self.served.base_url
    }

    /// Runs `boot.prepare` and `boot.local`; blobs come from `upstream`.
    pub fn executor(&self, upstream: Arc<dyn Upstream>) -> Arc<dyn Executor> {
        Arc::new(SiteExecutor {
            keeper: self.client.clone(),
            cache: self.cache.clone(),
            upstream,
            served: self.served.clone(),
        })
    }

    /// Serves until shutdown, or until a socket fails; then everything stops.
    pub async fn run(self, authority: Authority, shutdown: CancellationToken) -> anyhow::Result<()> {
        let stop = shutdown.child_token();
        let _stop_all = stop.clone().drop_guard();
        let addresses = self.addresses();
        info!(
            site = %self.served.site,
            http = %addresses.http,
            tftp = %addresses.tftp,
            dhcp = self.dhcp.as_ref().map_or("off", |dhcp| mode(&dhcp.config)),
            kernel = %self.served.kernel,
            ramdisk = %self.served.ramdisk,
            "the site is ready"
        );
        let blobs = Arc::new(self.cache);
        let boots = Arc::new(self.client);
        let dhcp = async {
            match self.dhcp {
                Some(dhcp) => dhcp.run(stop.clone()).await.context("serving DHCP"),
                None => Ok(()),
            }
        };
        let tftp = async { self.tftp.run(self.files.clone(), stop.clone()).await.context("serving TFTP") };
        let http = async {
            self.http.run(self.files.clone(), blobs, boots, stop.clone()).await;
            Ok(())
        };
        let keeper = async {
            self.keeper.run(authority, stop.clone()).await;
            Ok(())
        };
        tokio::try_join!(dhcp, tftp, http, keeper)?;
        Ok(())
    }
}

async fn add_some(cache: &Cache, path: Option<&Path>) -> anyhow::Result<Option<Digest>> {
    match path {
        Some(path) => Ok(Some(cache.add_file(path).await?)),
        None => Ok(None),
    }
}

fn mode(config: &DhcpConfig) -> &'static str {
    if matches!(config.mode, Mode::Proxy) { "proxy" } else { "server" }
}

/// Leases that an earlier run granted, and the way to store new ones.
fn leases(config: &DhcpConfig, path: PathBuf) -> anyhow::Result<(Leases, SaveLeases)> {
    let mut leases = Leases::default();
    if let Mode::Server(subnet) = &config.mode {
        let text = durable::read(&path, MAX_LEASES_FILE)
            .with_context(|| format!("reading DHCP leases from {}", path.display()))?;
        let skipped;
        (leases, skipped) = Leases::read_text(subnet.pool, &text.unwrap_or_default());
        if skipped > 0 {
            warn!(skipped, path = %path.display(), "DHCP leases that do not fit the pool were left out");
        }
    }
    let save = move |text: &str| -> io::Result<()> { durable::replace(&path, text.as_bytes()) };
    Ok((leases, Arc::new(save)))
}
