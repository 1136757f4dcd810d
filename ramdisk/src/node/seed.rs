//! Our configuration in the seed partition of this disk: the FAT file system with the label `CIDATA`.
//!
//! It is read without mounting it, straight from the block device, so no file system driver is needed.
//!
//! Disks keep the seeds of earlier deployments, also of other machines. One that names an interface of this
//! machine comes before those that do not; where those of the same rank differ, none is taken.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use fatfs::{FileSystem, FsOptions};
use ironwright_agent::{contain, node::Config};

use crate::{
    machine::Roots,
    net::nics::{self, Nic},
};

/// Label of a NoCloud seed, in any case (field report imaging I15).
const LABEL: &str = "cidata";
/// Longest file read from a seed, in bytes.
const MAX_FILE: u64 = 64 * 1024;
/// Block devices looked at.
const MAX_DEVICES: usize = 1024;
const BOOT_SECTOR: usize = 512;
/// Bytes read from one volume: the largest root directory (65 536 entries of 32 bytes), a file, and of the FAT
/// what leads there. It also ends a chain of clusters that leads back into itself.
const MAX_READ: u64 = 4 << 20;

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
    /// Which of them is this system's cannot be known.
    #[error(
        "the seeds on {devices} differ, and {rank}; erase the one that is out of use, or take its disk out"
    )]
    Ambiguous {
        /// The partitions, by name.
        devices: String,
        /// What they have in common.
        rank: &'static str,
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

/// Finds the seed of this machine and reads its `agent.toml`, called `file`. Blocks.
pub fn read(roots: &Roots, file: &str) -> Result<Vec<u8>, SeedError> {
    let devices = block_devices(roots);
    let nics = nics::list(&roots.sys.join("class/net"));
    let (mut ours, mut others, mut unread) = (Vec::new(), Vec::new(), None);
    for device in devices.iter().filter(|device| has_label(device)) {
        match read_seed(device, file) {
            Ok(seed) if names_one_of(&nics, &seed.bytes) => ours.push(seed),
            Ok(seed) => others.push(seed),
            Err(error) => unread = unread.or(Some(error)),
        }
    }
    if !ours.is_empty() {
        return only(ours, "all name this machine");
    }
    match unread {
        // It may be the one that names this machine.
        Some(error) => Err(error),
        None if others.is_empty() => Err(SeedError::NoSeed(devices.len())),
        None => only(others, "none names this machine"),
    }
}

/// What a seed says, and where it is.
struct Seed {
    device: PathBuf,
    bytes: Vec<u8>,
}

/// What all of these say; there is one at least.
fn only(mut seeds: Vec<Seed>, rank: &'static str) -> Result<Vec<u8>, SeedError> {
    if seeds.windows(2).all(|pair| pair[0].bytes == pair[1].bytes) {
        return Ok(seeds.swap_remove(0).bytes);
    }
    let devices: Vec<String> = seeds.iter().map(|seed| seed.device.display().to_string()).collect();
    Err(SeedError::Ambiguous { devices: devices.join(", "), rank })
}

fn names_one_of(nics: &[Nic], config: &[u8]) -> bool {
    let mac = str::from_utf8(config).ok().and_then(|text| Config::parse(text).ok()?.mac());
    mac.is_some_and(|mac| nics.iter().any(|nic| nic.mac == mac))
}

fn read_seed(device: &Path, file: &str) -> Result<Seed, SeedError> {
    let (file, device) = (file.to_owned(), device.to_owned());
    match read_file(&device, &file) {
        Ok(bytes) if bytes.len() as u64 > MAX_FILE => Err(SeedError::TooLong { file, device }),
        Ok(bytes) => Ok(Seed { device, bytes }),
        Err(source) => Err(SeedError::Read { file, device, source }),
    }
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
    guarded(|| {
        let volume = open(device)?;
        Ok(volume.read_volume_label_from_root_dir()?.unwrap_or_else(|| volume.volume_label()))
    })
}

fn read_file(device: &Path, name: &str) -> io::Result<Vec<u8>> {
    guarded(|| {
        let volume = open(device)?;
        let mut bytes = Vec::new();
        volume.root_dir().open_file(name)?.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    })
}

/// The FAT code computes with whatever numbers a volume has, and what overflows is a panic. Here it only means
/// damaged: another disk of the machine must not keep it from finding its seed.
fn guarded<T>(read: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "the FAT file system is damaged");
    contain::call(read).unwrap_or_else(|| Err(damaged()))
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
    FileSystem::new(ReadOnly { file, left: MAX_READ }, FsOptions::new())
}

/// File system type of FAT12/16 (offset 54) and FAT32 (offset 82), and the boot signature.
fn is_fat(sector: &[u8; BOOT_SECTOR]) -> bool {
    sector[510..] == [0x55, 0xaa] && (sector[54..].starts_with(b"FAT") || sector[82..].starts_with(b"FAT"))
}

/// A device that the FAT code, which wants to be able to write, cannot write, and not read without end.
struct ReadOnly {
    file: File,
    left: u64,
}

impl Read for ReadOnly {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.left = self.left.checked_sub(count as u64).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "the FAT file system has no end of what is looked for")
        })?;
        Ok(count)
    }
}

impl Seek for ReadOnly {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
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

    /// A configuration whose token tells deployments apart.
    fn config(mac: &str, token: &str) -> String {
        let pin = "00".repeat(32);
        format!(
            "control_url = \"https://10.0.0.1:8443\"\nca_pin = \"sha256:{pin}\"\nmachine_id = \"web-1\"\n\
             mac = \"{mac}\"\njoin_token = \"{token}\"\n"
        )
    }

