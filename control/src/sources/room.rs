//! Room on the disk: images never take the last of it, since the store on the same disk has to go on growing.

use std::{
    io,
    path::{Path, PathBuf},
};

use nix::sys::statvfs::statvfs;

use super::SourceError;

/// What images leave free, for control's store: years of events and runs.
const RESERVE_BYTES: u64 = 64 << 20;
/// On a disk that is so small that this part of it is less, this part.
const RESERVE_PERCENT: u64 = 5;

/// The file system of a folder.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    dir: PathBuf,
    reserve: u64,
}

impl Room {
    /// Of the folder `dir`, which has to exist.
    pub(crate) fn of(dir: &Path) -> io::Result<Self> {
        let disk = statvfs(dir)?;
        let reserve = reserve_of(disk.blocks().saturating_mul(disk.fragment_size()));
        Ok(Self { dir: dir.to_owned(), reserve })
    }

    /// Whether `wanted` more bytes leave the reserve alone.
    pub(super) fn check(&self, wanted: u64) -> Result<(), SourceError> {
        let dir = || self.dir.display().to_string();
        let free = free_bytes(&self.dir)
            .map_err(|e| SourceError::Storing(format!("looking for free space in {}: {e}", dir())))?;
        if free.saturating_sub(self.reserve) >= wanted {
            return Ok(());
        }
        Err(SourceError::InsufficientStorage { dir: dir(), free, reserve: self.reserve })
    }

    #[cfg(test)]
    pub(super) fn with_reserve(dir: &Path, reserve: u64) -> Self {
        Self { dir: dir.to_owned(), reserve }
    }
}

/// Bytes of the file system of `dir` that a user who is not root can have.
pub(crate) fn free_bytes(dir: &Path) -> io::Result<u64> {
    let disk = statvfs(dir)?;
    Ok(disk.blocks_available().saturating_mul(disk.fragment_size()))
}

fn reserve_of(disk_bytes: u64) -> u64 {
    (disk_bytes / 100).saturating_mul(RESERVE_PERCENT).min(RESERVE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_64_mib_or_5_percent_of_a_small_disk() {
        assert_eq!(reserve_of(1 << 40), 67_108_864);
        assert_eq!(reserve_of(1_000_000_000), 50_000_000);
    }

    #[test]
    fn what_would_take_the_reserve_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Room::with_reserve(dir.path(), 0).check(0).is_ok());
        for (reserve, wanted) in [(0, 1 << 60), (1 << 60, 1)] {
            let error = Room::with_reserve(dir.path(), reserve).check(wanted).unwrap_err();
            assert_eq!(error.code(), "insufficient_storage");
            assert!(error.to_string().contains(&dir.path().display().to_string()), "{error}");
        }
    }
}
