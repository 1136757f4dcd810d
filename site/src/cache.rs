//! The site's blobs on disk, by digest.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use ironwright_images::store::{Store, StoreError, Writer};
use ironwright_proto::ids::Digest;
use ironwright_pxe::http::Blobs;
use nix::sys::statvfs::statvfs;
use tokio::{
    sync::mpsc,
    task::{JoinHandle, spawn_blocking},
};
use tracing::info;

/// Largest blob.
const MAX_BLOB: u64 = 1 << 40;
/// Free space that a blob must leave, for the boot table and everybody else on that disk.
const MIN_FREE: u64 = 256 << 20;

/// Why a blob is not in the cache.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CacheError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot {doing} {path}")]
    File { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("writing a blob")]
    Write(#[source] io::Error),
    #[error("a blob of {needed} bytes does not fit: {free} bytes are free, and {MIN_FREE} have to stay so")]
    Full { needed: u64, free: u64 },
    #[error("the site is stopping")]
    Stopping,
}

/// The cache. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Cache {
    store: Store,
    dir: PathBuf,
}

impl Cache {
    pub(crate) fn open(dir: &Path) -> Result<Self, CacheError> {
        Ok(Self { store: Store::at(dir)?, dir: dir.to_owned() })
    }

    /// Copies a file in.
    pub(crate) async fn add_file(&self, path: &Path) -> Result<Digest, CacheError> {
        let (store, path) = (self.store.clone(), path.to_owned());
        blocking(move || {
            let mut file = File::open(&path).map_err(|source| CacheError::File {
                doing: "read",
                path: path.clone(),
                source,
            })?;
            Ok(Digest(store.ingest(&mut file, MAX_BLOB, None)?.digest))
        })
        .await
    }

    pub(crate) fn has(&self, digest: Digest) -> bool {
        self.store.contains(&digest.0)
    }

    /// Makes sure that a blob of this size fits, if need be by removing all blobs but those in `keep`.
    pub(crate) async fn reserve(&self, needed: u64, keep: BTreeSet<[u8; 32]>) -> Result<(), CacheError> {
        let cache = self.clone();
        blocking(move || {
            let wanted = needed.saturating_add(MIN_FREE);
            if cache.free()? >= wanted {
                return Ok(());
            }
            let freed = cache.store.gc(&keep)?;
            info!(freed, "removed blobs that no boot entry needs");
            let free = cache.free()?;
            if free >= wanted { Ok(()) } else { Err(CacheError::Full { needed, free }) }
        })
        .await
    }

    fn free(&self) -> Result<u64, CacheError> {
        let stat = statvfs(&self.dir).map_err(|errno| CacheError::File {
            doing: "measure the free space of",
            path: self.dir.clone(),
            source: errno.into(),
        })?;
        Ok(stat.blocks_available().saturating_mul(stat.fragment_size()))
    }

    /// Writes what comes from the queue until it ends. Nothing is in the cache before [`Cache::commit`].
    pub(crate) fn write(&self, mut chunks: mpsc::Receiver<Bytes>) -> JoinHandle<Result<Writer, CacheError>> {
        let store = self.store.clone();
        spawn_blocking(move || {
            let mut writer = store.begin(MAX_BLOB)?;
            while let Some(chunk) = chunks.blocking_recv() {
                writer.write_all(&chunk).map_err(CacheError::Write)?;
            }
            Ok(writer)
        })
    }

    /// Puts written bytes into the cache if they are the right ones.
    pub(crate) async fn commit(&self, writer: Writer, digest: Digest) -> Result<(), CacheError> {
        blocking(move || Ok(writer.commit(Some(digest.0)).map(|_| ())?)).await
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CacheError> + Send + 'static,
) -> Result<T, CacheError> {
    spawn_blocking(work).await.map_err(|_| CacheError::Stopping)?
}

impl Blobs for Cache {
    fn open(&self, digest: &Digest) -> io::Result<Option<(File, u64)>> {
        let object = self.store.open(&digest.0).map_err(io::Error::other)?;
        Ok(object.map(|object| {
            let size = object.size();
            (object.into_file(), size)
        }))
    }
}
