//! A block device, or a plain file in its place.

use std::{
    fs::{File, OpenOptions},
    io::{self, Seek, SeekFrom},
    os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    fcntl::{FallocateFlags, OFlag, fallocate},
};

use super::{Target, ioctl};

/// Sector size given to plain files.
const FILE_SECTOR: u32 = 512;

/// Why a disk could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Mounted, or claimed by md, LVM or another writer.
    #[error("the disk {0} is in use (mounted, or part of a volume)")]
    Busy(PathBuf),
    /// A directory, a socket, a terminal, …
    #[error("{0} is neither a block device nor a file")]
    NotADisk(PathBuf),
    /// A size or sector size that no disk has.
    #[error("the disk {path} has an impossible geometry: {size} bytes in sectors of {sector_size}")]
    Geometry {
        /// What was opened.
        path: PathBuf,
        /// In bytes.
        size: u64,
        /// In bytes.
        sector_size: u32,
    },
    /// Anything else.
    #[error("opening the disk {path}")]
    Io {
        /// What was opened.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

/// An open disk. A block device is claimed exclusively: nobody can mount it meanwhile.
#[derive(Debug)]
pub struct DiskFile {
    file: File,
    is_device: bool,
    size: u64,
    sector_size: u32,
}

impl DiskFile {
    /// Opens for reading and writing.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let io_error = |source| OpenError::Io { path: path.to_owned(), source };
        let kind = path.metadata().map_err(io_error)?.file_type();
        let is_device = kind.is_block_device();
        if !is_device && !kind.is_file() {
            return Err(OpenError::NotADisk(path.to_owned()));
        }
        // Linux: O_EXCL without O_CREAT claims a block device.
        let flags = if is_device { OFlag::O_EXCL | OFlag::O_CLOEXEC } else { OFlag::O_CLOEXEC };
        let opened = OpenOptions::new().read(true).write(true).custom_flags(flags.bits()).open(path);
        let mut file = opened.map_err(|source| match source.raw_os_error() {
            Some(code) if code == Errno::EBUSY as i32 => OpenError::Busy(path.to_owned()),
            _ => io_error(source),
        })?;
        let size = file.seek(SeekFrom::End(0)).map_err(io_error)?;
        let sector_size = if is_device { ioctl::sector_size(&file).map_err(io_error)? } else { FILE_SECTOR };
        if size == 0 || !sector_size.is_power_of_two() || !(512..=4096).contains(&sector_size) {
            return Err(OpenError::Geometry { path: path.to_owned(), size, sector_size });
        }
        Ok(Self { file, is_device, size, sector_size })
    }

    /// Makes the kernel read the partition table anew. Fails on devices that cannot have partitions; nothing to
    /// do for a plain file.
    pub fn reread_partitions(&self) -> io::Result<()> {
        if self.is_device { ioctl::reread_partitions(&self.file) } else { Ok(()) }
    }
}

impl Target for DiskFile {
    fn size(&self) -> u64 {
        self.size
    }

    fn sector_size(&self) -> u32 {
        self.sector_size
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }

    fn write_at(&mut self, offset: u64, buf: &[u8]) -> io::Result<()> {
        if offset.saturating_add(buf.len() as u64) > self.size {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "a write beyond the end of the disk"));
        }
        self.file.write_all_at(buf, offset)
    }

    /// Punching a hole in a block device is WRITE ZEROES without the kernel's fallback to writing pages: it
    /// either leaves zeroes for certain or fails with EOPNOTSUPP. BLKDISCARD would promise nothing.
    fn zero_offload(&mut self, offset: u64, len: u64) -> io::Result<bool> {
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        let off_t = |n: u64| i64::try_from(n).map_err(|_| io::Error::other("an offset above 2^63"));
        match fallocate(&self.file, flags, off_t(offset)?, off_t(len)?) {
            Ok(()) => Ok(true),
            // EREMOTEIO is how some SCSI disks answer a WRITE SAME that they once announced.
            Err(Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EINVAL | Errno::EREMOTEIO) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_a_disk_of_its_length() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk");
        File::create(&path).unwrap().set_len(1 << 20).unwrap();
        let mut disk = DiskFile::open(&path).unwrap();
        assert_eq!((disk.size(), disk.sector_size()), (1 << 20, 512));
        disk.write_at(4096, b"bytes").unwrap();
        disk.sync().unwrap();
        let mut back = [0; 5];
        disk.read_at(4096, &mut back).unwrap();
        assert_eq!(&back, b"bytes");
        assert!(disk.write_at((1 << 20) - 2, b"bytes").is_err(), "a file must not grow");
        disk.reread_partitions().unwrap();
    }

    #[test]
    fn what_is_no_disk_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(DiskFile::open(dir.path()), Err(OpenError::NotADisk(_))));
        assert!(matches!(DiskFile::open(&dir.path().join("none")), Err(OpenError::Io { .. })));
        let empty = dir.path().join("empty");
        File::create(&empty).unwrap();
        assert!(matches!(DiskFile::open(&empty), Err(OpenError::Geometry { size: 0, .. })));
    }
}
