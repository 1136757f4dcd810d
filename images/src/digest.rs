//! SHA-256 of streams while they pass, and what registering an image needs to know of it.

use std::{
    io::{self, Read},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use sha2::{Digest as _, Sha256};

use crate::{
    decode::decoder,
    probe::{self, Format, PROBE_LEN, ProbeError},
    table::{HEAD_LEN, Table, TableError},
};

/// Hashes and counts what is read through it.
#[derive(Debug)]
pub struct HashingReader<R> {
    inner: R,
    hash: Sha256,
    count: Arc<AtomicU64>,
    failed: bool,
}

impl<R> HashingReader<R> {
    /// Begins with nothing read.
    pub fn new(inner: R) -> Self {
        Self { inner, hash: Sha256::new(), count: Arc::default(), failed: false }
    }

    /// How many bytes were read so far; may be watched from another thread.
    pub fn counter(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.count)
    }

    /// Whether the source ever gave an error other than an interruption.
    pub fn failed(&self) -> bool {
        self.failed
    }

    /// The SHA-256 of all bytes read, and their number.
    pub fn finish(self) -> ([u8; 32], u64) {
        (self.hash.finalize().into(), self.count.load(Ordering::Relaxed))
    }
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n =
            self.inner.read(buf).inspect_err(|e| self.failed |= e.kind() != io::ErrorKind::Interrupted)?;
        self.hash.update(&buf[..n]);
        self.count.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

/// An image's identity and sizes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measured {
    /// SHA-256 of the encoded bytes.
    pub digest: [u8; 32],
    /// Bytes as stored.
    pub size: u64,
    /// Bytes on a disk, after decoding.
    pub raw_size: u64,
    /// The encoding.
    pub format: Format,
}

/// Why an image could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// It is nothing that could be written to a disk.
    #[error(transparent)]
    Format(#[from] ProbeError),
    /// A deploy would refuse it: see [`Table::check_image`].
    #[error(transparent)]
    Table(#[from] TableError),
    /// The source failed, or its bytes are not valid for their format.
    #[error("reading the image")]
    Read(#[source] io::Error),
}

/// Reads a whole image once: digest, sizes and format. What a deploy would refuse whatever the disk is refused here,
/// after the first bytes. Memory is bounded by the decoder's window and [`HEAD_LEN`].
pub fn measure(source: impl Read + Send) -> Result<Measured, MeasureError> {
    let mut source = HashingReader::new(source);
    let first = read_up_to(&mut source, PROBE_LEN).map_err(MeasureError::Read)?;
    let format = probe::probe(&first)?;
    let mut raw = decoder((&first[..]).chain(&mut source), format).map_err(MeasureError::Read)?;
    let head = read_up_to(&mut raw, HEAD_LEN).map_err(MeasureError::Read)?;
    probe::check_decoded(format, &head)?;
    Table::check_image(&head)?;
    let rest = io::copy(&mut raw, &mut io::sink()).map_err(MeasureError::Read)?;
    drop(raw);
    let (digest, size) = source.finish();
    Ok(Measured { digest, size, raw_size: head.len() as u64 + rest, format })
}

/// Reads `limit` bytes, or fewer where the source ends before.
pub(crate) fn read_up_to(source: &mut impl Read, limit: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(limit);
    source.take(limit as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk of this many bytes with a DOS table and one partition.
    fn disk(len: usize) -> Vec<u8> {
        let mut bytes = vec![7; len];
        bytes[446..512].fill(0);
        bytes[446 + 4] = 0x83;
        bytes[446 + 9] = 8;
        bytes[446 + 13] = 8;
        bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
        bytes
    }

    #[test]
    fn raw_bytes_are_measured_as_they_are() {
        let bytes = disk(512);
        let measured = measure(&bytes[..]).unwrap();
        assert_eq!(measured.digest, <[u8; 32]>::from(Sha256::digest(&bytes)));
        assert_eq!((measured.size, measured.raw_size, measured.format), (512, 512, Format::Raw));
    }

    #[test]
    fn a_text_file_is_no_disk() {
        for bytes in [b"hello world\n".to_vec(), vec![0x5a; 1 << 20]] {
            let zstd = zstd::encode_all(&bytes[..], 1).unwrap();
            for encoded in [bytes, zstd] {
                let error = measure(&encoded[..]).unwrap_err();
                assert!(matches!(error, MeasureError::Table(TableError::NoTable)), "{error}");
            }
        }
    }

    #[test]
    fn what_has_no_table_is_refused_before_the_rest_is_read() {
        let endless = io::repeat(7);
        assert!(matches!(measure(endless), Err(MeasureError::Table(TableError::NoTable))));
    }

    #[test]
    fn the_digest_is_of_the_encoded_bytes_and_the_raw_size_of_the_decoded() {
        let raw = disk(3_000_000);
        let encoded = zstd::encode_all(&raw[..], 1).unwrap();
        let measured = measure(&encoded[..]).unwrap();
        assert_eq!(measured.raw_size, 3_000_000);
        assert_eq!(measured.size, encoded.len() as u64);
        assert_eq!(measured.digest, <[u8; 32]>::from(Sha256::digest(&encoded)));
    }

    #[test]
    fn i1_what_is_compressed_has_to_be_a_disk() {
        let qcow2 = zstd::encode_all(&b"QFI\xfb\0\0\0\x03rest"[..], 1).unwrap();
        let error = measure(&qcow2[..]).unwrap_err();
        assert!(matches!(error, MeasureError::Format(ProbeError::Nested("a qcow2 file"))), "{error}");
        let twice = zstd::encode_all(&zstd::encode_all(&[0u8; 600][..], 1).unwrap()[..], 1).unwrap();
        let error = measure(&twice[..]).unwrap_err();
        assert!(matches!(error, MeasureError::Format(ProbeError::Nested("compressed with zstd"))), "{error}");
    }

    #[test]
    fn a_qcow2_file_is_no_image() {
        let error = measure(&b"QFI\xfb\0\0\0\x03rest"[..]).unwrap_err();
        assert!(error.to_string().starts_with("unknown format"), "{error}");
    }
}
