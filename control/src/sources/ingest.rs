//! One pass over an image: store its bytes, and learn its digest, format and sizes.

use std::io::{self, Read, Write};

use ironwright_control_core::images::ImageFacts;
use ironwright_images::{
    digest::{MeasureError, measure},
    store::{Store, StoreError, Writer},
};
use ironwright_proto::ids::Digest;

use super::{Room, SourceError, guard::TooSlow};

/// The room on the disk is looked at again after this many bytes.
const ROOM_CHECK_BYTES: usize = 1 << 20;

/// Where bytes come from, for the words of an error.
pub(super) enum Origin {
    Url(String),
    Upload,
}

/// What an image may take up.
#[derive(Debug, Clone)]
pub(crate) struct Bounds {
    /// Its size in bytes.
    pub(crate) most: u64,
    pub(crate) room: Room,
}

/// Reads `source` to its end. What is not accepted leaves nothing in the store.
pub(super) fn ingest(
    store: &Store,
    source: impl Read + Send,
    origin: &Origin,
    bounds: &Bounds,
    expected: Option<Digest>,
) -> Result<ImageFacts, SourceError> {
    let limit = bounds.most;
    let writer = store.begin(limit).map_err(|e| SourceError::Storing(words(&e)))?;
    let mut tee = Tee { source, writer, room: &bounds.room, unchecked: ROOM_CHECK_BYTES, fault: None };
    let measured = measure(&mut tee);
    if let Some(fault) = tee.fault {
        return Err(fault.into_error(origin, limit));
    }
    let measured = measured.map_err(|error| match error {
        MeasureError::Format(e) => SourceError::UnknownFormat(e.to_string()),
        MeasureError::Table(e) => SourceError::NoDisk(e),
        MeasureError::Read(e) => SourceError::Damaged(e.to_string()),
    })?;
    let stored = tee.writer.commit(expected.map(|digest| digest.0)).map_err(|error| match error {
        StoreError::Digest { expected, actual } => SourceError::DigestMismatch {
            expected: format!("sha256:{expected}"),
            actual: format!("sha256:{actual}"),
        },
        other @ StoreError::Io { .. } => SourceError::Storing(words(&other)),
    })?;
    Ok(ImageFacts {
        digest: Digest(stored.digest),
        size_bytes: stored.size,
        raw_size_bytes: measured.raw_size,
        format: measured.format.as_str().to_owned(),
    })
}

fn words(error: &StoreError) -> String {
    use std::error::Error;
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

/// Writes to the store what is read through it, and remembers which of both failed.
struct Tee<'r, R> {
    source: R,
    writer: Writer,
    room: &'r Room,
    /// Bytes since the room was looked at.
    unchecked: usize,
    fault: Option<Fault>,
}

enum Fault {
    Source(io::Error),
    Store(io::Error),
    Room(SourceError),
}

impl Fault {
    fn into_error(self, origin: &Origin, limit: u64) -> SourceError {
        match (self, origin) {
            (Self::Source(e), _) if TooSlow::is_in(&e) => SourceError::TooSlow(TooSlow),
            (Self::Source(e), _) if e.kind() == io::ErrorKind::Interrupted => SourceError::Stopping,
            (Self::Source(e), Origin::Url(url)) => {
                SourceError::Unreachable { url: url.clone(), why: e.to_string() }
            }
            (Self::Source(e), Origin::Upload) => SourceError::UploadBroken(e.to_string()),
            (Self::Store(e), _) if e.kind() == io::ErrorKind::FileTooLarge => SourceError::TooLarge { limit },
            (Self::Room(error), _) => error,
            (Self::Store(e), _) => SourceError::Storing(e.to_string()),
        }
    }
}

impl<R: Read> Read for Tee<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buf).map_err(|e| self.keep(e, Fault::Source))?;
        self.unchecked = self.unchecked.saturating_add(read);
        if self.unchecked >= ROOM_CHECK_BYTES {
            self.unchecked = 0;
            self.room.check(read as u64).map_err(|e| {
                let told = io::Error::other(e.to_string());
                self.fault = Some(Fault::Room(e));
                told
            })?;
        }
        self.writer.write_all(&buf[..read]).map_err(|e| self.keep(e, Fault::Store))?;
        Ok(read)
    }
}

