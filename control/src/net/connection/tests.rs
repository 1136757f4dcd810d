use std::net::IpAddr;

use axum::{body::Body, routing::get};
use bytes::Bytes;
use futures::stream;
use http::{StatusCode, Version};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::{http1, http2};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    task::JoinHandle,
    time::Instant,
};

use super::*;
use crate::net::stall::Stall;

/// What a duplex takes before its other end reads.
const PIPE_BYTES: usize = 16 << 10;
const BIG: usize = 1 << 20;

/// Serves the other end of the pipe; ends when the connection is given up.
fn served(http2: bool, shutdown: CancellationToken) -> (DuplexStream, JoinHandle<()>) {
    let (ours, theirs) = duplex(PIPE_BYTES);
    let router = Router::new()
        .route("/small", get(|| async { StatusCode::UNAUTHORIZED }))
        .route("/big", get(|| async { vec![7; BIG] }))
        .route("/watch", get(|| async { Body::from_stream(stream::pending::<Result<Bytes, Infallible>>()) }))
        .route("/slow", get(|| async { sleep(Duration::from_secs(300)).await }));
    let peer = Peer { address: IpAddr::from([127, 0, 0, 1]), certificate: None };
    (theirs, tokio::spawn(serve(Stall::new(ours), http2, 1 << 16, peer, router, shutdown)))
}

fn request(path: &str) -> Request<Empty<Bytes>> {
    Request::get(format!("http://localhost{path}")).header("host", "localhost").body(Empty::new()).unwrap()
}

async fn h2(
    io: DuplexStream,
    window: u32,
) -> (http2::SendRequest<Empty<Bytes>>, JoinHandle<hyper::Result<()>>) {
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(window)
        .handshake(TokioIo::new(io))
        .await
        .unwrap();
    (sender, tokio::spawn(connection))
}

/// How long something lasts, in whole seconds of the paused clock.
async fn seconds<T>(what: impl Future<Output = T>) -> u64 {
    let start = Instant::now();
    what.await;
    start.elapsed().as_secs()
}

#[tokio::test(start_paused = true)]
async fn a_silent_connection_ends_after_30_s() {
    let (_theirs, serving) = served(true, CancellationToken::new());
    assert_eq!(seconds(serving).await, 30);
}

#[tokio::test(start_paused = true)]
async fn an_idle_http1_connection_ends() {
    let (mut theirs, serving) = served(false, CancellationToken::new());
    theirs.write_all(b"GET /small HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    assert!(seconds(serving).await <= 60);
    let mut answer = String::new();
    theirs.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn an_idle_http2_connection_that_answers_pings_is_asked_to_end() {
    let (theirs, serving) = served(true, CancellationToken::new());
    let (mut sender, client) = h2(theirs, 1 << 16).await;
    let response = sender.send_request(request("/small")).await.unwrap();
    assert_eq!((response.status(), response.version()), (StatusCode::UNAUTHORIZED, Version::HTTP_2));
    drop(response);
    assert_eq!(seconds(serving).await, 60);
    assert!(client.await.unwrap().is_ok(), "with a GOAWAY that says no error");
}

#[tokio::test(start_paused = true)]
async fn an_idle_http2_peer_that_does_not_go_is_cut() {
    let (mut theirs, serving) = served(true, CancellationToken::new());
    // The preface, SETTINGS, and HEADERS of one GET / (RFC 9113 section 3.4, RFC 7541 appendix A: 0x82 GET, 0x84 /,
    // 0x87 https); then nothing but PINGs that are acknowledged
    // until GOAWAY comes.
    theirs.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    theirs.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
    theirs.write_all(&[0, 0, 3, 1, 5, 0, 0, 0, 1, 0x82, 0x84, 0x87]).await.unwrap();
    let peer = tokio::spawn(async move {
        let mut head = [0; 9];
        let mut goodbye = false;
        while theirs.read_exact(&mut head).await.is_ok() {
            let len = usize::from(head[1]) << 8 | usize::from(head[2]);
            let mut payload = vec![0; len];
            theirs.read_exact(&mut payload).await.unwrap();
            goodbye |= head[3] == 7;
            if head[3] == 6 && head[4] == 0 && !goodbye {
                theirs.write_all(&[0, 0, 8, 6, 1, 0, 0, 0, 0]).await.unwrap();
                theirs.write_all(&payload).await.unwrap();
            }
        }
    });
    assert_eq!(seconds(serving).await, 60 + 10);
    peer.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn watches_and_slow_answers_are_not_idle() {
    for path in ["/watch", "/slow"] {
        let (theirs, serving) = served(true, CancellationToken::new());
        let (mut sender, _client) = h2(theirs, 1 << 16).await;
        let asked = tokio::spawn(async move {
            let response = sender.send_request(request(path)).await.unwrap();
            tokio::time::timeout(Duration::from_secs(3600), response.into_body().collect()).await.is_ok()
        });
        let ended = asked.await.unwrap();
        assert_eq!(ended, path == "/slow", "{path}: a watch goes on, the other is answered");
        assert!(seconds(serving).await <= 60, "{path}: idle once nothing is open");
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_pipelines_and_never_reads_is_cut() {
    let (mut theirs, serving) = served(false, CancellationToken::new());
    let flood = tokio::spawn(async move {
        while theirs.write_all(b"GET /small HTTP/1.1\r\nhost: a\r\n\r\n").await.is_ok() {}
    });
    assert_eq!(seconds(serving).await, 60);
    flood.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_http2_peer_that_gives_its_answer_no_room_is_cut() {
    let (theirs, serving) = served(true, CancellationToken::new());
    let (mut sender, _client) = h2(theirs, 0).await;
    let response = sender.send_request(request("/big")).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(seconds(serving).await, 60);
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_gets_its_whole_answer() {
    let (theirs, _serving) = served(false, CancellationToken::new());
    let (mut sender, connection) = http1::handshake(TokioIo::new(theirs)).await.unwrap();
    tokio::spawn(connection);
    let mut body = sender.send_request(request("/big")).await.unwrap().into_body();
    let mut read = 0;
    while let Some(frame) = body.frame().await {
        read += frame.unwrap().data_ref().map_or(0, Bytes::len);
        sleep(Duration::from_secs(5)).await;
    }
    assert_eq!(read, BIG);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_lets_open_requests_finish() {
    let shutdown = CancellationToken::new();
    let (theirs, serving) = served(true, shutdown.clone());
    let (mut sender, _client) = h2(theirs, 1 << 16).await;
    let asked = tokio::spawn(async move { sender.send_request(request("/slow")).await.unwrap().status() });
    sleep(Duration::from_secs(1)).await;
    shutdown.cancel();
    assert_eq!(asked.await.unwrap(), StatusCode::OK);
    assert_eq!(seconds(serving).await, 0);
}
