//! Boot HTTP over real sockets, with requests and answers as bytes.

use std::{
    fs::File,
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::future::BoxFuture;
use ironwright_proto::ids::{Digest, Mac};
use ironwright_pxe::{
    files::Files,
    http::{Blobs, Boots, ScriptAnswer, Server},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

const DEADLINE: Duration = Duration::from_secs(20);
const BLOB: Digest = Digest([0xab; 32]);
const BLOB_LEN: usize = 300_000;

/// One blob in a folder, and scripts that count how often they are asked for.
struct Content {
    dir: tempfile::TempDir,
    asked: AtomicU32,
}

fn blob_bytes() -> Vec<u8> {
    (0..BLOB_LEN).map(|i| u8::try_from(i % 251).unwrap()).collect()
}

impl Blobs for Content {
    fn open(&self, digest: &Digest) -> io::Result<Option<(File, u64)>> {
        if *digest != BLOB {
            return Ok(None);
        }
        let file = File::open(self.dir.path().join("blob"))?;
        let len = file.metadata()?.len();
        Ok(Some((file, len)))
    }
}

impl Boots for Content {
    fn script(&self, mac: Mac) -> BoxFuture<'_, ScriptAnswer> {
        self.asked.fetch_add(1, Relaxed);
        Box::pin(async move {
            match mac.0[5] {
                1 => ScriptAnswer::Script("#!ipxe\nexit\n".into()),
                2 => ScriptAnswer::NotNow,
                _ => ScriptAnswer::Unknown,
            }
        })
    }
}

struct Rig {
    addr: SocketAddr,
    content: Arc<Content>,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

impl Rig {
    async fn start() -> Self {
        let content = Arc::new(Content { dir: tempfile::tempdir().unwrap(), asked: AtomicU32::new(0) });
        std::fs::write(content.dir.path().join("blob"), blob_bytes()).unwrap();
        let files = Files::from_bytes([("ipxe.efi".to_owned(), Bytes::from_static(b"MZ"))]);
        let server = Server::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let addr = server.local_addr();
        let shutdown = CancellationToken::new();
        let run = server.run(Arc::new(files), content.clone(), content.clone(), shutdown.clone());
        Self { addr, content, shutdown, task: tokio::spawn(run) }
    }

    /// Sends bytes and returns status line with headers, and the body.
    async fn send(&self, request: &str) -> (String, Vec<u8>) {
        let mut stream = TcpStream::connect(self.addr).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        tokio::time::timeout(DEADLINE, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
        let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("headers") + 4;
        (String::from_utf8(answer[..end].to_vec()).unwrap().to_lowercase(), answer.split_off(end))
    }

    async fn ask(&self, method: &str, path: &str, headers: &str) -> (String, Vec<u8>) {
        let head = format!("{method} {path} HTTP/1.1\r\nHost: site\r\nConnection: close\r\n{headers}\r\n");
        self.send(&head).await
    }

    async fn get(&self, path: &str, headers: &str) -> (String, Vec<u8>) {
        self.ask("GET", path, headers).await
    }

    async fn stop(self) {
        self.shutdown.cancel();
        tokio::time::timeout(DEADLINE, self.task).await.unwrap().unwrap();
    }
}

fn blob_path() -> String {
    format!("/blobs/sha256/{}", BLOB.hex())
}

#[tokio::test]
async fn t5_firmware_is_never_redirected() {
    let rig = Rig::start().await;
    for path in ["/ipxe.efi", "//ipxe.efi", "///ipxe.efi"] {
        let (head, body) = rig.get(path, "").await;
        assert!(head.starts_with("http/1.1 200 ok\r\n"), "{path}: {head}");
        assert!(head.contains("content-length: 2\r\n"), "{head}");
        assert_eq!(body, b"MZ");
    }
    for path in ["/", "//", "/ipxe", "/x/ipxe.efi", "/../ipxe.efi", "/blobs", "/boot/"] {
        let (head, _) = rig.get(path, "").await;
        assert!(head.starts_with("http/1.1 404 "), "{path}: {head}");
    }
    rig.stop().await;
}

#[tokio::test]
async fn blobs_are_served_whole_in_parts_and_by_head() {
    let rig = Rig::start().await;
    let (path, bytes) = (blob_path(), blob_bytes());
    let etag = format!("etag: \"{BLOB}\"\r\n");

    let (head, body) = rig.get(&path, "").await;
    assert!(head.starts_with("http/1.1 200 ") && head.contains("content-length: 300000\r\n"), "{head}");
    assert!(head.contains(&etag) && head.contains("accept-ranges: bytes\r\n"), "{head}");
    assert!(body == bytes);

    let (head, body) = rig.ask("HEAD", &path, "").await;
    assert!(head.starts_with("http/1.1 200 ") && head.contains("content-length: 300000\r\n"), "{head}");
    assert!(body.is_empty());

    let (head, body) = rig.get(&path, "Range: bytes=299990-\r\n").await;
    assert!(head.starts_with("http/1.1 206 ") && head.contains("content-length: 10\r\n"), "{head}");
    assert!(head.contains("content-range: bytes 299990-299999/300000\r\n"), "{head}");
    assert_eq!(body, bytes[299_990..]);

    let same = format!("Range: bytes=1-2\r\nIf-Range: \"{BLOB}\"\r\n");
    assert_eq!(rig.get(&path, &same).await.1, bytes[1..3]);
    let (head, body) = rig.get(&path, "Range: bytes=1-2\r\nIf-Range: \"other\"\r\n").await;
    assert!(head.starts_with("http/1.1 200 ") && body.len() == BLOB_LEN, "{head}");

    let (head, _) = rig.get(&path, "Range: bytes=300000-\r\n").await;
    assert!(head.starts_with("http/1.1 416 ") && head.contains("bytes */300000\r\n"), "{head}");
    rig.stop().await;
}

#[tokio::test]
async fn scripts_are_fetched_by_get_alone() {
    let rig = Rig::start().await;
    let path = |last: u8| format!("/boot/52:54:00:00:00:{last:02x}/ipxe");
    let (head, body) = rig.get(&path(1), "").await;
    assert!(head.starts_with("http/1.1 200 ") && head.contains("content-length: 12\r\n"), "{head}");
    assert_eq!(body, b"#!ipxe\nexit\n");
    for mac in ["52-54-00-00-00-01", "52%3A54%3A00%3A00%3A00%3A01", "52%3a54%3a00%3a00%3a00%3a01"] {
        assert_eq!(rig.get(&format!("/boot/{mac}/ipxe"), "").await.1, b"#!ipxe\nexit\n", "{mac}");
    }
    let (head, _) = rig.get(&path(2), "").await;
    assert!(head.starts_with("http/1.1 503 ") && head.contains("retry-after: 5\r\n"), "{head}");
    assert!(rig.get(&path(3), "").await.0.starts_with("http/1.1 404 "));
    assert_eq!(rig.content.asked.load(Relaxed), 6);

    // A script may carry a token that is given once: nothing but a GET may spend it.
    let (head, body) = rig.ask("HEAD", &path(1), "").await;
    assert!(
        head.starts_with("http/1.1 405 ") && head.contains("allow: get\r\n") && body.is_empty(),
        "{head}"
    );
    assert!(rig.ask("POST", &path(1), "").await.0.starts_with("http/1.1 405 "));
    assert!(rig.get("/boot/x/ipxe", "").await.0.starts_with("http/1.1 400 "));
    assert_eq!(rig.content.asked.load(Relaxed), 6);
    rig.stop().await;
}

#[tokio::test]
async fn oversized_requests_are_refused() {
    let rig = Rig::start().await;
    let (head, _) = rig.get("/", &format!("X: {}\r\n", "x".repeat(20_000))).await;
    assert!(head.starts_with("http/1.1 431 "), "{head}");
    let (head, _) = rig.get("/", &"X: y\r\n".repeat(70)).await;
    assert!(head.starts_with("http/1.1 431 "), "{head}");
    let (head, _) = rig.get(&format!("/{}", "x".repeat(300)), "").await;
    assert!(head.starts_with("http/1.1 414 "), "{head}");
    assert!(rig.send("no http\r\n\r\n").await.0.starts_with("http/1.1 400 "));
    rig.stop().await;
}

/// Connects from one of the loopback addresses, and asks for a file.
async fn ask_from(rig: &Rig, client: &str) -> String {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(client.parse().unwrap()).unwrap();
    let mut stream = socket.connect(rig.addr).await.unwrap();
    let request = b"GET /ipxe.efi HTTP/1.1\r\nHost: site\r\nConnection: close\r\n\r\n";
    let mut answer = Vec::new();
    // Where it is refused, the server may have closed before the request came.
    let _ = stream.write_all(request).await;
    let _ = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut answer)).await.unwrap();
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn one_client_cannot_have_more_than_thirty_two_connections() {
    let rig = Rig::start().await;
    let mut held = Vec::new();
    for _ in 0..32 {
        held.push(TcpStream::connect(rig.addr).await.unwrap());
    }
    let mut refused = TcpStream::connect(rig.addr).await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(DEADLINE, refused.read_to_string(&mut answer)).await.unwrap().unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 503 ") && head.contains("\r\nRetry-After: 5"), "{head}");
    assert!(head.contains(&format!("\r\nContent-Length: {}", body.len())), "{head}");
    assert!(ask_from(&rig, "127.0.0.2:0").await.starts_with("HTTP/1.1 200 "), "another client is served");

    held.pop();
    let end = std::time::Instant::now() + DEADLINE;
    while !ask_from(&rig, "127.0.0.1:0").await.starts_with("HTTP/1.1 200 ") {
        assert!(std::time::Instant::now() < end, "a closed connection is still counted");
    }
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn clients_that_say_nothing_or_half_a_request_are_left_after_thirty_seconds() {
    let rig = Rig::start().await;
    let whole = "GET /ipxe.efi HTTP/1.1\r\nHost: site\r\n\r\n";
    for said in ["", "GET /ipxe.efi HT", whole] {
        let mut stream = TcpStream::connect(rig.addr).await.unwrap();
        stream.write_all(said.as_bytes()).await.unwrap();
        let begin = tokio::time::Instant::now();
        let mut answer = String::new();
        let hour = Duration::from_secs(3600);
        tokio::time::timeout(hour, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
        let waited = begin.elapsed();
        assert!((29..=31).contains(&waited.as_secs()), "{said}: {waited:?}");
        assert_eq!(answer.starts_with("HTTP/1.1 200 "), said == whole, "{answer}");
    }
    rig.stop().await;
}
