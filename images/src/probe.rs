//! Which format an image stream has, told by its first bytes and never by a name (field report I1).

use std::fmt;

/// How many first bytes [`probe`] and [`decoded_size`] want to see: enough for every magic below, of which
/// ISO 9660's and the tar header's lie deepest among those of real use.
pub const PROBE_LEN: usize = 512;

/// How the raw disk bytes are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// The disk's bytes as they are.
    Raw,
    /// RFC 1952, one or more members.
    Gzip,
    /// RFC 8878, one or more frames.
    Zstd,
}

impl Format {
    /// The word used on the wire: `raw`, `gzip` or `zstd`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Bytes that are certainly no disk image we can write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    /// A container or compression that must not land on a disk as it is.
    #[error("unknown format: the image is {0}, and only raw, gzip and zstd can be written to a disk")]
    Unsupported(&'static str),
    /// Compressed, and what is inside is no disk either.
    #[error("unknown format: what is compressed in the image is {0}, and only a raw disk can be")]
    Nested(&'static str),
    /// Nothing to look at.
    #[error("unknown format: the image is empty")]
    Empty,
}

/// Offset, magic bytes and name of what is recognised in order to refuse it.
const REFUSED: &[(usize, &[u8], &str)] = &[
    (0, b"QFI\xfb", "a qcow2 file"),
    (0, b"\xfd7zXZ\0", "compressed with xz"),
    (0, b"BZh", "compressed with bzip2"),
    (0, b"\x04\x22\x4d\x18", "compressed with lz4"),
    (0, b"PK\x03\x04", "a zip archive"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (0, b"KDMV", "a VMDK file"),
    (0, b"# Disk DescriptorFile", "a VMDK descriptor"),
    (0, b"conectix", "a VHD file"),
    (0, b"vhdxfile", "a VHDX file"),
    (0x40, b"\x7f\x10\xda\xbe", "a VDI file"),
    (257, b"ustar", "a tar archive"),
    (0, b"<!DOCTYPE", "an HTML page"),
    (0, b"<!doctype", "an HTML page"),
    (0, b"<html", "an HTML page"),
];

const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];
const ZSTD_MAGIC: u32 = 0xfd2f_b528;
/// RFC 8878 3.1.2: skippable frames have 0x184D2A5? as magic; some tools begin a stream with one.
const SKIPPABLE_MAGIC: u32 = 0x184d_2a50;

/// Tells the format from the first bytes of the stream ([`PROBE_LEN`] of them, fewer if it is shorter).
pub fn probe(first: &[u8]) -> Result<Format, ProbeError> {
    if first.is_empty() {
        return Err(ProbeError::Empty);
    }
    if first.starts_with(GZIP_MAGIC) {
        return Ok(Format::Gzip);
    }
    if let Some(magic) = le_u32(first)
        && (magic == ZSTD_MAGIC || magic & !0xf == SKIPPABLE_MAGIC)
    {
        return Ok(Format::Zstd);
    }
    let refused =
        REFUSED.iter().find(|(at, magic, _)| first.get(*at..).is_some_and(|b| b.starts_with(magic)));
    match refused {
        Some((_, _, name)) => Err(ProbeError::Unsupported(name)),
        None => Ok(Format::Raw),
    }
}

/// Refuses decoded bytes that are a container or once more compressed: they would land on the disk as they are.
/// `first` are the first decoded bytes of a stream of `format`.
pub fn check_decoded(format: Format, first: &[u8]) -> Result<(), ProbeError> {
    if format == Format::Raw || first.is_empty() {
        return Ok(());
    }
    match probe(first) {
        Ok(Format::Raw) => Ok(()),
        Ok(Format::Gzip) => Err(ProbeError::Nested("compressed with gzip")),
        Ok(Format::Zstd) => Err(ProbeError::Nested("compressed with zstd")),
        Err(ProbeError::Unsupported(name)) => Err(ProbeError::Nested(name)),
        Err(other) => Err(other),
    }
}

/// What the stream's header promises about its decoded size in bytes, as a lower bound: the content size of
/// the first zstd frame (RFC 8878 3.1.1.1), which more frames may follow. Gzip says its size only at the end
/// and only modulo 2^32, so it promises nothing.
pub fn decoded_size(first: &[u8]) -> Option<u64> {
    if le_u32(first) != Some(ZSTD_MAGIC) {
        return None;
    }
    let descriptor = *first.get(4)?;
    let single_segment = descriptor & 0x20 != 0;
    let window_len = usize::from(!single_segment);
    let dictionary_len = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let field = first.get(5 + window_len + dictionary_len..)?;
    match (descriptor >> 6, single_segment) {
        (0, false) => None,
        (0, true) => field.first().map(|&b| u64::from(b)),
        (1, _) => Some(u64::from(u16::from_le_bytes([*field.first()?, *field.get(1)?])) + 256),
        (2, _) => le_u32(field).map(u64::from),
        _ => field.first_chunk::<8>().map(|b| u64::from_le_bytes(*b)),
    }
}

fn le_u32(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk::<4>().map(|b| u32::from_le_bytes(*b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i1_format_comes_from_magic_bytes() {
        assert_eq!(probe(&[0x28, 0xb5, 0x2f, 0xfd, 0x04]), Ok(Format::Zstd));
        assert_eq!(probe(&[0x52, 0x2a, 0x4d, 0x18, 4, 0, 0, 0]), Ok(Format::Zstd), "skippable frame first");
        assert_eq!(probe(&[0x1f, 0x8b, 8, 0]), Ok(Format::Gzip));
        assert_eq!(probe(&[0xeb, 0x63, 0x90]), Ok(Format::Raw));
        assert_eq!(probe(&[0; PROBE_LEN]), Ok(Format::Raw));
    }

    #[test]
    fn containers_are_refused_rather_than_written_raw() {
        let refused = |bytes: &[u8]| matches!(probe(bytes), Err(ProbeError::Unsupported(_)));
        assert!(refused(b"QFI\xfb\0\0\0\x03"));
        assert!(refused(b"\xfd7zXZ\0\0\x04"));
        assert!(refused(b"<!DOCTYPE html>"));
        let mut tar = [0; PROBE_LEN];
        tar[257..262].copy_from_slice(b"ustar");
        assert!(refused(&tar));
        assert_eq!(probe(b""), Err(ProbeError::Empty));
    }

    #[test]
    fn short_streams_are_raw() {
        assert_eq!(probe(&[0x1f]), Ok(Format::Raw));
        assert_eq!(probe(b"QF"), Ok(Format::Raw));
    }

    #[test]
    fn zstd_frame_content_size_is_read_in_all_four_widths() {
        let magic = [0x28, 0xb5, 0x2f, 0xfd];
        let frame = |rest: &[u8]| [&magic[..], rest].concat();
        assert_eq!(decoded_size(&frame(&[0x20, 200])), Some(200));
        assert_eq!(decoded_size(&frame(&[0x40, 0, 0, 1])), Some(512), "16 bits count from 256");
        assert_eq!(decoded_size(&frame(&[0xa0, 0, 0, 0, 1])), Some(1 << 24));
        assert_eq!(decoded_size(&frame(&[0xc0, 0, 0, 0, 0, 0, 1, 0, 0, 0])), Some(1 << 32));
        assert_eq!(decoded_size(&frame(&[0x00, 0x58])), None, "not given");
        assert_eq!(decoded_size(&frame(&[0xc0, 0, 1])), None, "cut off");
        assert_eq!(decoded_size(b"raw"), None);
    }
}
