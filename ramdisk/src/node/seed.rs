//! Our configuration in the seed partition of this disk: the FAT file system with the label `CIDATA`.
//!
//! It is read without mounting it, straight from the block device, so no file system driver is needed.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use fatfs::{FileSystem, FsOptions};

use crate::machine::Roots;

/// Label of a NoCloud seed, in any case (field report imaging I15).
const LABEL: &str = "cidata";
/// Longest file read from a seed, in bytes.
const MAX_FILE: u64 = 64 * 1024;
/// Block devices looked at.
const MAX_DEVICES: usize = 1024;
const BOOT_SECTOR: usize = 512;

/// Why there is no file from the seed.
#[derive(Debug, thiserror::Error)]
pub enum SeedError {
    /// Nothing on any disk carries the label.
    #[error(
        "no partition with the label CIDATA among {0} block devices; was this disk deployed by Ironwright?"
    )]
    NoSeed(usize),
    /// It is damaged, or lacks the file.
    #[error("reading {file} of the seed on {device}")]
    Read {
        /// The file.
        file: String,
        /// The partition.
        device: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// No seed of ours has such a file.
    #[error("{file} of the seed on {device} is longer than {MAX_FILE} bytes")]
    TooLong {
        /// The file.
        file: String,
        /// The partition.
        device: PathBuf,
    },
}

/// Finds the seed and reads one of its files. Blocks.
pub fn read(roots: &Roots, file: &str) -> Result<Vec<u8>, SeedError> {
    let devices = block_devices(roots);
    let seed = devices.iter().find(|device| has_label(device));
    let device = seed.ok_or(SeedError::NoSeed(devices.len()))?.clone();
    let named = |source| SeedError::Read { file: file.to_owned(), device: device.clone(), source };
    let bytes = read_file(&device, file).map_err(named)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(SeedError::TooLong { file: file.to_owned(), device });
    }
    Ok(bytes)
}

fn block_devices(roots: &Roots) -> Vec<PathBuf> {
    let entries = fs::read_dir(roots.sys.join("class/block")).into_iter().flatten().flatten();
    let mut devices: Vec<PathBuf> =
        entries.take(MAX_DEVICES).map(|entry| roots.dev.join(entry.file_name())).collect();
    devices.sort();
    devices
}

fn has_label(device: &Path) -> bool {
    label(device).is_ok_and(|label| label.trim().eq_ignore_ascii_case(LABEL))
}

/// The label of a FAT file system: the entry in its root directory counts, else that of the boot sector.
fn label(device: &Path) -> io::Result<String> {
    let volume = open(device)?;
    Ok(volume.read_volume_label_from_root_dir()?.unwrap_or_else(|| volume.volume_label()))
}

fn read_file(device: &Path, name: &str) -> io::Result<Vec<u8>> {
    let volume = open(device)?;
    let mut bytes = Vec::new();
    volume.root_dir().open_file(name)?.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn open(device: &Path) -> io::Result<FileSystem<ReadOnly>> {
    let mut file = File::open(device)?;
    let mut sector = [0; BOOT_SECTOR];
    file.read_exact(&mut sector)?;
    // Most partitions are no FAT; the signature spares them the parser.
    if !is_fat(&sector) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a FAT file system"));
    }
    file.rewind()?;
    FileSystem::new(ReadOnly(file), FsOptions::new())
}

/// File system type of FAT12/16 (offset 54) and FAT32 (offset 82), and the boot signature.
fn is_fat(sector: &[u8; BOOT_SECTOR]) -> bool {
    sector[510..] == [0x55, 0xaa] && (sector[54..].starts_with(b"FAT") || sector[82..].starts_with(b"FAT"))
}

/// A device that the FAT code, which wants to be able to write, cannot write.
struct ReadOnly(File);

impl Read for ReadOnly {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Seek for ReadOnly {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0.seek(to)
    }
}

impl Write for ReadOnly {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "the seed is only read"))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use fatfs::FormatVolumeOptions;

    use super::*;

    /// A FAT volume with one file, labelled both in the boot sector and the root directory.
    fn volume(path: &Path, label: &[u8; 11], name: &str, content: &[u8]) {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap();
        file.set_len(1 << 20).unwrap();
        fatfs::format_volume(&file, FormatVolumeOptions::new().volume_label(*label)).unwrap();
        let volume = FileSystem::new(&file, FsOptions::new()).unwrap();
        volume.root_dir().create_file(name).unwrap().write_all(content).unwrap();
    }

    fn machine(devices: &[&str]) -> (tempfile::TempDir, Roots) {
        let root = tempfile::tempdir().unwrap();
        let roots = Roots::under(root.path());
        fs::create_dir_all(&roots.dev).unwrap();
        for device in devices {
            fs::create_dir_all(roots.sys.join("class/block").join(device)).unwrap();
            fs::write(roots.dev.join(device), vec![0; 4096]).unwrap();
        }
        (root, roots)
    }

    #[test]
    fn i15_the_seed_is_found_by_its_label_in_any_case() {
        for label in [b"CIDATA     ", b"CiData     "] {
            let (_root, roots) = machine(&["vda", "vda1", "vda2", "vda3"]);
            volume(&roots.dev.join("vda1"), b"ESP        ", "agent.toml", b"wrong");
            volume(&roots.dev.join("vda3"), label, "agent.toml", b"right");
            assert_eq!(read(&roots, "agent.toml").unwrap(), b"right");
        }
    }

    #[test]
    fn a_missing_seed_or_file_is_named() {
        let (_root, roots) = machine(&["vda", "vda1"]);
        assert!(matches!(read(&roots, "agent.toml"), Err(SeedError::NoSeed(2))));
        volume(&roots.dev.join("vda1"), b"CIDATA     ", "user-data", b"");
        assert!(matches!(read(&roots, "agent.toml"), Err(SeedError::Read { .. })));
    }

    #[test]
    fn a_file_too_long_is_refused() {
        let (_root, roots) = machine(&["vda1"]);
        volume(&roots.dev.join("vda1"), b"CIDATA     ", "agent.toml", &vec![b'#'; 64 * 1024 + 1]);
        assert!(matches!(read(&roots, "agent.toml"), Err(SeedError::TooLong { .. })));
    }

    #[test]
    fn damaged_volumes_are_passed_over() {
        let (_root, roots) = machine(&["vda1"]);
        let path = roots.dev.join("vda1");
        volume(&path, b"CIDATA     ", "agent.toml", b"x");
        let good = fs::read(&path).unwrap();
        for at in 11..90 {
            for value in [0, 0xff] {
                let mut bytes = good.clone();
                bytes[at] = value;
                fs::write(&path, bytes).unwrap();
                let _ = read(&roots, "agent.toml");
            }
        }
    }
}
