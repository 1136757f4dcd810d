//! A site whose blob server fails in the ways that a test asks for.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// How one connection goes; after the last one, all are [`Act::Serve`].
#[derive(Debug, Clone, Copy)]
pub(crate) enum Act {
    /// As a good server.
    Serve,
    /// Announces all, sends this many bytes, and closes.
    Cut(usize),
    /// Sends this many bytes, and then nothing, without closing.
    Stall(usize),
    /// Answers the whole, whatever range was asked for.
    IgnoreRange,
    /// Answers this status, without a body.
    Status(u16),
    /// Closes without an answer.
    Refuse,
}

/// A server on loopback.
pub(crate) struct Server {
    address: SocketAddr,
    state: Arc<State>,
    task: JoinHandle<()>,
}

struct State {
    content: Vec<u8>,
    acts: Mutex<VecDeque<Act>>,
    ranges: Mutex<Vec<Option<usize>>>,
}

impl Server {
    /// Serves `content` at every path.
    pub(crate) async fn start(content: Vec<u8>, acts: &[Act]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            content,
            acts: Mutex::new(acts.iter().copied().collect()),
            ranges: Mutex::default(),
        });
        let shared = state.clone();
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                // A client may leave in the middle.
                tokio::spawn(serve(stream, shared.clone()));
            }
        });
        Self { address, state, task }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/blobs/sha256/x", self.address)
    }

    /// First byte asked for, request by request.
    pub(crate) fn ranges(&self) -> Vec<Option<usize>> {
        self.state.ranges.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, state: Arc<State>) -> std::io::Result<()> {
    let act = state.acts.lock().unwrap().pop_front().unwrap_or(Act::Serve);
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let first =
        head.lines().find_map(|line| line.strip_prefix("range: bytes=")?.strip_suffix('-')?.parse().ok());
    state.ranges.lock().unwrap().push(first);
    let total = state.content.len();
    let from = if matches!(act, Act::IgnoreRange) { 0 } else { first.unwrap_or(0) };
    let (status, range) = match act {
        Act::Refuse => return Ok(()),
        Act::Status(status) => (status, String::new()),
        _ if from > 0 => (206, format!("content-range: bytes {from}-{}/{total}\r\n", total - 1)),
        _ => (200, String::new()),
    };
    let body = if status < 300 { &state.content[from..] } else { &[] };
    let length = body.len();
    let head = format!("HTTP/1.1 {status} X\r\n{range}content-length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    match act {
        Act::Cut(count) => stream.write_all(&body[..count.min(length)]).await,
        Act::Stall(count) => {
            stream.write_all(&body[..count.min(length)]).await?;
            stream.read_u8().await.map(drop)
        }
        _ => stream.write_all(body).await,
    }
}
