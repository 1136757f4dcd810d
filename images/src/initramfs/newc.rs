//! The cpio format "newc": a header of 110 characters, the name, the data; each padded to 4 bytes.

use std::io::{self, Write};

/// Directory.
pub const S_IFDIR: u32 = 0o040_000;
/// Regular file.
pub const S_IFREG: u32 = 0o100_000;
/// Symbolic link; the data is where it leads.
pub const S_IFLNK: u32 = 0o120_000;
/// Character device.
pub const S_IFCHR: u32 = 0o020_000;

/// Longest name in bytes, as in Linux.
pub const MAX_NAME: usize = 4096;

const MAGIC: &[u8] = b"070701";
const HEADER_LEN: usize = 110;
const TRAILER: &str = "TRAILER!!!";

/// The fields of a header that we set; times, owners and the device are 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Header {
    /// Inode number.
    pub inode: u32,
    /// Type and permission bits.
    pub mode: u32,
    /// Number of hard links.
    pub links: u32,
    /// Of a device node.
    pub rdev_major: u32,
    /// Of a device node.
    pub rdev_minor: u32,
}

/// Writes an archive.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    written: u64,
}

impl<W: Write> Writer<W> {
    /// Begins an archive.
    pub fn new(out: W) -> Self {
        Self { out, written: 0 }
    }

    /// Adds one entry. Its name is without a leading `/`.
    pub fn entry(&mut self, name: &str, header: Header, data: &[u8]) -> io::Result<()> {
        let size = u32::try_from(data.len()).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        let name_size = u32::try_from(name.len() + 1).map_err(io::Error::other)?;
        let h = header;
        let fields =
            [h.inode, h.mode, 0, 0, h.links, 0, size, 0, 0, h.rdev_major, h.rdev_minor, name_size, 0];
        self.put(MAGIC)?;
        for field in fields {
            self.put(format!("{field:08x}").as_bytes())?;
        }
        self.put(name.as_bytes())?;
        self.put(b"\0")?;
        self.pad()?;
        self.put(data)?;
        self.pad()
    }

    /// Ends the archive; returns its size in bytes.
    pub fn finish(mut self) -> io::Result<u64> {
        self.entry(TRAILER, Header { links: 1, ..Header::default() }, &[])?;
        self.out.flush()?;
        Ok(self.written)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    fn pad(&mut self) -> io::Result<()> {
        let zeroes = usize::try_from(self.written.next_multiple_of(4) - self.written).unwrap_or(0);
        self.put(&[0; 3][..zeroes])
    }
}

/// An entry as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Without a leading `/`.
    pub name: String,
    /// The fields we know.
    pub header: Header,
    /// Its content.
    pub data: Vec<u8>,
}

/// Why bytes are no archive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Ends in the middle.
    #[error("the cpio archive is cut off at byte {0}")]
    Truncated(usize),
    /// Not a newc header.
    #[error("no newc header at byte {0} of the cpio archive")]
    Header(usize),
    /// An impossible name.
    #[error("the entry at byte {0} of the cpio archive has an invalid name")]
    Name(usize),
}

/// Reads a whole uncompressed archive.
pub fn parse(archive: &[u8]) -> Result<Vec<Entry>, ParseError> {
    let mut entries = Vec::new();
    let mut at = 0;
    loop {
        let start = at;
        let header = take(archive, &mut at, HEADER_LEN)?;
        let field = |index: usize| hex_field(header, index).ok_or(ParseError::Header(start));
        if !header.starts_with(MAGIC) {
            return Err(ParseError::Header(start));
        }
        let name_size = field(11)? as usize;
        if !(2..=MAX_NAME + 1).contains(&name_size) {
            return Err(ParseError::Name(start));
        }
        let name = take(archive, &mut at, name_size)?.strip_suffix(b"\0").ok_or(ParseError::Name(start))?;
        let name = str::from_utf8(name).map_err(|_| ParseError::Name(start))?.to_owned();
        at = at.next_multiple_of(4);
        if name == TRAILER {
            return Ok(entries);
        }
        let data = take(archive, &mut at, field(6)? as usize)?.to_vec();
        at = at.next_multiple_of(4);
        let (inode, mode, links) = (field(0)?, field(1)?, field(4)?);
        let header = Header { inode, mode, links, rdev_major: field(9)?, rdev_minor: field(10)? };
        entries.push(Entry { name, header, data });
    }
}

fn take<'a>(archive: &'a [u8], at: &mut usize, len: usize) -> Result<&'a [u8], ParseError> {
    let end = at.checked_add(len).ok_or(ParseError::Truncated(*at))?;
    let bytes = archive.get(*at..end).ok_or(ParseError::Truncated(*at))?;
    *at = end;
    Ok(bytes)
}

fn hex_field(header: &[u8], index: usize) -> Option<u32> {
    let digits = header.get(6 + index * 8..14 + index * 8)?;
    let all_hex = digits.iter().all(u8::is_ascii_hexdigit);
    u32::from_str_radix(str::from_utf8(digits).ok().filter(|_| all_hex)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry() -> impl Strategy<Value = Entry> {
        let numbers = (any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>());
        ("[a-z][a-z0-9/._-]{0,40}", numbers, proptest::collection::vec(any::<u8>(), 0..70)).prop_map(
            |(name, (inode, mode, links, rdev_major, rdev_minor), data)| Entry {
                name,
                header: Header { inode, mode, links, rdev_major, rdev_minor },
                data,
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(entries in proptest::collection::vec(entry(), 0..5)) {
            let mut archive = Vec::new();
            let mut writer = Writer::new(&mut archive);
            for entry in &entries {
                writer.entry(&entry.name, entry.header, &entry.data).unwrap();
            }
            prop_assert_eq!(writer.finish().unwrap(), archive.len() as u64);
            prop_assert_eq!(archive.len() % 4, 0);
            prop_assert_eq!(parse(&archive), Ok(entries));
            // The last bytes are padding.
            for cut in 0..(archive.len() - 3).min(300) {
                prop_assert!(parse(&archive[..cut]).is_err());
            }
        }

        #[test]
        fn no_bytes_make_the_parser_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..400), magic in any::<bool>()) {
            if magic && bytes.len() > 6 {
                bytes[..6].copy_from_slice(MAGIC);
            }
            let _ = parse(&bytes);
        }
    }

    #[test]
    fn damage_is_named() {
        assert_eq!(parse(b""), Err(ParseError::Truncated(0)));
        assert_eq!(parse(&[b'0'; 200]), Err(ParseError::Header(0)));
        let mut archive = Vec::new();
        Writer::new(&mut archive).finish().unwrap();
        archive[94..102].copy_from_slice(b"ffffffff");
        assert_eq!(parse(&archive), Err(ParseError::Name(0)));
        archive[94] = b'+';
        assert_eq!(parse(&archive), Err(ParseError::Header(0)));
    }
}
