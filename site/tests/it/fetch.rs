//! Blobs from control into the site's cache.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use futures::future::BoxFuture;
use ironwright_proto::{ids::Mac, wire::BootPrepareArgs};
use ironwright_pxe::{
    files::Files,
    http::{Boots, ScriptAnswer, Server},
};
use ironwright_site::{Connection, Upstream};
use tokio::{io::AsyncReadExt, net::TcpStream};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::rig::*;

/// `head -c 1000000 /dev/zero | sha256sum`
const ZEROS: &str = "d29751f2649b32ff572b5e0a9f541ea660a50f94ff0beedfb0b692b924cc8025";
const LEN: usize = 1_000_000;

/// No scripts here.
struct NoScripts;

impl Boots for NoScripts {
    fn script(&self, _mac: Mac) -> BoxFuture<'_, ScriptAnswer> {
        Box::pin(async { ScriptAnswer::Unknown })
    }
}

/// Control's blobs over connections that break after some bytes.
struct Breaking {
    addr: SocketAddr,
    after: u64,
    connections: AtomicU32,
    _dir: tempfile::TempDir,
    _server: AbortOnDropHandle<()>,
}

impl Breaking {
    async fn start(content: &[u8], after: u64) -> Arc<Self> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(ZEROS), content).unwrap();
        let server = Server::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let addr = server.local_addr();
        let blobs = Arc::new(Folder(dir.path().to_owned()));
        let run =
            server.run(Arc::new(Files::default()), blobs, Arc::new(NoScripts), CancellationToken::new());
        let server = AbortOnDropHandle::new(tokio::spawn(run));
        Arc::new(Self { addr, after, connections: AtomicU32::new(0), _dir: dir, _server: server })
    }
}

impl Upstream for Breaking {
    fn connect(&self) -> BoxFuture<'_, io::Result<Connection>> {
        Box::pin(async {
            self.connections.fetch_add(1, Relaxed);
            let (reader, writer) = TcpStream::connect(self.addr).await?.into_split();
            let broken = tokio::io::join(reader.take(self.after), writer);
            Ok(Connection { stream: Box::pin(broken), host: self.addr.to_string() })
        })
    }
}

fn with_artifact() -> BootPrepareArgs {
    BootPrepareArgs { artifacts: vec![format!("sha256:{ZEROS}")], ..prepare_args() }
}

#[tokio::test]
async fn a_broken_fetch_goes_on_where_it_was() {
    let upstream = Breaking::start(&vec![0; LEN], 400_000).await;
    let rig = Rig::start_with(Some(upstream.clone())).await;
    rig.prepare(with_artifact()).await.unwrap();
    assert_eq!(upstream.connections.load(Relaxed), 3, "1,000,000 bytes in parts of at most 400,000");
    let (status, body) = rig.get(&format!("/blobs/sha256/{ZEROS}")).await;
    assert_eq!((status, body.len()), (200, LEN));
    assert!(body.bytes().all(|byte| byte == 0));

    rig.prepare(with_artifact()).await.unwrap();
    assert_eq!(upstream.connections.load(Relaxed), 3, "what is in the cache is not fetched again");
    rig.stop().await;
}

#[tokio::test]
async fn bytes_of_another_blob_are_refused() {
    let upstream = Breaking::start(&vec![1; LEN], u64::MAX).await;
    let rig = Rig::start_with(Some(upstream)).await;
    assert_eq!(rig.prepare(with_artifact()).await.unwrap_err().code, "digest_mismatch");
    assert_eq!(rig.get(&format!("/blobs/sha256/{ZEROS}")).await.0, 404);
    assert_eq!(rig.script().await.0, 404, "no entry points to what is not here");
    rig.stop().await;
}

#[tokio::test]
async fn a_blob_that_control_does_not_have_fails_at_once() {
    let upstream = Breaking::start(b"", u64::MAX).await;
    let rig = Rig::start_with(Some(upstream.clone())).await;
    let missing = format!("sha256:{}", "0".repeat(64));
    let args = BootPrepareArgs { artifacts: vec![missing], ..prepare_args() };
    assert_eq!(rig.prepare(args).await.unwrap_err().code, "artifact_unavailable");
    assert_eq!(upstream.connections.load(Relaxed), 1);
    rig.stop().await;
}

#[tokio::test]
async fn control_out_of_reach_is_worth_another_command() {
    let rig = Rig::start().await;
    assert_eq!(rig.prepare(with_artifact()).await.unwrap_err().code, "source_unreachable");
    rig.stop().await;
}
