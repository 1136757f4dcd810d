//! The reading half: a thread that reads, hashes and decodes ahead of the writer.

use std::{
    io::{self, Read},
    panic,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
};

use super::{CHUNK, CHUNKS_AHEAD, DeployError, DeployPlan, Failure, check::Refusal};
use crate::{
    decode::decoder,
    digest::{HashingReader, read_up_to},
    probe::{self, Format, PROBE_LEN},
};

/// How the source ended.
#[derive(Debug)]
struct End {
    digest: [u8; 32],
    /// The decoder's failure was the source's.
    source_failed: bool,
}

/// The decoded chunks, as the writer sees them.
pub(super) struct Stream {
    /// The encoding that was found.
    pub(super) format: Format,
    /// Decoded bytes that the stream's own header promises, as a lower bound.
    pub(super) promised: Option<u64>,
    size: u64,
    chunks: Receiver<io::Result<Vec<u8>>>,
    read: Arc<AtomicU64>,
    end: Arc<Mutex<Option<End>>>,
}

impl Stream {
    /// The next chunk; all but the last have [`CHUNK`] bytes. `None` after the last.
    pub(super) fn next(&mut self) -> Option<io::Result<Vec<u8>>> {
        self.chunks.recv().ok()
    }

    /// Encoded bytes read so far.
    pub(super) fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Names the failure behind an error that [`Stream::next`] gave.
    pub(super) fn failure(&self, source: io::Error) -> Failure {
        let read = self.bytes_read();
        match self.end.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            Some(End { source_failed: true, .. }) => Failure::Source { read, source },
            _ if read > self.size => Failure::TooLong { expected: self.size },
            // Only a decoder at the end of its input gives this.
            _ if read < self.size && source.kind() == io::ErrorKind::UnexpectedEof => {
                Failure::Truncated { read, expected: self.size }
            }
            _ => Failure::Corrupt { format: self.format, source },
        }
    }

    /// After the last chunk: whether the source gave exactly the promised bytes. Returns their number.
    pub(super) fn verify(&self, plan: &DeployPlan) -> Result<u64, Failure> {
        let read = self.bytes_read();
        let expected = plan.size;
        let end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        match end.as_ref() {
            _ if read > expected => Err(Failure::TooLong { expected }),
            _ if read < expected => Err(Failure::Truncated { read, expected }),
            Some(end) if end.digest == plan.digest => Ok(read),
            end => {
                let actual = end.map_or_else(String::new, |end| hex::encode(end.digest));
                Err(Failure::Digest { expected: hex::encode(plan.digest), actual })
            }
        }
    }
}

/// Runs `writer` over the decoded chunks of `source`. When the writer stops early, the reader stops at its
/// next chunk.
pub(super) fn run<T>(
    source: impl Read + Send,
    plan: &DeployPlan,
    writer: impl FnOnce(&mut Stream) -> Result<T, DeployError>,
) -> Result<T, DeployError> {
    // One byte more than promised is enough to know that the source is too long.
    let source = source.take(plan.size.saturating_add(1));
    let mut source = HashingReader::new(source);
    let first = read_up_to(&mut source, PROBE_LEN).map_err(Refusal::Read)?;
    let format = probe::probe(&first).map_err(Refusal::Format)?;
    let (sender, chunks) = sync_channel(CHUNKS_AHEAD);
    let end = Arc::new(Mutex::new(None));
    let read = source.counter();
    let promised = probe::decoded_size(&first);
    let mut stream = Stream { format, promised, size: plan.size, chunks, read, end: Arc::clone(&end) };
    thread::scope(|scope| {
        let reader = scope.spawn(move || read_ahead(&first, source, format, &sender, &end));
        let result = writer(&mut stream);
        drop(stream);
        if let Err(panicked) = reader.join() {
            panic::resume_unwind(panicked);
        }
        result
    })
}

fn read_ahead(
    first: &[u8],
    mut source: HashingReader<impl Read + Send>,
    format: Format,
    sender: &SyncSender<io::Result<Vec<u8>>>,
    end: &Mutex<Option<End>>,
) {
    let outcome = decoder(first.chain(&mut source), format).and_then(|mut raw| {
        loop {
            let chunk = read_up_to(&mut raw, CHUNK)?;
            let last = chunk.len() < CHUNK;
            if (!chunk.is_empty() && sender.send(Ok(chunk)).is_err()) || last {
                return Ok(());
            }
        }
    });
    let source_failed = source.failed();
    let (digest, _) = source.finish();
    // Set before the sender is dropped or says an error, so that the writer finds it.
    *end.lock().unwrap_or_else(PoisonError::into_inner) = Some(End { digest, source_failed });
    if let Err(error) = outcome {
        // The writer may be gone already.
        let _ = sender.send(Err(error));
    }
}