    /// A machine with two disks that have such seeds, and one interface.
    fn two_seeds(first: &str, second: &str) -> (tempfile::TempDir, Roots) {
        let (root, roots) = machine(&["vda1", "vdb1"]);
        for (device, content) in [("vda1", first), ("vdb1", second)] {
            volume(&roots.dev.join(device), b"CIDATA     ", "agent.toml", content.as_bytes());
        }
        let nic = roots.sys.join("class/net/eth0");
        fs::create_dir_all(nic.join("device")).unwrap();
        for (file, text) in [("type", "1"), ("ifindex", "2"), ("address", OURS)] {
            fs::write(nic.join(file), format!("{text}\n")).unwrap();
        }
        (root, roots)
    }

    const OURS: &str = "52:54:00:12:34:56";
    const ANOTHER: &str = "52:54:00:12:34:99";

    #[test]
    fn the_seed_that_names_this_machine_wins_on_any_disk() {
        let (other, ours) = (config(ANOTHER, "other"), config(OURS, "ours"));
        for (first, second) in [(&other, &ours), (&ours, &other)] {
            let (_root, roots) = two_seeds(first, second);
            assert_eq!(read(&roots, "agent.toml").unwrap(), ours.as_bytes());
        }
        let (_root, roots) = two_seeds("of another product", &ours);
        assert_eq!(read(&roots, "agent.toml").unwrap(), ours.as_bytes());
        // An interface may have been replaced: what is alone is taken all the same.
        let (_root, roots) = two_seeds(&other, &other);
        assert_eq!(read(&roots, "agent.toml").unwrap(), other.as_bytes());
    }

    #[test]
    fn seeds_of_the_same_rank_that_differ_are_refused_by_name() {
        for (mac, what) in [(OURS, "all name this machine"), (ANOTHER, "none names this machine")] {
            let (_root, roots) = two_seeds(&config(mac, "old"), &config(mac, "new"));
            let error = read(&roots, "agent.toml").unwrap_err();
            let SeedError::Ambiguous { devices, rank } = &error else { panic!("{error}") };
            let [first, second] = ["vda1", "vdb1"].map(|name| roots.dev.join(name));
            assert_eq!(*devices, format!("{}, {}", first.display(), second.display()));
            assert_eq!(*rank, what);
            assert!(!error.to_string().contains("token"), "no secret: {error}");
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

    /// Puts bytes over those at an offset.
    fn patch(path: &Path, changes: &[(u64, &[u8])]) {
        use std::os::unix::fs::FileExt;
        let file = File::options().write(true).open(path).unwrap();
        for (at, bytes) in changes {
            file.write_all_at(bytes, *at).unwrap();
        }
    }

    #[test]
    fn numbers_that_overflow_are_a_damaged_volume() {
        let (_root, roots) = machine(&["vda1", "vdb1"]);
        let (broken, good) = (roots.dev.join("vda1"), roots.dev.join("vdb1"));
        volume(&good, b"CIDATA     ", "agent.toml", b"right");

        // Two FATs of 2^32 - 1 sectors: a FAT32 by offset 22, without root entries and the small total.
        volume(&broken, b"CIDATA     ", "agent.toml", b"wrong");
        let endless: &[(u64, &[u8])] = &[(17, &[0; 4]), (22, &[0; 2]), (32, &[0, 0, 2, 0]), (36, &[0xff; 4])];
        patch(&broken, endless);
        patch(&broken, &[(42, &[0; 2])]);
        assert_eq!(read(&roots, "agent.toml").unwrap(), b"right");

        // A file whose second cluster is number 1, which no cluster has: FAT12 entry 2 is in bytes 3 and 4.
        volume(&broken, b"CIDATA     ", "agent.toml", &[b'#'; 8192]);
        patch(&broken, &[(BOOT_SECTOR as u64 + 3, &[1, 0])]);
        assert!(matches!(read(&roots, "agent.toml"), Err(SeedError::Read { .. })));
    }

    #[test]
    fn a_root_directory_that_leads_back_into_itself_ends() {
        let (_root, roots) = machine(&["vda1"]);
        let path = roots.dev.join("vda1");
        let file = File::options().read(true).write(true).open(&path).unwrap();
        // The least number of clusters of a FAT32 is 65 525; most of them are holes in the file.
        file.set_len(40 << 20).unwrap();
        let options = FormatVolumeOptions::new().fat_type(fatfs::FatType::Fat32).bytes_per_cluster(512);
        fatfs::format_volume(&file, options.bytes_per_sector(512)).unwrap();
        let field = |at: u64| {
            let mut bytes = [0; 4];
            std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, at).unwrap();
            u64::from(u32::from_le_bytes(bytes))
        };
        // Reserved sectors are at offset 14, the sectors of one FAT at 36, the root's first cluster at 44.
        let (reserved, fat, root) = (field(14) & 0xffff, field(36), field(44));
        let data = (reserved + 2 * fat) * 512;
        patch(
            &path,
            &[
                (reserved * 512 + 4 * root, &u32::try_from(root).unwrap().to_le_bytes()),
                (data + (root - 2) * 512, &[0xe5; 512]),
            ],
        );
        assert!(matches!(read(&roots, "agent.toml"), Err(SeedError::NoSeed(1))));
    }
}
