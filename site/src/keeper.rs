//! The one task that owns the boot table. What changes is stored before anybody sees its effect.
//!
//! ```text
//!  executors ── set ──▶ ┌────────┐ ── store ──▶ boot-table.json
//!  boot HTTP ── ask ──▶ │ keeper │ ── publish ─▶ DHCP
//!  session ── lease ──▶ │        │ ── event ───▶ control: boot.fetched, boot.discovered
//!  DHCP ── unknown ───▶ └────────┘
//! ```

use std::{collections::BTreeSet, io, path::PathBuf, sync::Arc};

use futures::future::BoxFuture;
use ironwright_proto::ids::{Digest, Mac};
use ironwright_pxe::{
    Now, Table as Snapshot,
    dhcp::{Client, Seen},
    http::{Boots, ScriptAnswer},
    ipxe,
};
use serde_json::json;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use crate::{
    authority::Authority,
    discovery::Discoveries,
    durable,
    lease::SiteLease,
    script::Served,
    table::{Answer, BootTable, Entry, TableError},
};

/// Requests that wait for the keeper.
const QUEUE: usize = 256;
/// The file in the state folder.
const FILE: &str = "boot-table.json";
/// Largest table that is read: a full one has about 4 MiB.
const MAX_FILE: u64 = 32 << 20;

/// Why the table was not changed, or cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeeperError {
    #[error("cannot {doing} the boot table {path}")]
    File { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("the boot table {path} is damaged; remove it to start with an empty one")]
    Damaged { path: PathBuf, source: serde_json::Error },
    #[error(transparent)]
    Table(#[from] TableError),
    #[error("the site is stopping")]
    Stopping,
}

enum Request {
    Set(Mac, Entry, oneshot::Sender<Result<(), KeeperError>>),
    Ask(Mac, oneshot::Sender<ScriptAnswer>),
    Artifacts(oneshot::Sender<BTreeSet<Digest>>),
}

/// Talks to the keeper.
#[derive(Clone)]
pub(crate) struct KeeperClient(mpsc::Sender<Request>);

impl KeeperClient {
    /// Sets an entry; it is durable when this returns.
    pub(crate) async fn set(&self, mac: Mac, entry: Entry) -> Result<(), KeeperError> {
        let (done, answer) = oneshot::channel();
        self.0.send(Request::Set(mac, entry, done)).await.map_err(|_| KeeperError::Stopping)?;
        answer.await.map_err(|_| KeeperError::Stopping)?
    }

    /// Blobs that entries need.
    pub(crate) async fn artifacts(&self) -> Result<BTreeSet<Digest>, KeeperError> {
        let (done, answer) = oneshot::channel();
        self.0.send(Request::Artifacts(done)).await.map_err(|_| KeeperError::Stopping)?;
        answer.await.map_err(|_| KeeperError::Stopping)
    }
}

impl Boots for KeeperClient {
    fn script(&self, mac: Mac) -> BoxFuture<'_, ScriptAnswer> {
        Box::pin(async move {
            let (done, answer) = oneshot::channel();
            if self.0.send(Request::Ask(mac, done)).await.is_err() {
                return ScriptAnswer::NotNow;
            }
            answer.await.unwrap_or(ScriptAnswer::NotNow)
        })
    }
}

/// Owns table, lease and discoveries.
pub(crate) struct Keeper {
    table: BootTable,
    path: PathBuf,
    served: Served,
    lease: Option<SiteLease>,
    discoveries: Discoveries,
    requests: mpsc::Receiver<Request>,
    unknown: mpsc::Receiver<Seen>,
    publish: watch::Sender<Arc<Snapshot>>,
}

impl Keeper {
    /// Reads the table that an earlier run left.
    pub(crate) fn open(
        state_dir: &std::path::Path,
        served: Served,
        unknown: mpsc::Receiver<Seen>,
    ) -> Result<(Self, KeeperClient, watch::Receiver<Arc<Snapshot>>), KeeperError> {
        let path = state_dir.join(FILE);
        let text = durable::read(&path, MAX_FILE).map_err(|source| KeeperError::File {
            doing: "read",
            path: path.clone(),
            source,
        })?;
        let table = match text {
            Some(text) => BootTable::from_json(&text)
                .map_err(|source| KeeperError::Damaged { path: path.clone(), source })??,
            None => BootTable::default(),
        };
        let (publish, snapshots) = watch::channel(Arc::new(table.snapshot(None)));
        let (queue, requests) = mpsc::channel(QUEUE);
        let (lease, discoveries) = (None, Discoveries::default());
        let keeper = Self { table, path, served, lease, discoveries, requests, unknown, publish };
        Ok((keeper, KeeperClient(queue), snapshots))
    }

