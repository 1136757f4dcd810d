//! Puts an image onto a disk.
//!
//! ```text
//!            look at header        look at first MiB      stream               digest good
//!  untouched ───────────► checked ─────────────► fits ─────────► body written ─────────► table, seed ──► head written
//!      │                     │                     │                  │                       │             = bootable
//!      └──────── Refused ────┴──── (no write) ─────┘                  └────── Failed: both ends zeroed ──┘
//! ```
//!
//! The disk's first mebibyte stays in memory until the SHA-256 of all encoded bytes is the expected one and
//! everything else is on stable storage, so at no moment does a half-written disk boot. Reading, hashing and
//! decoding happen in a thread ahead of the writer, at most [`CHUNKS_AHEAD`] chunks.

mod check;
mod pipe;
#[cfg(test)]
mod tests;

use std::io::{self, Read};

pub use check::Refusal;

use crate::{
    probe::{self, Format},
    seed::{self, SeedError},
    table::{Extent, HEAD_LEN, Table},
    target::{self, HeldHead, Target, zero_ends},
};

/// Unit of decoding, zero detection and writing in bytes.
pub const CHUNK: usize = 1 << 20;
// The table is taken from the first chunk.
const _: () = assert!(CHUNK >= HEAD_LEN);

/// How many decoded chunks may wait for the writer.
pub const CHUNKS_AHEAD: usize = 4;

/// What to write, as control promised it.
#[derive(Debug, Clone)]
pub struct DeployPlan {
    /// SHA-256 of the encoded bytes.
    pub digest: [u8; 32],
    /// Number of encoded bytes.
    pub size: u64,
    /// Number of decoded bytes, where known.
    pub raw_size: Option<u64>,
    /// Nothing was written since the whole disk was made zero, so zeroes need not be written.
    pub target_is_zero: bool,
    /// Files of the NoCloud seed by name; empty for no seed.
    pub seed: Vec<(String, Vec<u8>)>,
}

/// How far a deploy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Encoded bytes read so far.
    pub read: u64,
    /// Encoded bytes in all.
    pub total: u64,
    /// Decoded bytes that are on their place on the disk, zeroes included.
    pub position: u64,
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deployed {
    /// The encoding that was found.
    pub format: Format,
    /// Encoded bytes read.
    pub bytes_read: u64,
    /// Bytes transferred to the disk; skipped zeroes are not counted.
    pub bytes_written: u64,
    /// Size of the decoded image.
    pub raw_size: u64,
    /// Where the seed is.
    pub seed: Option<Extent>,
}

