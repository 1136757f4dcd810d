//! `file:///` images, from control's own disk.

use std::{io, path::Path};

use futures::StreamExt;
use tokio_util::io::ReaderStream;

use super::Source;

const READ_BYTES: usize = 256 << 10;

/// Opens a regular file; devices and pipes have no end that could be waited for.
pub(super) async fn open(path: &Path) -> io::Result<Source> {
    if !tokio::fs::metadata(path).await?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let file = tokio::fs::File::open(path).await?;
    let len = Some(file.metadata().await?.len());
    Ok(Source { bytes: ReaderStream::with_capacity(file, READ_BYTES).boxed(), len })
}
