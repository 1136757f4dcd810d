//! The GUID partition table: UEFI 2.10 chapter 5.3.
//!
//! The header and entries are read from the first mebibyte of a disk. Changes are made on the value and
//! written as a whole, backup first: at no time is the disk without one good table.

mod entry;
mod guid;
#[cfg(test)]
mod tests;

use std::io;

use entry::{ENTRY_LEN, guid_at, u32_at, u64_at};

pub use entry::Partition;
pub use guid::Guid;

use crate::{MIB, mbr::Mbr, target::Target};

/// UEFI 2.10 table 5-5.
pub const SIGNATURE: &[u8; 8] = b"EFI PART";
const REVISION_1_0: u32 = 0x0001_0000;
const HEADER_LEN: u32 = 92;

/// Largest entry array that is read, in bytes: 2048 entries of the usual size; the usual array has 128.
const MAX_ENTRIES_LEN: u64 = 256 << 10;

/// Why a table is not usable, or not as asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GptError {
    /// The bytes end before the table does.
    #[error("the GPT is cut off: {0} lies beyond the first mebibyte or the end of the image")]
    Truncated(&'static str),
    /// A field has a value that the standard forbids or that is beyond our bounds.
    #[error("the GPT header has an invalid {field}: {value}")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// A CRC32 over the header or the entries is wrong.
    #[error("the CRC of the GPT {0} is wrong")]
    Crc(&'static str),
    /// An entry's sectors make no sense.
    #[error("GPT partition {number} has invalid bounds: sectors {first_lba} to {last_lba}")]
    Bounds {
        /// Counted from 1.
        number: usize,
        /// First sector.
        first_lba: u64,
        /// Last sector.
        last_lba: u64,
    },
    /// The table needs a larger disk.
    #[error("the partitions and the backup GPT need {needed} sectors, the disk has {disk}")]
    DiskTooSmall {
        /// In logical sectors.
        needed: u64,
        /// In logical sectors.
        disk: u64,
    },
    /// All entries are in use.
    #[error("the GPT has no free entry for another partition (all {0} are used)")]
    NoFreeEntry(u32),
    /// Too little space behind the last partition.
    #[error("no room for a partition of {wanted} sectors: {free} are free at the end of the disk")]
    NoSpace {
        /// In logical sectors.
        wanted: u64,
        /// In logical sectors.
        free: u64,
    },
}

/// A checked table. LBAs are in logical sectors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpt {
    sector_size: u32,
    disk_guid: Guid,
    backup_lba: u64,
    first_usable: u64,
    last_usable: u64,
    entries_lba: u64,
    entry_count: u32,
    entry_len: u32,
    /// The whole array as it is on disk, so that bytes we do not know are kept.
    entries: Vec<u8>,
}

impl Gpt {
    /// Whether a primary header is where a disk of this sector size has it.
    pub fn is_at(head: &[u8], sector_size: u32) -> bool {
        head.get(sector_size as usize..).is_some_and(|rest| rest.starts_with(SIGNATURE))
    }

    /// Reads and checks the primary table from the first bytes of a disk (UEFI 2.10 5.3.2 lists the checks).
    pub fn parse(head: &[u8], sector_size: u32) -> Result<Self, GptError> {
        let sector = sector_size as usize;
        let header = head.get(sector..2 * sector).ok_or(GptError::Truncated("the header"))?;
        check_header(header)?;
        let (entry_count, entry_len) = (u32_at(header, 80), u32_at(header, 84));
        let entries_len = u64::from(entry_count) * u64::from(entry_len);
        let entries_lba = u64_at(header, 72);
        let start = entries_lba.checked_mul(u64::from(sector_size));
        let range = start.and_then(|start| {
            Some(usize::try_from(start).ok()?..usize::try_from(start.checked_add(entries_len)?).ok()?)
        });
        let entries =
            range.and_then(|range| head.get(range)).ok_or(GptError::Truncated("the entry array"))?;
        if crc32fast::hash(entries) != u32_at(header, 88) {
            return Err(GptError::Crc("entry array"));
        }
        let gpt = Self {
            sector_size,
            disk_guid: guid_at(header, 56),
            backup_lba: u64_at(header, 32),
            first_usable: u64_at(header, 40),
            last_usable: u64_at(header, 48),
            entries_lba,
            entry_count,
            entry_len,
            entries: entries.to_vec(),
        };
        gpt.check_layout()?;
        Ok(gpt)
    }

