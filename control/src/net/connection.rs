//! HTTP on one connection, until its peer is done, does nothing for too long, or control stops.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::Router;
use http::Request;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::sleep,
};
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use super::{
    Peer,
    activity::{Activity, Answer, Over},
};

/// From the end of a request to the end of the next one's head (HTTP/1.1).
const HEADER_LIMIT: Duration = Duration::from_secs(30);
const MAX_HEADER_BYTES: u32 = 32 << 10;
/// A peer that died without a word is noticed after the sum of both (HTTP/2).
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(20);
const KEEP_ALIVE_LIMIT: Duration = Duration::from_secs(20);
const MAX_STREAMS: u32 = 64;
/// A peer that is asked to end an idle connection has this long for it.
const GOODBYE_LIMIT: Duration = Duration::from_secs(10);

/// Serves one connection to its end. On `shutdown` its open requests are finished first.
pub(super) async fn serve(
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    http2: bool,
    window_bytes: u32,
    peer: Peer,
    router: Router,
    shutdown: CancellationToken,
) {
    let address = peer.address;
    let activity = Arc::new(Activity::new());
    let opening = activity.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        let open = opening.open();
        request.extensions_mut().insert(peer.clone());
        let answer = router.clone().call(request);
        async move { Ok::<_, Infallible>(answer.await?.map(|body| Answer::new(body, open))) }
    });
    let builder = builder(http2, window_bytes);
    let connection = builder.serve_connection(TokioIo::new(io), service);
    tokio::pin!(connection);
    let served = tokio::select! {
        served = connection.as_mut() => served,
        over = activity.over() => {
            tracing::debug!(%address, ?over, "ending a connection");
            if over != Over::Idle {
                return;
            }
            connection.as_mut().graceful_shutdown();
            // A request that came just now is not cut.
            tokio::select! {
                served = connection => served,
                _ = async { sleep(GOODBYE_LIMIT).await; activity.over().await } => return,
            }
        }
        () = shutdown.cancelled() => {
            if !activity.asked() {
                return;
            }
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%address, error = %error, "connection ended");
    }
}

fn builder(http2: bool, window_bytes: u32) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_LIMIT)
        .max_buf_size(MAX_HEADER_BYTES as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .initial_connection_window_size(window_bytes)
        .initial_stream_window_size(window_bytes)
        .max_header_list_size(MAX_HEADER_BYTES)
        .keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_LIMIT);
    if http2 { builder.http2_only() } else { builder.http1_only() }
}

#[cfg(test)]
mod tests;
