//! Where image bytes come from, and how they get into control's blob folder.
//!
//! ```text
//! http, https, file ─┐
//!                    ├─▶ guarded stream ─▶ measure and store (blocking thread) ─▶ image_fetched
//! upload ────────────┘   (least rate, total    digest, format, sizes in           or image_failed
//!                         time, shutdown)      one pass
//! ```

mod file;
mod guard;
mod image_url;
mod ingest;
mod room;
mod transfers;
mod turns;
mod web;

use std::{io, pin::Pin};

use bytes::Bytes;
use futures::Stream;
use ironwright_images::table::TableError;
use ironwright_proto::api::ApiErrorBody;

pub(crate) use self::{
    file::ImageFolder,
    ingest::Bounds,
    room::{Room, free_bytes},
    transfers::Transfers,
    turns::{TURN_LIMIT, Turn},
};

/// The bytes of an image, as they arrive.
type ByteStream = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

/// An image that can be read.
pub(crate) struct Source {
    pub(crate) bytes: ByteStream,
    /// Its size, where the source tells it beforehand.
    pub(crate) len: Option<u64>,
}

/// The code of an image that does not fit on control's disk.
pub(crate) const INSUFFICIENT_STORAGE: &str = "insufficient_storage";
/// The code of a file that control does not read.
pub(crate) const FILE_REFUSED: &str = "file_refused";
/// The code of an image that came too slowly.
pub(crate) const TOO_SLOW: &str = "too_slow";

/// Why the bytes of an image could not be had. The code is part of the API.
#[derive(Debug, thiserror::Error)]
enum SourceError {
    /// Nothing, or not everything, came from there.
    #[error("cannot fetch `{url}`: {why}; check that control can reach it")]
    Unreachable { url: String, why: String },
    /// A file of control's own disk that is not meant as an image.
    #[error("file URLs are only for the image folder of control's own disk: {0}")]
    FileRefused(String),
    /// The upload ended before the whole image was there.
    #[error("the upload broke off: {0}; upload the image again")]
    UploadBroken(String),
    /// More bytes than the config allows.
    #[error("the image is larger than {limit} bytes; raise limits.image_bytes in control.toml")]
    TooLarge { limit: u64 },
    /// It would keep others from their turn.
    #[error("the image was given up: {0}; check the connection, and add the image again")]
    TooSlow(guard::TooSlow),
    /// Nothing that could be written to a disk.
    #[error("{0}")]
    UnknownFormat(String),
    /// A machine's disk would be erased for it, and then it would be refused.
    #[error("{0}; give the image of a whole disk, with its partition table")]
    NoDisk(TableError),
    /// Compressed data with a fault in it.
    #[error("the image's compressed data is damaged: {0}")]
    Damaged(String),
    /// The bytes are not the wanted ones.
    #[error("the image's digest is {actual}, expected {expected}")]
    DigestMismatch { expected: String, actual: String },
    /// The store on the same disk needs the rest.
    #[error(
        "the image does not fit: {free} bytes are free in `{dir}`, of which control keeps {reserve} for its store; \
         free space there, then add the image again"
    )]
    InsufficientStorage { dir: String, free: u64, reserve: u64 },
    /// Control's own disk.
    #[error("control could not store the image: {0}")]
    Storing(String),
    /// At the moment these bytes were whole, another image of the same bytes was removed with them.
    #[error("the image's bytes were removed with another image of the same digest; add the image again")]
    Removed,
    /// Control is being shut down; not the image's fault.
    #[error("control is stopping")]
    Stopping,
}

impl SourceError {
    const fn code(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "source_unreachable",
            Self::FileRefused(_) => FILE_REFUSED,
            Self::UploadBroken(_) | Self::Removed => "interrupted",
            Self::TooLarge { .. } => "too_large",
            Self::TooSlow(_) => TOO_SLOW,
            Self::UnknownFormat(_) => "unknown_format",
            Self::NoDisk(error) => error.code(),
            Self::Damaged(_) => "image_damaged",
            Self::DigestMismatch { .. } => "digest_mismatch",
            Self::InsufficientStorage { .. } => INSUFFICIENT_STORAGE,
            Self::Storing(_) => "internal",
            Self::Stopping => "stopping",
        }
    }

    fn to_api(&self) -> ApiErrorBody {
        ApiErrorBody { code: self.code().to_owned(), message: self.to_string(), field: None }
    }
}