/// Why a disk does not carry the image.
#[derive(Debug, thiserror::Error)]
pub enum DeployError {
    /// Nothing was written.
    #[error("the image was refused before the first write")]
    Refused(#[from] Refusal),
    /// The disk was changed, and made unbootable again.
    #[error("the image was not written; both ends of the disk were zeroed")]
    Failed(#[source] Failure),
    /// The disk was changed, and even its ends could not be zeroed.
    #[error("the image was not written, and the ends of the disk could not be zeroed ({zeroing})")]
    Stuck {
        /// What went wrong first.
        #[source]
        cause: Failure,
        /// Why the ends could not be zeroed.
        zeroing: io::Error,
    },
}

/// What went wrong after the first write.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The source gave an error.
    #[error("the image source failed after {read} bytes")]
    Source {
        /// Encoded bytes read before.
        read: u64,
        /// The source's error.
        #[source]
        source: io::Error,
    },
    /// The source ended early.
    #[error("the image ended after {read} of {expected} bytes")]
    Truncated {
        /// Encoded bytes read.
        read: u64,
        /// Encoded bytes promised.
        expected: u64,
    },
    /// The source has more than was promised.
    #[error("the image goes on after the promised {expected} bytes")]
    TooLong {
        /// Encoded bytes promised.
        expected: u64,
    },
    /// The bytes are not valid for their format.
    #[error("decoding the {format} image")]
    Corrupt {
        /// The format that was found.
        format: Format,
        /// The decoder's error.
        #[source]
        source: io::Error,
    },
    /// Other bytes than promised.
    #[error("the image's SHA-256 is {actual}, expected {expected}")]
    Digest {
        /// Hexadecimal.
        expected: String,
        /// Hexadecimal.
        actual: String,
    },
    /// The decoded image is larger than the disk (field report I6).
    #[error("the decoded image is larger than the disk of {disk} bytes")]
    LargerThanDisk {
        /// In bytes.
        disk: u64,
    },
    /// The decoded size is not the promised one.
    #[error("the decoded image has {actual} bytes, expected {expected}")]
    RawSize {
        /// In bytes.
        expected: u64,
        /// In bytes; at least, where it was larger.
        actual: u64,
    },
    /// The disk failed.
    #[error("writing to the disk {what}")]
    Disk {
        /// What was being written.
        what: String,
        /// The disk's error.
        #[source]
        source: io::Error,
    },
}

/// Writes the image from `source` to `target` as the plan says. `progress` is called after every chunk.
pub fn deploy(
    source: impl Read + Send,
    target: &mut dyn Target,
    plan: &DeployPlan,
    progress: &mut dyn FnMut(Progress),
) -> Result<Deployed, DeployError> {
    let seed = seed_image(plan, target.sector_size())?;
    pipe::run(source, plan, |stream| {
        check::sizes(stream.format, stream.promised, plan, target.size())?;
        let first = match stream.next() {
            Some(Ok(chunk)) => chunk,
            Some(Err(source)) => return Err(Refusal::Read(source).into()),
            None => Vec::new(),
        };
        probe::check_decoded(stream.format, &first).map_err(Refusal::Format)?;
        let mut table = Table::parse(&first, target.sector_size()).map_err(Refusal::Table)?;
        let seed_len = seed.as_ref().map(|image| image.len() as u64);
        let seed_at = table.fit(target.size(), target.sector_size(), seed_len).map_err(Refusal::Table)?;

        let seed = seed_at.zip(seed.as_deref());
        write_all(first, stream, target, plan, &table, seed, progress).map_err(|cause| {
            match zero_ends(target) {
                Ok(()) => DeployError::Failed(cause),
                Err(zeroing) => DeployError::Stuck { cause, zeroing },
            }
        })
    })
}

fn seed_image(plan: &DeployPlan, sector_size: u32) -> Result<Option<Vec<u8>>, Refusal> {
    let build = |files: &[_]| seed::cidata(files, sector_size);
    (!plan.seed.is_empty()).then(|| build(&plan.seed)).transpose().map_err(|e: SeedError| Refusal::Seed(e))
}

/// Everything from the first write on.
fn write_all(
    first: Vec<u8>,
    stream: &mut pipe::Stream,
    target: &mut dyn Target,
    plan: &DeployPlan,
    table: &Table,
    seed: Option<(Extent, &[u8])>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Deployed, Failure> {
    let disk = |what: &str| {
        let what = what.to_owned();
        move |source| Failure::Disk { what, source }
    };
    zero_ends(target).map_err(disk("(zeroing its ends)"))?;
    let mut held = HeldHead::new(target);
    let mut position = 0;
    let mut written = 0;
    let mut next = Some(Ok(first));
    while let Some(chunk) = next {
        let chunk = chunk.map_err(|source| stream.failure(source))?;
        written += write_chunk(&mut held, plan, position, &chunk)?;
        position += chunk.len() as u64;
        progress(Progress { read: stream.bytes_read(), total: plan.size, position });
        next = stream.next();
    }
    let bytes_read = stream.verify(plan)?;
    if let Some(expected) = plan.raw_size.filter(|&expected| expected != position) {
        return Err(Failure::RawSize { expected, actual: position });
    }
    if let Some((extent, image)) = seed {
        held.write_at(extent.offset, image).map_err(disk("(seed partition)"))?;
        written += extent.len;
    }
    table.write(&mut held).map_err(disk("(partition table)"))?;
    held.release().map_err(disk("(its first mebibyte)"))?;
    let seed = seed.map(|(extent, _)| extent);
    Ok(Deployed { format: stream.format, bytes_read, bytes_written: written, raw_size: position, seed })
}

/// Writes one chunk, or makes its place zero; returns the bytes transferred.
fn write_chunk(
    held: &mut HeldHead<'_>,
    plan: &DeployPlan,
    position: u64,
    chunk: &[u8],
) -> Result<u64, Failure> {
    let len = chunk.len() as u64;
    let end = position + len;
    if end > held.size() {
        return Err(Failure::LargerThanDisk { disk: held.size() });
    }
    if let Some(expected) = plan.raw_size.filter(|&expected| end > expected) {
        return Err(Failure::RawSize { expected, actual: end });
    }
    let done = if !target::is_zero(chunk) {
        held.write_at(position, chunk).map(|()| len)
    } else if plan.target_is_zero {
        Ok(0)
    } else {
        target::zero(held, position, len)
    };
    done.map_err(|source| Failure::Disk { what: format!("({len} bytes at {position})"), source })
}
