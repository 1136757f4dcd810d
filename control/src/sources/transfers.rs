//! Fetches and uploads that are under way.

use std::{
    io::{BufReader, Read},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use ironwright_control_core::images::ImageFacts;
use ironwright_images::store::Store;
use ironwright_proto::{
    api::Image,
    ids::{Digest, Name},
};
use tokio::{
    sync::oneshot,
    time::{MissedTickBehavior, interval},
};
use tokio_util::{
    io::{StreamReader, SyncIoBridge},
    sync::CancellationToken,
    task::TaskTracker,
};

use super::{
    ImageFolder, Source, SourceError, guard,
    image_url::{ImageUrl, check_url},
    ingest::{Bounds, Origin, ingest},
    turns::{Turn, Turns},
    web,
};
use crate::driver::{Core, Handle, Stopped};

const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);
/// A refused upload is read on for this long.
const LINGER_LIMIT: Duration = Duration::from_secs(30);
const BUFFER_BYTES: usize = 256 << 10;

/// Brings bytes into control's blob folder and tells the core how it went.
#[derive(Clone)]
pub(crate) struct Transfers {
    driver: Handle,
    store: Store,
    bounds: Bounds,
    folder: ImageFolder,
    turns: Turns,
    tasks: TaskTracker,
    shutdown: CancellationToken,
}

impl Transfers {
    pub(crate) fn new(
        driver: Handle,
        store: Store,
        bounds: Bounds,
        folder: ImageFolder,
        tasks: TaskTracker,
        shutdown: CancellationToken,
    ) -> Self {
        Self { driver, store, bounds, folder, turns: Turns::new(), tasks, shutdown }
    }

    /// Checks a URL before anything is registered: the code of the API and what is wrong.
    pub(crate) fn check_url(&self, text: &str) -> Result<(), (&'static str, String)> {
        match check_url(text).map_err(|why| ("bad_request", why))? {
            ImageUrl::Web(_) => Ok(()),
            ImageUrl::File(path) => {
                self.folder.place(&path).map(drop).map_err(|error| (error.code(), error.to_string()))
            }
        }
    }

    /// Fetches a registered image in the background.
    pub(crate) fn fetch(&self, name: Name, url: String, expected: Option<Digest>) {
        let this = self.clone();
        self.tasks.spawn(async move {
            let result = this.fetch_bytes(&name, &url, expected).await;
            if let Err(Stopped) = this.report(&name, result).await {
                tracing::debug!(image = %name, "control stopped during a fetch; the next start fetches it again");
            }
        });
    }

    async fn fetch_bytes(
        &self,
        name: &Name,
        url: &str,
        expected: Option<Digest>,
    ) -> Result<ImageFacts, SourceError> {
        let unreachable = |why| SourceError::Unreachable { url: url.to_owned(), why };
        let _turn = tokio::select! {
            () = self.shutdown.cancelled() => return Err(SourceError::Stopping),
            turn = self.turns.take() => turn,
        };
        let opening = async {
            match check_url(url).map_err(unreachable)? {
                ImageUrl::Web(url) => web::open(&url).await.map_err(unreachable),
                ImageUrl::File(path) => self.folder.open(&path).await,
            }
        };
        let source = tokio::select! {
            () = self.shutdown.cancelled() => return Err(SourceError::Stopping),
            source = opening => source?,
        };
        self.store(name, source, Origin::Url(url.to_owned()), expected).await
    }

    /// The turn of an upload; `None` where control is busy with others.
    pub(crate) async fn upload_turn(&self) -> Result<Option<Turn>, Stopped> {
        tokio::select! {
            () = self.shutdown.cancelled() => Err(Stopped),
            turn = self.turns.take_soon() => Ok(turn),
        }
    }

    /// Stores the bytes of an upload that was just registered. Goes on to a definite end also when the caller is
    /// dropped, as happens when its connection breaks.
    pub(crate) async fn upload(
        &self,
        turn: Turn,
        name: Name,
        source: Source,
        expected: Option<Digest>,
    ) -> Result<Image, Stopped> {
        let this = self.clone();
        let task = self.tasks.spawn(async move {
            let result = this.store(&name, source, Origin::Upload, expected).await;
            drop(turn);
            this.report(&name, result).await
        });
        task.await.map_err(|_| Stopped)?
    }

