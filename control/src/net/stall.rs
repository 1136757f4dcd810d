//! A socket whose peer has to read: a write that does not get on for too long is an error.
//!
//! ```text
//!             write blocks                 60 s
//! moving ──────────────────────▶ stalled ───────▶ error: timed out
//!    ▲     some bytes were taken    │
//!    └──────────────────────────────┘
//! ```

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// A peer that takes no byte for this long reads no more.
const STALL_LIMIT: Duration = Duration::from_secs(60);

/// A socket, or whatever else it is that blocks writes while its peer does not read.
#[derive(Debug)]
pub(super) struct Stall<S> {
    inner: S,
    /// Runs while a write is blocked.
    limit: Option<Pin<Box<Sleep>>>,
}

impl<S> Stall<S> {
    pub(super) const fn new(inner: S) -> Self {
        Self { inner, limit: None }
    }
}

impl<S: Unpin> Stall<S> {
    fn watch<R>(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        if let Poll::Ready(done) = write(Pin::new(&mut self.inner), cx) {
            self.limit = None;
            return Poll::Ready(done);
        }
        let limit = self.limit.get_or_insert_with(|| Box::pin(sleep(STALL_LIMIT)));
        ready!(limit.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not read")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stall<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stall<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.watch(cx, |inner, cx| inner.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.watch(cx, |inner, cx| inner.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    // Sockets never block here; the limit of a blocked write is not touched.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt, duplex},
        time::Instant,
    };

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_slowly_is_waited_for_and_one_that_stops_is_not() {
        let (ours, mut peer) = duplex(10);
        let mut ours = Stall::new(ours);
        let start = Instant::now();
        let writing = tokio::spawn(async move { ours.write_all(&[7; 100]).await });
        for _ in 0..5 {
            sleep(Duration::from_secs(50)).await;
            peer.read_exact(&mut [0; 10]).await.unwrap();
        }
        let error = writing.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(start.elapsed().as_secs(), 5 * 50 + 60, "60 s after the last byte was taken");
    }
}
