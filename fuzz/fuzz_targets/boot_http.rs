//! The bytes of one connection to the boot HTTP server, over a loopback socket; and the `Range` header alone.
#![no_main]

use std::{fs::File, io, net::SocketAddr, sync::Arc, sync::LazyLock};

use futures::future::BoxFuture;
use ironwright_proto::ids::{Digest, Mac};
use ironwright_pxe::{
    files::Files,
    http::{
        Blobs, Boots, ScriptAnswer, Server,
        range::{Part, part},
    },
};
use libfuzzer_sys::fuzz_target;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    runtime::{Builder, Runtime},
};
use tokio_util::sync::CancellationToken;

const BLOB_LEN: u64 = 1000;

struct OneBlob(tempfile::NamedTempFile);

impl Blobs for OneBlob {
    fn open(&self, digest: &Digest) -> io::Result<Option<(File, u64)>> {
        if digest.0 == [0x11; 32] { Ok(Some((self.0.reopen()?, BLOB_LEN))) } else { Ok(None) }
    }
}

struct Scripts;

impl Boots for Scripts {
    fn script(&self, mac: Mac) -> BoxFuture<'_, ScriptAnswer> {
        let answer = match mac.0[5] {
            0 => ScriptAnswer::Unknown,
            1 => ScriptAnswer::NotNow,
            _ => ScriptAnswer::Script("#!ipxe\n".into()),
        };
        Box::pin(async { answer })
    }
}

static SERVER: LazyLock<(Runtime, SocketAddr)> = LazyLock::new(|| {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let blob = tempfile::NamedTempFile::new().expect("a temporary file");
    blob.as_file().set_len(BLOB_LEN).expect("a temporary file");
    let server = runtime.block_on(Server::bind("127.0.0.1:0".parse().expect("an address"))).expect("a port");
    let addr = server.local_addr();
    let files = Files::from_bytes([("ipxe.efi".to_owned(), bytes::Bytes::from_static(b"MZ"))]);
    runtime.spawn(server.run(
        Arc::new(files),
        Arc::new(OneBlob(blob)),
        Arc::new(Scripts),
        CancellationToken::new(),
    ));
    (runtime, addr)
});

async fn exchange(addr: SocketAddr, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(addr).await?;
    // A reset, where the server has enough before all was sent, is an answer too.
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    Ok(answer)
}

fuzz_target!(|bytes: &[u8]| {
    if let Some((size, header)) = bytes.split_first_chunk::<8>()
        && let Ok(header) = std::str::from_utf8(header)
    {
        let size = u64::from_be_bytes(*size);
        if let Part::Bytes { start, len } = part(Some(header), size) {
            assert!(len > 0 && start.checked_add(len).is_some_and(|end| end <= size));
        }
    }
    let (runtime, addr) = &*SERVER;
    let answer = runtime.block_on(exchange(*addr, bytes)).expect("a connection over loopback");
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."), "an answer that is not HTTP");
});
