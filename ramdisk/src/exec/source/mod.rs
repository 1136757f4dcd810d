//! An image as a stream of bytes from the site: fetched by async code, read by blocking code.
//!
//! [`fetch`] puts chunks into a bounded channel, [`ChunkReader`] takes them out on the thread that writes
//! the disk. The reader sees an end only if the fetcher said so: a fetcher that is gone is an error, never
//! a short image.

pub mod resume;
pub mod url;

use std::{
    io::{self, Read},
    time::Instant,
};

use bytes::{Buf, Bytes};
use http::{Request, Response, header};
use http_body_util::{BodyExt, Empty};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use ironwright_agent::contain;
use tokio::{
    net::TcpStream,
    sync::mpsc,
    time::{sleep, timeout},
};
use tokio_util::task::AbortOnDropHandle;

use self::{
    resume::{GivenUp, HeadError, Patience, Resume},
    url::HttpUrl,
};
use crate::console::say;

/// Longest chunk of the HTTP client, in bytes.
const MAX_CHUNK: usize = 256 * 1024;
/// Chunks between the network and the disk: with [`MAX_CHUNK`], 4 MiB.
const QUEUE: usize = 16;

/// Why an image could not be fetched.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SourceError {
    /// Another attempt would get the same answer.
    #[error("fetching {url}")]
    Refused {
        /// The image.
        url: String,
        /// The answer.
        #[source]
        source: HeadError,
    },
    /// Many attempts failed.
    #[error("fetching {url}, after {offset} of {total} bytes")]
    GivenUp {
        /// The image.
        url: String,
        /// Bytes that came.
        offset: u64,
        /// Bytes expected.
        total: u64,
        /// Why it was given up.
        #[source]
        source: GivenUp,
    },
}

/// How one connection ended before the image did.
enum Break {
    Passing(String),
    Refused(HeadError),
    /// The reader is gone; it knows why.
    NoReader,
}

#[derive(Debug)]
enum Item {
    Chunk(Bytes),
    End,
    Failed(SourceError),
}

/// The fetcher's end of the channel.
#[derive(Debug)]
pub struct ChunkSender(mpsc::Sender<Item>);

/// The disk writer's end of the channel. Reading blocks.
#[derive(Debug)]
pub struct ChunkReader {
    queue: mpsc::Receiver<Item>,
    chunk: Bytes,
    ended: bool,
}

/// A bounded channel of chunks.
pub fn channel() -> (ChunkSender, ChunkReader) {
    let (tx, queue) = mpsc::channel(QUEUE);
    (ChunkSender(tx), ChunkReader { queue, chunk: Bytes::new(), ended: false })
}

impl Read for ChunkReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.chunk.is_empty() && !self.ended {
            match self.queue.blocking_recv() {
                Some(Item::Chunk(chunk)) => self.chunk = chunk,
                Some(Item::End) => self.ended = true,
                Some(Item::Failed(error)) => return Err(io::Error::other(error)),
                None => return Err(io::Error::new(io::ErrorKind::BrokenPipe, "fetching was stopped")),
            }
        }
        let count = buffer.len().min(self.chunk.len());
        self.chunk.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}

/// Fetches `total` bytes of `url` into the channel, across broken connections and restarts of the site.
pub async fn fetch(
    url: &HttpUrl,
    total: u64,
    patience: Patience,
    sink: ChunkSender,
) -> Result<(), SourceError> {
    let result = fetch_all(url, total, patience, &sink).await;
    let last = match &result {
        Ok(()) => Item::End,
        Err(error) => Item::Failed(error.clone()),
    };
    // Without a reader there is nobody to tell.
    let _ = sink.0.send(last).await;
    result
}

async fn fetch_all(
    url: &HttpUrl,
    total: u64,
    patience: Patience,
    sink: &ChunkSender,
) -> Result<(), SourceError> {
    let mut transfer = Resume::new(total, patience, Instant::now());
    while !transfer.is_finished() {
        let why = match one_connection(url, &patience, &mut transfer, sink).await {
            Ok(()) => "the connection ended early".to_owned(),
            Err(Break::Passing(why)) => why,
            Err(Break::NoReader) => return Ok(()),
            Err(Break::Refused(source)) => return Err(SourceError::Refused { url: url.to_string(), source }),
        };
        if transfer.is_finished() {
            break;
        }
        let offset = transfer.offset();
        let pause = transfer.broken(why.clone(), Instant::now()).map_err(|source| SourceError::GivenUp {
            url: url.to_string(),
            offset,
            total,
            source,
        })?;
        say("image", format_args!("{why}; again from byte {offset} in {} ms", pause.as_millis()));
        sleep(pause).await;
    }
    Ok(())
}

/// Reads from one connection until the image is whole or the connection breaks.
async fn one_connection(
    url: &HttpUrl,
    patience: &Patience,
    transfer: &mut Resume,
    sink: &ChunkSender,
) -> Result<(), Break> {
    let (response, _connection) = timeout(patience.connect, open(url, transfer.offset()))
        .await
        .map_err(|_| Break::Passing(format!("no answer within {} s", patience.connect.as_secs())))??;
    let mut skip =
        transfer.check_head(response.status(), response.headers()).map_err(|error| match error {
            HeadError::Unavailable(_) => Break::Passing(error.to_string()),
            _ => Break::Refused(error),
        })?;
    let mut body = response.into_body();
    while !transfer.is_finished() {
        let frame = timeout(patience.read, body.frame())
            .await
            .map_err(|_| Break::Passing(format!("nothing came for {} s", patience.read.as_secs())))?;
        let Some(frame) = frame else { return Ok(()) };
        let frame = frame.map_err(|error| Break::Passing(format!("the connection broke: {error}")))?;
        let Ok(mut chunk) = frame.into_data() else { continue };
        let skipped = chunk.len().min(usize::try_from(skip).unwrap_or(usize::MAX));
        chunk.advance(skipped);
        skip -= skipped as u64;
        let taken = transfer.bytes(chunk.len(), Instant::now());
        chunk.truncate(taken);
        if !chunk.is_empty() {
            sink.0.send(Item::Chunk(chunk)).await.map_err(|_| Break::NoReader)?;
        }
    }
    Ok(())
}

/// Asks for the bytes from `offset` on. The handle drives the connection.
async fn open(url: &HttpUrl, offset: u64) -> Result<(Response<Incoming>, AbortOnDropHandle<()>), Break> {
    let passing = |what: &str, error: &dyn std::fmt::Display| Break::Passing(format!("{what}: {error}"));
    let (host, port) = url.address();
    let stream = TcpStream::connect((host, port))
        .await
        .map_err(|error| passing(&format!("connecting to {}", url.authority()), &error))?;
    let (mut requests, connection) = http1::Builder::new()
        .max_buf_size(MAX_CHUNK)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| passing("opening HTTP", &error))?;
    let connection = AbortOnDropHandle::new(tokio::spawn(async move {
        // Its errors reach the reader of the body.
        let _ = contain::future(connection).await;
    }));
    let mut request = Request::get(url.path_and_query()).header(header::HOST, url.authority());
    if offset > 0 {
        request = request.header(header::RANGE, format!("bytes={offset}-"));
    }
    let request =
        request.body(Empty::<Bytes>::new()).map_err(|error| passing("making the request", &error))?;
    let response =
        requests.send_request(request).await.map_err(|error| passing("asking the site", &error))?;
    Ok((response, connection))
}
