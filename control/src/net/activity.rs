//! What goes on on one connection, and when nothing does for too long.
//!
//! ```text
//!             a request           its answer is sent, or it is given up
//!   silent ─────────────▶ busy ──────────────────────────────────────▶ idle ──▶ busy …
//!     │ 30 s                │ 60 s without taking of an answer           │ 60 s
//!     ▼                     ▼                                            ▼
//!    cut                   cut                             asked to end; cut where it does not
//! ```
//!
//! A request is open until the last byte of its answer is handed to the transport, so that sessions and watches, which
//! are answers without an end, are never idle.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as _, Frame, SizeHint};
use tokio::time::{Instant, sleep_until};

/// From the end of the handshake to the end of the first request's head.
const FIRST_REQUEST_LIMIT: Duration = Duration::from_secs(30);
/// From the end of the last open request to the next one.
const IDLE_LIMIT: Duration = Duration::from_secs(60);
/// An answer's next bytes are ready for this long, and the peer gives no room for them (HTTP/2 flow control,
/// RFC 9113 section 5.2, which a socket's state does not show).
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// An answer is handed to the transport in pieces of at most this size, since what the transport has counts as taken.
const PIECE_BYTES: usize = 16 << 10;

/// Why a connection is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    /// No first request came.
    Silent,
    /// An answer is not taken.
    Stuck,
    /// No request is open.
    Idle,
}

/// The requests of one connection.
#[derive(Debug)]
pub(super) struct Activity(Mutex<State>);

#[derive(Debug)]
struct State {
    asked: bool,
    /// Of the connection, or of the last change of what is open.
    since: Instant,
    next: u64,
    /// By number; since when the peer could take more of the answer, where there is more.
    open: BTreeMap<u64, Option<Instant>>,
}

impl State {
    /// When the connection is over if nothing else happens, and why; `None` while control itself is at work.
    fn end(&self) -> Option<(Instant, Over)> {
        if !self.asked {
            return Some((self.since + FIRST_REQUEST_LIMIT, Over::Silent));
        }
        if self.open.is_empty() {
            return Some((self.since + IDLE_LIMIT, Over::Idle));
        }
        let stuck = self.open.values().flatten().min()?;
        Some((*stuck + ANSWER_LIMIT, Over::Stuck))
    }
}

impl Activity {
    pub(super) fn new() -> Self {
        let state = State { asked: false, since: Instant::now(), next: 0, open: BTreeMap::new() };
        Self(Mutex::new(state))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that holds the lock leaves it half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there ever was a request.
    pub(super) fn asked(&self) -> bool {
        self.lock().asked
    }

    /// A request has come.
    pub(super) fn open(self: &Arc<Self>) -> OpenRequest {
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        state.asked = true;
        state.open.insert(number, None);
        OpenRequest { activity: self.clone(), number }
    }

    /// Waits until the connection is over.
    pub(super) async fn over(&self) -> Over {
        loop {
            let now = Instant::now();
            // No limit that begins after now ends before this.
            let again = now + FIRST_REQUEST_LIMIT.min(IDLE_LIMIT).min(ANSWER_LIMIT);
            let end = self.lock().end();
            let wake = match end {
                Some((end, over)) if end <= now => return over,
                Some((end, _)) => end.min(again),
                None => again,
            };
            sleep_until(wake).await;
        }
    }
}

/// One open request, until it is dropped.
#[derive(Debug)]
pub(super) struct OpenRequest {
    activity: Arc<Activity>,
    number: u64,
}

impl OpenRequest {
    /// It is the peer's turn from now on, or control's.
    fn waits_for_peer(&self, since: Option<Instant>) {
        self.activity.lock().open.insert(self.number, since);
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let mut state = self.activity.lock();
        state.open.remove(&self.number);
        state.since = Instant::now();
    }
}

/// An answer's body that keeps its request open.
#[derive(Debug)]
pub(super) struct Answer {
    body: Body,
    /// Comes before what is left of the body.
    rest: Bytes,
    request: OpenRequest,
}

impl Answer {
    pub(super) fn new(body: Body, request: OpenRequest) -> Self {
        request.waits_for_peer(Some(Instant::now()));
        Self { body, rest: Bytes::new(), request }
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                end => return Poll::Ready(end),
            }
        }
        let piece = self.rest.split_to(self.rest.len().min(PIECE_BYTES));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    /// Asked for a frame only while the transport has room for one.
    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = self.poll_piece(cx);
        self.request.waits_for_peer(polled.is_ready().then(Instant::now));
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, body) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(rest.saturating_add(body.lower()));
        if let Some(upper) = body.upper() {
            hint.set_upper(rest.saturating_add(upper));
        }
        hint
    }
}