    /// Serves until shutdown.
    pub(crate) async fn run(mut self, mut authority: Authority, shutdown: CancellationToken) {
        self.report_spent(&authority);
        self.heard_lease(&mut authority);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                Some(request) = self.requests.recv() => match request {
                    Request::Set(mac, entry, done) => {
                        let _ = done.send(self.set(mac, entry).await);
                    }
                    Request::Ask(mac, done) => {
                        let _ = done.send(self.ask(mac, &authority).await);
                    }
                    Request::Artifacts(done) => {
                        let _ = done.send(self.table.artifacts());
                    }
                },
                Some((mac, client)) = self.unknown.recv() => {
                    self.discovered(mac, Some(client), &authority);
                }
                Ok(()) = authority.lease.changed() => self.heard_lease(&mut authority),
            }
        }
    }

    /// A crash between storing and reporting must not leave a machine without a token: control answers
    /// every report with a fresh one, and another report does no harm.
    fn report_spent(&self, authority: &Authority) {
        for (mac, ramdisk) in self.table.spent(Now::read().unix_ms) {
            authority.report.event("boot.fetched", json!({ "mac": mac, "machine": ramdisk.machine }));
        }
    }

    fn heard_lease(&mut self, authority: &mut Authority) {
        let heard = authority.lease.borrow_and_update();
        let lease = heard.as_ref().and_then(|heard| SiteLease::of(heard, &self.served.site));
        let epoch = |lease: Option<SiteLease>| lease.map(|lease| lease.epoch);
        if epoch(lease) != epoch(self.lease) {
            info!(epoch = epoch(lease), site = %self.served.site, "the site lease changed");
        }
        self.lease = lease;
        drop(heard);
        self.publish();
    }

    fn publish(&self) {
        let lease_until = self.lease.map(|lease| lease.until);
        self.publish.send_replace(Arc::new(self.table.snapshot(lease_until)));
    }

    async fn set(&mut self, mac: Mac, entry: Entry) -> Result<(), KeeperError> {
        let mut next = self.table.clone();
        next.set(mac, entry, Now::read().unix_ms)?;
        self.replace(next).await
    }

    /// Stores the next table; only then it counts.
    async fn replace(&mut self, next: BootTable) -> Result<(), KeeperError> {
        let failed = |source| KeeperError::File { doing: "write", path: self.path.clone(), source };
        let json = next.to_json().map_err(|error| failed(error.into()))?;
        let path = self.path.clone();
        let stored = tokio::task::spawn_blocking(move || durable::replace(&path, &json)).await;
        stored.map_err(|_| KeeperError::Stopping)?.map_err(failed)?;
        self.table = next;
        self.publish();
        Ok(())
    }

    async fn ask(&mut self, mac: Mac, authority: &Authority) -> ScriptAnswer {
        let now = Now::read();
        let epoch = self.lease.and_then(|lease| lease.epoch_at(now.mono));
        let (entry, epoch) = match self.table.ask(mac, epoch, now.unix_ms) {
            Answer::Unknown => {
                self.discovered(mac, None, authority);
                return ScriptAnswer::Unknown;
            }
            Answer::Local => return ScriptAnswer::Script(ipxe::local()),
            Answer::NoLease => return ScriptAnswer::NotNow,
            Answer::Ramdisk(entry, epoch) => (entry.clone(), epoch),
        };
        let (served, signer) = (self.served.clone(), authority.signer.clone());
        let ramdisk = entry.clone();
        let built = tokio::task::spawn_blocking(move || {
            served.script(mac, &ramdisk, epoch, &*signer, now.unix_ms).map_err(anyhow::Error::from)
        });
        let script = match built.await {
            Ok(Ok(script)) => script,
            Ok(Err(error)) => {
                error!(%mac, machine = %entry.machine, error = format!("{error:#}"), "cannot make the script");
                return ScriptAnswer::NotNow;
            }
            Err(_) => return ScriptAnswer::NotNow,
        };
        if entry.token.is_some() {
            let mut next = self.table.clone();
            next.spend(mac);
            if let Err(error) = self.replace(next).await {
                let error = format!("{:#}", anyhow::Error::from(error));
                error!(%mac, error, "the token stays unspent");
                return ScriptAnswer::NotNow;
            }
            info!(%mac, machine = %entry.machine, "handed out the join token");
            authority.report.event("boot.fetched", json!({ "mac": mac, "machine": entry.machine }));
        }
        ScriptAnswer::Script(script)
    }

    fn discovered(&mut self, mac: Mac, client: Option<Client>, authority: &Authority) {
        let now = Now::read();
        // DHCP also asks for machines that have an entry which the lease forbids: those are known.
        if !self.table.knows(mac, now) && self.discoveries.note(mac, now.mono) {
            info!(%mac, ?client, "an unknown machine wants to network boot");
            let via = if client.is_some() { "dhcp" } else { "http" };
            let client = client.map(|client| format!("{client:?}"));
            authority.report.event("boot.discovered", json!({ "mac": mac, "via": via, "client": client }));
        }
    }
}