    fn check_layout(&self) -> Result<(), GptError> {
        let behind_entries = self.entries_lba + self.entries_sectors();
        if self.first_usable < behind_entries {
            return Err(GptError::Field { field: "first usable LBA", value: self.first_usable });
        }
        if self.last_usable < self.first_usable || self.last_usable >= u64::MAX / u64::from(self.sector_size)
        {
            return Err(GptError::Field { field: "last usable LBA", value: self.last_usable });
        }
        for (index, p) in self.used() {
            if p.first_lba > p.last_lba || p.first_lba < self.first_usable || p.last_lba > self.last_usable {
                let (first_lba, last_lba) = (p.first_lba, p.last_lba);
                return Err(GptError::Bounds { number: index + 1, first_lba, last_lba });
            }
        }
        Ok(())
    }

    fn used(&self) -> impl Iterator<Item = (usize, Partition)> {
        let entry = |chunk: &[u8]| chunk.first_chunk::<ENTRY_LEN>().and_then(Partition::decode);
        self.entries
            .chunks(self.entry_len as usize)
            .enumerate()
            .filter_map(move |(i, chunk)| Some((i, entry(chunk)?)))
    }

    /// The partitions in the order of their entries.
    pub fn partitions(&self) -> Vec<Partition> {
        self.used().map(|(_, partition)| partition).collect()
    }

    /// Where the backup header is, or will be.
    pub fn backup_lba(&self) -> u64 {
        self.backup_lba
    }

    /// Last sector that a partition may have.
    pub fn last_usable_lba(&self) -> u64 {
        self.last_usable
    }

    fn entries_sectors(&self) -> u64 {
        (self.entries.len() as u64).div_ceil(u64::from(self.sector_size))
    }

    fn last_used_lba(&self) -> u64 {
        self.used().map(|(_, p)| p.last_lba).max().unwrap_or(self.first_usable - 1)
    }

    /// Moves the backup to the last sector of a disk of `disk_sectors`, and the end of the usable sectors with
    /// it (field report I4).
    pub fn fit(&mut self, disk_sectors: u64) -> Result<(), GptError> {
        let backup = self.entries_sectors() + 1;
        let needed = self.last_used_lba() + 1 + backup;
        if disk_sectors < needed || disk_sectors <= self.first_usable + backup {
            return Err(GptError::DiskTooSmall { needed, disk: disk_sectors });
        }
        self.backup_lba = disk_sectors - 1;
        self.last_usable = self.backup_lba - backup;
        Ok(())
    }

    /// Adds a partition of `len` bytes at the very end of the usable sectors, beginning at a whole mebibyte, so
    /// that all free space stays in one piece behind the partitions before it.
    pub fn add_at_end(&mut self, type_guid: Guid, name: &str, len: u64) -> Result<Partition, GptError> {
        let per_mib = MIB / u64::from(self.sector_size);
        let wanted = len.div_ceil(u64::from(self.sector_size)).max(1);
        let end = self.last_usable + 1;
        let first_lba = end.saturating_sub(wanted) / per_mib * per_mib;
        if first_lba <= self.last_used_lba() || first_lba < self.first_usable {
            return Err(GptError::NoSpace { wanted, free: end - 1 - self.last_used_lba() });
        }
        let unused = |chunk: &[u8]| chunk.first_chunk().is_some_and(|guid| Guid(*guid) == Guid::UNUSED);
        let slot = self.entries.chunks_mut(self.entry_len as usize).find(|chunk| unused(chunk));
        let slot = slot.ok_or(GptError::NoFreeEntry(self.entry_count))?;
        let partition = Partition {
            type_guid,
            unique_guid: Guid::derived(&[&self.disk_guid.0, name.as_bytes(), &first_lba.to_le_bytes()]),
            first_lba,
            last_lba: first_lba + wanted - 1,
            attributes: 0,
            name: name.to_owned(),
        };
        slot.fill(0);
        slot[..ENTRY_LEN].copy_from_slice(&partition.encode());
        Ok(partition)
    }