impl<R> Tee<'_, R> {
    /// The caller gets an error that no reader takes for "try again".
    fn keep(&mut self, error: io::Error, fault: impl FnOnce(io::Error) -> Fault) -> io::Error {
        let told = io::Error::other(error.to_string());
        self.fault = Some(fault(error));
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 1 << 20;
    /// By sha256sum, of [`disk`].
    const DISK: &str = "sha256:10b413994cdc9a8a35c862b9ad8b92df71c215fa057278ce2dcb4e09b91ce233";

    /// The smallest disk: one sector, with a DOS table that has one partition.
    fn disk() -> Vec<u8> {
        let mut sector = vec![0; 512];
        sector[446..462].copy_from_slice(&[0, 0, 0, 0, 0x83, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0]);
        sector[510..].copy_from_slice(&[0x55, 0xaa]);
        sector
    }

    /// Gives some bytes, then fails.
    struct Failing(&'static [u8], io::ErrorKind);

    impl Read for Failing {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            match self.0.read(buf)? {
                0 => Err(self.1.into()),
                read => Ok(read),
            }
        }
    }

    fn run(source: impl Read + Send, expected: Option<&str>) -> (Result<ImageFacts, SourceError>, usize) {
        run_with_reserve(source, expected, 0)
    }

    fn run_with_reserve(
        source: impl Read + Send,
        expected: Option<&str>,
        reserve: u64,
    ) -> (Result<ImageFacts, SourceError>, usize) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::at(dir.path()).unwrap();
        let expected = expected.map(|text| text.parse().unwrap());
        let bounds = Bounds { most: LIMIT, room: Room::with_reserve(dir.path(), reserve) };
        let result = ingest(&store, source, &Origin::Url("http://a/b".into()), &bounds, expected);
        let count = |sub: &str| std::fs::read_dir(dir.path().join(sub)).unwrap().count();
        (result, count("sha256") + count("tmp"))
    }

    #[test]
    fn bytes_are_stored_and_measured() {
        let (facts, files) = run(&disk()[..], Some(DISK));
        let facts = facts.unwrap();
        assert_eq!((facts.digest.to_string().as_str(), files), (DISK, 1));
        assert_eq!((facts.size_bytes, facts.raw_size_bytes, facts.format.as_str()), (512, 512, "raw"));
    }

    #[test]
    fn i2_one_wrong_byte_is_a_mismatch_and_leaves_nothing() {
        let mut wrong = disk();
        wrong[0] = 1;
        let (result, files) = run(&wrong[..], Some(DISK));
        assert_eq!((result.unwrap_err().code(), files), ("digest_mismatch", 0));
    }

    #[test]
    fn a_source_that_is_too_slow_is_named_so() {
        struct Slow;
        impl Read for Slow {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::new(io::ErrorKind::TimedOut, TooSlow))
            }
        }
        let (result, files) = run(Slow, None);
        assert_eq!((result.unwrap_err().code(), files), ("too_slow", 0));
    }

    #[test]
    fn each_failure_has_its_code_and_leaves_nothing() {
        let too_large = io::Cursor::new(disk()).chain(io::repeat(7).take(LIMIT));
        let cases: [(Box<dyn Read + Send>, &str); 6] = [
            (Box::new(Failing(b"abc", io::ErrorKind::ConnectionReset)), "source_unreachable"),
            (Box::new(Failing(b"abc", io::ErrorKind::Interrupted)), "stopping"),
            (Box::new(too_large), "too_large"),
            (Box::new(&b"hello world\n"[..]), "bad_partition_table"),
            (Box::new(&b"QFI\xfb\0\0\0\x03"[..]), "unknown_format"),
            (Box::new(&b"\x1f\x8b\x08\0\0\0\0\0\0\x03junk"[..]), "image_damaged"),
        ];
        for (source, code) in cases {
            let (result, files) = run(source, None);
            assert_eq!((result.unwrap_err().code(), files), (code, 0));
        }
    }

    #[test]
    fn an_image_that_would_take_the_reserve_leaves_nothing() {
        let (result, files) = run_with_reserve(&disk()[..], None, 1 << 60);
        assert_eq!((result.unwrap_err().code(), files), ("insufficient_storage", 0));
    }
}
