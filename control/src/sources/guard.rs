//! Limits on a stream of image bytes: it may neither crawl, nor last for ever, nor outlive control.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt, stream};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::ByteStream;

/// What a source has to bring, on average, while it is waited for: a few crawling ones would keep all others from
/// their turn.
const MIN_BYTES_PER_SECOND: u64 = 64 << 10;
/// The average is over this much waiting. Time that control's own disk takes is no waiting.
const RATE_WINDOW: Duration = Duration::from_secs(60);
/// The largest images over the slowest sensible link.
const TOTAL_LIMIT: Duration = Duration::from_secs(12 * 3600);

/// The source is slower than [`MIN_BYTES_PER_SECOND`].
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("less than {MIN_BYTES_PER_SECOND} bytes a second came for {} s", RATE_WINDOW.as_secs())]
pub(super) struct TooSlow;

impl TooSlow {
    /// Whether this is why a read failed.
    pub(super) fn is_in(error: &io::Error) -> bool {
        error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<Self>)
    }
}

/// How a source did in the window at hand.
#[derive(Debug, Default)]
struct Window {
    waited: Duration,
    bytes: u64,
}

impl Window {
    /// Begins the next window where this one is over.
    fn check(&mut self) -> io::Result<()> {
        if self.waited < RATE_WINDOW {
            return Ok(());
        }
        let enough = self.bytes >= MIN_BYTES_PER_SECOND * RATE_WINDOW.as_secs();
        *self = Self::default();
        if enough { Ok(()) } else { Err(io::Error::new(io::ErrorKind::TimedOut, TooSlow)) }
    }
}

/// Adds the limits and counts the bytes. A stream that is cut ends with an error, never as if it were whole.
pub(super) fn guarded(inner: ByteStream, count: Arc<AtomicU64>, shutdown: CancellationToken) -> ByteStream {
    let end = Instant::now() + TOTAL_LIMIT;
    stream::unfold(Some((inner, Window::default())), move |state| {
        let (count, shutdown) = (count.clone(), shutdown.clone());
        async move {
            let (mut inner, mut window) = state?;
            let next = tokio::select! {
                () = shutdown.cancelled() => Err(io::Error::new(io::ErrorKind::Interrupted, "control is stopping")),
                next = next(&mut inner, &mut window, end) => next,
            };
            match next.transpose()? {
                Ok(bytes) => {
                    count.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                    Some((Ok(bytes), Some((inner, window))))
                }
                Err(error) => Some((Err(error), None)),
            }
        }
    })
    .boxed()
}

async fn next(inner: &mut ByteStream, window: &mut Window, end: Instant) -> io::Result<Option<Bytes>> {
    loop {
        let begin = Instant::now();
        let limit = end.min(begin + RATE_WINDOW.saturating_sub(window.waited));
        let item = timeout_at(limit, inner.next()).await;
        window.waited += begin.elapsed();
        let bytes = match item {
            Ok(item) => item.transpose()?,
            Err(_) if Instant::now() >= end => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "it took too long"));
            }
            Err(_) => {
                window.check()?;
                continue;
            }
        };
        window.bytes += bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
        if bytes.is_some() {
            window.check()?;
        }
        return Ok(bytes);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

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

    /// `size` bytes after each `pause`, `times` times.
    fn paced(size: usize, pause: Duration, times: usize) -> ByteStream {
        let chunks = stream::iter(0..times).then(move |_| async move {
            sleep(pause).await;
            Ok(Bytes::from(vec![7; size]))
        });
        chunks.boxed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_crawling_source_is_given_up_after_a_minute() {
        let start = Instant::now();
        let crawling = paced(1, Duration::from_secs(5), 10_000);
        let mut source = guarded(crawling, Arc::default(), CancellationToken::new());
        let error = loop {
            if let Err(error) = source.next().await.expect("an error") {
                break error;
            }
        };
        assert!(TooSlow::is_in(&error), "{error}");
        assert_eq!(start.elapsed().as_secs(), 60);
        assert!(source.next().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_at_the_least_rate_may_take_hours() {
        // 64 KiB/s, in pieces of 320 KiB.
        let slow = paced(320 << 10, Duration::from_secs(5), 1000);
        let (errors, count) = collect(slow, CancellationToken::new()).await;
        assert_eq!((errors, count), (vec![], 1000 * (320 << 10)));
    }

    #[tokio::test(start_paused = true)]
    async fn time_that_control_takes_is_not_the_sources() {
        let fast = paced(1000, Duration::from_millis(1), 20);
        let mut source = guarded(fast, Arc::default(), CancellationToken::new());
        for _ in 0..20 {
            assert!(source.next().await.unwrap().is_ok());
            sleep(Duration::from_secs(30)).await;
        }
        assert!(source.next().await.is_none());
    }

    #[tokio::test]
    async fn i2_a_cut_stream_does_not_look_whole() {
        let shutdown = CancellationToken::new();
        shutdown.cancel();
        let endless = stream::pending().boxed();
        assert_eq!(collect(endless, shutdown).await.0, [io::ErrorKind::Interrupted]);
    }
}
