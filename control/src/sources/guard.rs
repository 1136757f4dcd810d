//! Limits on a stream of image bytes: it may neither stall, nor last for ever, nor outlive control.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, stream};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::ByteStream;

/// Without a byte for this long the source counts as gone.
const IDLE_LIMIT: Duration = Duration::from_secs(60);
/// The largest images over the slowest sensible link.
const TOTAL_LIMIT: Duration = Duration::from_secs(12 * 3600);

/// Adds the limits and counts the bytes. A stream that is cut ends with an error, never as if it were whole.
pub(super) fn guarded(inner: ByteStream, count: Arc<AtomicU64>, shutdown: CancellationToken) -> ByteStream {
    let end = Instant::now() + TOTAL_LIMIT;
    stream::unfold(Some(inner), move |inner| {
        let (count, shutdown) = (count.clone(), shutdown.clone());
        async move {
            let mut inner = inner?;
            let limit = end.min(Instant::now() + IDLE_LIMIT);
            let item = tokio::select! {
                () = shutdown.cancelled() => Err(io::Error::new(io::ErrorKind::Interrupted, "control is stopping")),
                item = timeout_at(limit, inner.next()) => match item {
                    Ok(item) => item?,
                    Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "no bytes came for too long")),
                },
            };
            match item {
                Ok(bytes) => {
                    count.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                    Some((Ok(bytes), Some(inner)))
                }
                Err(error) => Some((Err(error), None)),
            }
        }
    })
    .boxed()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    async fn collect(inner: ByteStream, shutdown: CancellationToken) -> (Vec<io::ErrorKind>, u64) {
        let count = Arc::new(AtomicU64::new(0));
        let items: Vec<_> = guarded(inner, count.clone(), shutdown).collect().await;
        (
            items.into_iter().filter_map(|item| item.err().map(|e| e.kind())).collect(),
            count.load(Ordering::Relaxed),
        )
    }

    fn chunk() -> stream::Iter<std::vec::IntoIter<io::Result<Bytes>>> {
        stream::iter(vec![Ok(Bytes::from_static(b"abc"))])
    }

    #[tokio::test(start_paused = true)]
    async fn a_stalled_source_is_an_error_and_a_finished_one_is_not() {
        let stalled = chunk().chain(stream::pending()).boxed();
        assert_eq!(collect(stalled, CancellationToken::new()).await, (vec![io::ErrorKind::TimedOut], 3));
        assert_eq!(collect(chunk().boxed(), CancellationToken::new()).await, (vec![], 3));
    }

    #[tokio::test]
    async fn i2_a_cut_stream_does_not_look_whole() {
        let shutdown = CancellationToken::new();
        shutdown.cancel();
        let endless = stream::pending().boxed();
        assert_eq!(collect(endless, shutdown).await.0, [io::ErrorKind::Interrupted]);
    }
}
