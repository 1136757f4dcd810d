//! Fetches blobs into the cache: `GET /blobs/sha256/<hex>`, resumed by `Range` where the connection is lost.

use std::{collections::BTreeSet, io, time::Duration};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use ironwright_agent::Ctx;
use ironwright_images::store::StoreError;
use ironwright_proto::ids::Digest;
use tokio::{sync::mpsc, time::timeout};
use tracing::{info, warn};

use crate::{
    authority::{Connection, Upstream},
    cache::{Cache, CacheError},
};

/// How long a connection, an answer, or the next bytes may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Failures in a row without a single byte before the fetch is given up. Control then sends the command again.
const MAX_FAILURES: u32 = 3;
/// Pause after the first failure; it doubles.
const PAUSE: Duration = Duration::from_millis(500);
/// Chunks between network and disk.
const QUEUE: usize = 16;

/// Why a blob is not in the cache.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    /// Gone, or control does not answer. Worth another command.
    #[error("the source cannot be reached")]
    Unreachable(#[source] Lost),
    /// The source does not have it, or does not give it to us.
    #[error("the source answers {0}")]
    Refused(StatusCode),
    /// Bytes of another blob, a full disk, …
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The runtime is going down.
    #[error("the site is stopping")]
    Stopping,
}

/// Why one attempt ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Lost {
    #[error("connecting")]
    Connect(#[source] io::Error),
    #[error("HTTP")]
    Http(#[from] hyper::Error),
    #[error("no answer within {} s", PATIENCE.as_secs())]
    Timeout,
    #[error("the answer {0} does not fit the request")]
    Answer(StatusCode),
    #[error("the body ended after {0} of {1} bytes")]
    Short(u64, u64),
}

impl FetchError {
    /// The code for control.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "source_unreachable",
            Self::Refused(_) => "artifact_unavailable",
            Self::Cache(CacheError::Store(StoreError::Digest { .. })) => "digest_mismatch",
            Self::Cache(CacheError::Full { .. }) => "cache_full",
            Self::Cache(_) => "storage_failed",
            Self::Stopping => "interrupted",
        }
    }
}

enum Attempt {
    Lost(Lost),
    Fatal(FetchError),
}

impl<T: Into<Lost>> From<T> for Attempt {
    fn from(lost: T) -> Self {
        Self::Lost(lost.into())
    }
}

/// Makes sure that a blob is in the cache; blobs in `keep` are not removed to make room. Dropping the
/// future leaves the cache as it was.
pub(crate) async fn fetch(
    upstream: &dyn Upstream,
    cache: &Cache,
    digest: Digest,
    keep: &BTreeSet<[u8; 32]>,
    ctx: &Ctx,
) -> Result<(), FetchError> {
    if cache.has(digest) {
        return Ok(());
    }
    let (chunks, queue) = mpsc::channel(QUEUE);
    let writer = cache.write(queue);
    let mut transfer = Transfer { upstream, cache, keep, digest, done: 0, total: 0, chunks };
    let mut failures = 0;
    loop {
        let before = transfer.done;
        match transfer.attempt(ctx).await {
            Ok(()) => break,
            Err(Attempt::Fatal(error)) => return Err(error),
            Err(Attempt::Lost(lost)) => {
                failures = if transfer.done > before { 1 } else { failures + 1 };
                if failures > MAX_FAILURES {
                    return Err(FetchError::Unreachable(lost));
                }
                let error = format!("{:#}", anyhow::Error::from(lost));
                warn!(%digest, done = transfer.done, error, "fetching goes on after a pause");
                tokio::time::sleep(PAUSE * 2u32.pow(failures - 1)).await;
            }
        }
        if transfer.chunks.is_closed() {
            break; // the writer failed, and says why
        }
    }
    let size = transfer.done;
    drop(transfer);
    let written = writer.await.map_err(|_| FetchError::Stopping)??;
    cache.commit(written, digest).await?;
    info!(%digest, size, "fetched into the cache");
    Ok(())
}

struct Transfer<'a> {
    upstream: &'a dyn Upstream,
    cache: &'a Cache,
    keep: &'a BTreeSet<[u8; 32]>,
    digest: Digest,
    done: u64,
    total: u64,
    chunks: mpsc::Sender<Bytes>,
}

impl Transfer<'_> {
    /// Gets the rest of the blob on one connection. Ends well too where the writer no longer takes bytes.
    async fn attempt(&mut self, ctx: &Ctx) -> Result<(), Attempt> {
        let mut response = self.request().await?;
        let mut skip = self.check(&response)?;
        if self.done == 0 {
            let reserved = self.cache.reserve(self.total, self.keep.clone()).await;
            reserved.map_err(|error| Attempt::Fatal(error.into()))?;
        }
        while let Some(frame) =
            timeout(PATIENCE, response.body_mut().frame()).await.map_err(|_| Lost::Timeout)?
        {
            let Ok(mut data) = frame.map_err(Lost::Http)?.into_data() else { continue };
            let unwanted = skip.min(data.len() as u64);
            skip -= unwanted;
            let data = data.split_off(usize::try_from(unwanted).unwrap_or(data.len()));
            if data.is_empty() {
                continue;
            }
            let len = data.len() as u64;
            if self.chunks.send(data).await.is_err() {
                return Ok(());
            }
            self.done += len;
            ctx.progress("fetch", self.done, self.total);
        }
        if self.done < self.total { Err(Lost::Short(self.done, self.total).into()) } else { Ok(()) }
    }

    async fn request(&self) -> Result<Response<Incoming>, Attempt> {
        let connected = timeout(PATIENCE, self.upstream.connect()).await.map_err(|_| Lost::Timeout)?;
        let Connection { stream, host } = connected.map_err(Lost::Connect)?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(Lost::Http)?;
        tokio::spawn(connection); // ends with the response
        let path = format!("/blobs/sha256/{}", self.digest.hex());
        let mut request = Request::get(path).header(header::HOST, host);
        if self.done > 0 {
            request = request.header(header::RANGE, format!("bytes={}-", self.done));
        }
        let request = request
            .body(Empty::<Bytes>::new())
            .map_err(|error| Lost::Connect(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
        let answered = timeout(PATIENCE, sender.send_request(request)).await.map_err(|_| Lost::Timeout)?;
        Ok(answered.map_err(Lost::Http)?)
    }

    /// Checks the head of an answer; returns how many bytes of its body we already have.
    fn check(&mut self, response: &Response<Incoming>) -> Result<u64, Attempt> {
        let status = response.status();
        let text = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        let length: Option<u64> = text(header::CONTENT_LENGTH).and_then(|length| length.parse().ok());
        let (skip, total) = match status {
            StatusCode::OK => (self.done, length),
            StatusCode::PARTIAL_CONTENT => {
                let expected = format!("bytes {}-", self.done);
                if !text(header::CONTENT_RANGE).is_some_and(|range| range.starts_with(&expected)) {
                    return Err(Lost::Answer(status).into());
                }
                (0, length.map(|length| length.saturating_add(self.done)))
            }
            status if status.is_client_error() => return Err(Attempt::Fatal(FetchError::Refused(status))),
            status => return Err(Lost::Answer(status).into()),
        };
        self.total = total.ok_or(Lost::Answer(status))?;
        Ok(skip)
    }
}