    /// Removes bytes that no image has any more. A failure costs only space, which the next start takes back.
    pub(crate) async fn forget(&self, digest: Digest) -> Result<(), Stopped> {
        let store = self.store.clone();
        // On the driver, as the reports of other transfers are: one that ends now finds its bytes, or finds them gone.
        let out = self
            .driver
            .call(move |core, _| match core.image_has_bytes(&digest) {
                Ok(false) => store.take_out(&digest.0).map_err(|e| e.to_string()),
                Ok(true) => Ok(None),
                Err(e) => Err(e.to_string()),
            })
            .await?;
        match out {
            // Unlinking a large file takes time.
            Ok(out) => drop(tokio::task::spawn_blocking(move || drop(out))),
            Err(error) => {
                tracing::warn!(%digest, error, "the bytes of a removed image stay until the next start");
            }
        }
        Ok(())
    }

    async fn store(
        &self,
        name: &Name,
        source: Source,
        origin: Origin,
        expected: Option<Digest>,
    ) -> Result<ImageFacts, SourceError> {
        let count = Arc::new(AtomicU64::new(0));
        let guarded = guard::guarded(source.bytes, count.clone(), self.shutdown.clone());
        let (store, bounds) = (self.store.clone(), self.bounds.clone());
        let (done, mut stored) = oneshot::channel();
        tokio::task::spawn_blocking(move || {
            let bridge = SyncIoBridge::new(StreamReader::new(guarded));
            let mut reader = BufReader::with_capacity(BUFFER_BYTES, bridge);
            let fits = bounds.room.check(source.len.unwrap_or(0));
            let result = fits.and_then(|()| ingest(&store, &mut reader, &origin, &bounds, expected));
            let linger = result.is_err() && matches!(origin, Origin::Upload);
            // Nobody waits any more only when control ends.
            let _ = done.send(result);
            if linger {
                read_on(&mut reader);
            }
        });
        let mut ticks = interval(PROGRESS_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                stored = &mut stored => {
                    return stored.unwrap_or_else(|_| Err(SourceError::Storing("its thread died".to_owned())));
                }
                _ = ticks.tick() => {
                    let (name, fetched) = (name.clone(), count.load(Ordering::Relaxed));
                    // Without a driver the shutdown ends the loop.
                    let _ = self.driver.call(move |core, _| core.image_progress(&name, fetched)).await;
                }
            }
        }
    }

    /// Tells the core; on shutdown it is told nothing, so that the next start knows what to do again.
    async fn report(&self, name: &Name, result: Result<ImageFacts, SourceError>) -> Result<Image, Stopped> {
        if let Err(error) = &result {
            tracing::warn!(image = %name, code = error.code(), %error, "no image");
        }
        let name = name.clone();
        let reported = match result {
            Err(SourceError::Stopping) => return Err(Stopped),
            Ok(facts) => {
                let store = self.store.clone();
                let fetched = move |core: &mut Core, now_ms| {
                    if store.contains(&facts.digest.0) {
                        core.image_fetched(&name, &facts, now_ms)
                    } else {
                        core.image_failed(&name, SourceError::Removed.to_api(), now_ms)
                    }
                };
                self.driver.call(fetched).await?
            }
            Err(error) => {
                let body = error.to_api();
                self.driver.call(move |core, now_ms| core.image_failed(&name, body, now_ms)).await?
            }
        };
        reported.map_err(|error| {
            tracing::error!(error = &error as &dyn std::error::Error, "an image's end could not be recorded");
            Stopped
        })
    }
}

/// Reads on for a while, so that an upload's client, which is still sending, gets to its answer.
fn read_on(reader: &mut impl Read) {
    let end = Instant::now() + LINGER_LIMIT;
    let mut ignored = vec![0; BUFFER_BYTES];
    while Instant::now() < end && matches!(reader.read(&mut ignored), Ok(1..)) {}
}
