//! Bytes of a disk or a disk image.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

/// Bytes of a logical sector.
pub const SECTOR: u64 = 512;
/// How much a failed deploy leaves zeroed at either end, at least.
pub const END_BYTES: u64 = 1 << 20;
/// How much is compared at a time.
const CHUNK: usize = 1 << 20;

/// A disk or disk image, for reading.
#[derive(Debug)]
pub struct Disk {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl Disk {
    /// Opens the file of a disk.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
        let bytes = file.metadata().with_context(|| format!("looking at {}", path.display()))?.len();
        Ok(Self { path: path.to_owned(), file, bytes })
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads `length` bytes at `offset`.
    pub fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.file
            .read_exact_at(&mut bytes, offset)
            .with_context(|| format!("reading {} at {offset}", self.path.display()))?;
        Ok(bytes)
    }

    /// Whether the first and the last [`END_BYTES`] are zero.
    pub fn ends_are_zero(&self) -> Result<bool> {
        let zero = |offset| Ok::<_, anyhow::Error>(self.read(offset, CHUNK)?.iter().all(|byte| *byte == 0));
        Ok(zero(0)? && zero(self.bytes - END_BYTES)?)
    }

    /// Whether the last sector is the backup header of a GUID partition table (UEFI 2.10, section 5.3.2).
    pub fn has_backup_gpt(&self) -> Result<bool> {
        Ok(self.read(self.bytes - SECTOR, 8)? == b"EFI PART")
    }

    /// Whether the bytes at `offset` are those of a file, all of it.
    pub fn has_file_at(&self, offset: u64, file: &Path) -> Result<bool> {
        let file = Self::open(file)?;
        ensure!(offset + file.bytes <= self.bytes, "{} ends before", self.path.display());
        let mut done = 0;
        while done < file.bytes {
            let chunk = usize::try_from(file.bytes - done).map_or(CHUNK, |left| left.min(CHUNK));
            if self.read(offset + done, chunk)? != file.read(done, chunk)? {
                return Ok(false);
            }
            done += chunk as u64;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(bytes: u64, writes: &[(u64, &[u8])]) -> (Disk, tempfile::NamedTempFile) {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(bytes).unwrap();
        for (offset, data) in writes {
            file.as_file().write_all_at(data, *offset).unwrap();
        }
        (Disk::open(file.path()).unwrap(), file)
    }

    #[test]
    fn one_byte_in_the_last_mebibyte_is_seen() {
        assert!(disk(4 << 20, &[(2 << 20, b"x")]).0.ends_are_zero().unwrap());
        assert!(!disk(4 << 20, &[(3 << 20, b"x")]).0.ends_are_zero().unwrap());
        assert!(!disk(4 << 20, &[((1 << 20) - 1, b"x")]).0.ends_are_zero().unwrap());
    }

    #[test]
    fn files_are_compared_to_their_last_byte() {
        let (image, file) = disk(2_500_001, &[(5, b"abc"), (2_500_000, b"z")]);
        assert!(image.has_file_at(0, file.path()).unwrap());
        let (same, _a) = disk(8 << 20, &[(512 + 5, b"abc"), (512 + 2_500_000, b"z")]);
        assert!(same.has_file_at(512, file.path()).unwrap());
        let (other, _b) = disk(8 << 20, &[(512 + 5, b"abc")]);
        assert!(!other.has_file_at(512, file.path()).unwrap());
        assert!(other.has_file_at(6 << 20, file.path()).is_err());
    }
}