    /// Writes the backup, then the primary table, then the size in the protective MBR (UEFI 2.10 5.2.3).
    pub fn write(&self, target: &mut dyn Target) -> io::Result<()> {
        let sector = u64::from(self.sector_size);
        let backup_entries = self.backup_lba - self.entries_sectors();
        target.write_at(backup_entries * sector, &self.entries)?;
        target.write_at(self.backup_lba * sector, &self.header(self.backup_lba, 1, backup_entries))?;
        target.write_at(self.entries_lba * sector, &self.entries)?;
        target.write_at(sector, &self.header(1, self.backup_lba, self.entries_lba))?;
        let mut mbr = [0; 512];
        target.read_at(0, &mut mbr)?;
        if let Some(mut mbr) = Mbr::parse(&mbr)
            && mbr.resize_protective(self.backup_lba)
        {
            target.write_at(0, mbr.bytes())?;
        }
        Ok(())
    }

    /// One header sector.
    fn header(&self, my_lba: u64, alternate_lba: u64, entries_lba: u64) -> Vec<u8> {
        let mut sector = vec![0; self.sector_size as usize];
        let mut put = |at: usize, bytes: &[u8]| sector[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, SIGNATURE);
        put(8, &REVISION_1_0.to_le_bytes());
        put(12, &HEADER_LEN.to_le_bytes());
        put(24, &my_lba.to_le_bytes());
        put(32, &alternate_lba.to_le_bytes());
        put(40, &self.first_usable.to_le_bytes());
        put(48, &self.last_usable.to_le_bytes());
        put(56, &self.disk_guid.0);
        put(72, &entries_lba.to_le_bytes());
        put(80, &self.entry_count.to_le_bytes());
        put(84, &self.entry_len.to_le_bytes());
        put(88, &crc32fast::hash(&self.entries).to_le_bytes());
        let crc = crc32fast::hash(&sector[..HEADER_LEN as usize]);
        sector[16..20].copy_from_slice(&crc.to_le_bytes());
        sector
    }
}

/// Everything about the header that can be told without the entries.
fn check_header(header: &[u8]) -> Result<(), GptError> {
    let field = |field, value| Err(GptError::Field { field, value });
    if !header.starts_with(SIGNATURE) {
        return field("signature", u64_at(header, 0));
    }
    if u32_at(header, 8) != REVISION_1_0 {
        return field("revision", u64::from(u32_at(header, 8)));
    }
    let len = u32_at(header, 12);
    let covered = header.get(20..len as usize).filter(|_| len >= HEADER_LEN);
    let Some(covered) = covered else { return field("header size", u64::from(len)) };
    let mut hash = crc32fast::Hasher::new();
    hash.update(&header[..16]);
    hash.update(&[0; 4]);
    hash.update(covered);
    if hash.finalize() != u32_at(header, 16) {
        return Err(GptError::Crc("header"));
    }
    if u64_at(header, 24) != 1 {
        return field("own LBA", u64_at(header, 24));
    }
    let (count, entry_len) = (u64::from(u32_at(header, 80)), u64::from(u32_at(header, 84)));
    if entry_len < ENTRY_LEN as u64 || !entry_len.is_power_of_two() {
        return field("entry size", entry_len);
    }
    if count == 0 || count * entry_len > MAX_ENTRIES_LEN {
        return field("number of entries", count);
    }
    if u64_at(header, 72) < 2 {
        return field("entries LBA", u64_at(header, 72));
    }
    Ok(())
}
