//! The DOS partition table in the first sector of a disk, as far as images and seeds need it.

use crate::MIB;

const ENTRIES_AT: usize = 446;
const ENTRY_LEN: usize = 16;
const SECTOR: u64 = 512;

/// Type of the entry that guards a GPT (UEFI 2.10 table 5-4).
const PROTECTIVE: u8 = 0xee;
/// FAT12 or FAT16, addressed by LBA.
const FAT16_LBA: u8 = 0x0e;
/// Cylinder, head and sector of an address beyond their reach: 1023/254/63.
const CHS_BEYOND: [u8; 3] = [0xfe, 0xff, 0xff];

/// Why no partition could be added.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MbrError {
    /// Four primary partitions are there.
    #[error("the MBR has no free slot for another partition")]
    NoFreeSlot,
    /// Too little space behind the last partition.
    #[error("no room for a partition of {wanted} sectors: {free} are free at the end of the disk")]
    NoSpace {
        /// In sectors of 512 bytes.
        wanted: u64,
        /// In sectors of 512 bytes.
        free: u64,
    },
    /// A partition ends behind the disk.
    #[error("the MBR's partitions need {needed} sectors, the disk has {disk}")]
    DiskTooSmall {
        /// In sectors of 512 bytes.
        needed: u64,
        /// In sectors of 512 bytes.
        disk: u64,
    },
}

/// A primary partition, in sectors of 512 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Type byte; 0 is unused.
    pub kind: u8,
    /// First sector.
    pub first: u32,
    /// Number of sectors.
    pub sectors: u32,
}

impl Entry {
    fn end(self) -> u64 {
        u64::from(self.first) + u64::from(self.sectors)
    }
}

/// A first sector that holds a partition table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mbr(Box<[u8; 512]>);

impl Mbr {
    /// Reads the first sector of a disk. `None` where it has no partition table: no signature, or entries whose
    /// status byte shows that the sector is a file system's boot sector instead, or none in use.
    pub fn parse(head: &[u8]) -> Option<Self> {
        let sector = head.first_chunk::<512>()?;
        let mbr = Self(Box::new(*sector));
        let status_ok = (0..4).all(|i| matches!(sector[ENTRIES_AT + i * ENTRY_LEN], 0 | 0x80));
        let in_use = mbr.entries().iter().any(|e| e.kind != 0 && e.sectors != 0);
        (sector[510..] == [0x55, 0xaa] && status_ok && in_use).then_some(mbr)
    }

    /// The four primary entries.
    pub fn entries(&self) -> [Entry; 4] {
        std::array::from_fn(|i| {
            let at = ENTRIES_AT + i * ENTRY_LEN;
            let u32_at = |at: usize| self.0[at..].first_chunk().map_or(0, |b| u32::from_le_bytes(*b));
            Entry { kind: self.0[at + 4], first: u32_at(at + 8), sectors: u32_at(at + 12) }
        })
    }

    /// The sector.
    pub fn bytes(&self) -> &[u8] {
        &self.0[..]
    }

    /// Whether it only guards a GPT.
    pub fn is_protective(&self) -> bool {
        self.entries().iter().any(|e| e.kind == PROTECTIVE)
    }

    /// Sets the size of the guarding entry to the whole disk; false where the sector guards no GPT.
    pub fn resize_protective(&mut self, last_lba: u64) -> bool {
        let Some(slot) = self.entries().iter().position(|e| e.kind == PROTECTIVE && e.first == 1) else {
            return false;
        };
        let at = ENTRIES_AT + slot * ENTRY_LEN;
        self.0[at + 5..at + 8].copy_from_slice(&CHS_BEYOND);
        self.0[at + 12..at + 16].copy_from_slice(&u32::try_from(last_lba).unwrap_or(u32::MAX).to_le_bytes());
        true
    }

    /// Checks that all partitions lie on a disk of this many sectors.
    pub fn fit(&self, disk_sectors: u64) -> Result<(), MbrError> {
        let needed = self.last_used_end();
        if needed > disk_sectors {
            Err(MbrError::DiskTooSmall { needed, disk: disk_sectors })
        } else {
            Ok(())
        }
    }

    fn last_used_end(&self) -> u64 {
        self.entries().iter().filter(|e| e.kind != 0).map(|e| e.end()).max().unwrap_or(0)
    }

    /// Adds a FAT partition of `len` bytes at the end of the disk, or of the 2 TiB that 32 bits reach.
    pub fn add_fat_at_end(&mut self, disk_sectors: u64, len: u64) -> Result<Entry, MbrError> {
        let slot = self.entries().iter().position(|e| e.kind == 0).ok_or(MbrError::NoFreeSlot)?;
        let wanted = len.div_ceil(SECTOR).max(1);
        let end = disk_sectors.min(u64::from(u32::MAX));
        let first = end.saturating_sub(wanted) / (MIB / SECTOR) * (MIB / SECTOR);
        let no_space = || MbrError::NoSpace { wanted, free: end.saturating_sub(self.last_used_end()) };
        if first < self.last_used_end().max(1) {
            return Err(no_space());
        }
        let narrow = |n: u64| u32::try_from(n).map_err(|_| no_space());
        let entry = Entry { kind: FAT16_LBA, first: narrow(first)?, sectors: narrow(wanted)? };
        let at = ENTRIES_AT + slot * ENTRY_LEN;
        self.0[at] = 0;
        self.0[at + 1..at + 4].copy_from_slice(&CHS_BEYOND);
        self.0[at + 4] = entry.kind;
        self.0[at + 5..at + 8].copy_from_slice(&CHS_BEYOND);
        self.0[at + 8..at + 12].copy_from_slice(&entry.first.to_le_bytes());
        self.0[at + 12..at + 16].copy_from_slice(&entry.sectors.to_le_bytes());
        Ok(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sector(entries: &[(u8, u32, u32)]) -> [u8; 512] {
        let mut sector = [0; 512];
        for (i, (kind, first, sectors)) in entries.iter().enumerate() {
            let at = ENTRIES_AT + i * ENTRY_LEN;
            sector[at + 4] = *kind;
            sector[at + 8..at + 12].copy_from_slice(&first.to_le_bytes());
            sector[at + 12..at + 16].copy_from_slice(&sectors.to_le_bytes());
        }
        sector[510..].copy_from_slice(&[0x55, 0xaa]);
        sector
    }

    #[test]
    fn a_boot_sector_without_a_table_is_none() {
        assert_eq!(Mbr::parse(&[0; 512]), None);
        assert_eq!(Mbr::parse(&sector(&[])), None, "signature but no entry");
        let mut fat = sector(&[(0x20, 1, 1)]);
        fat[ENTRIES_AT] = b'N';
        assert_eq!(Mbr::parse(&fat), None, "code where the status would be");
        assert_eq!(Mbr::parse(&sector(&[(0x83, 2048, 100)])[..511]), None, "cut off");
    }

    #[test]
    fn the_new_partition_is_at_the_end_and_leaves_the_others() {
        let mut mbr = Mbr::parse(&sector(&[(0x83, 2048, 4096)])).unwrap();
        let added = mbr.add_fat_at_end(20_000, MIB).unwrap();
        // The last whole mebibyte that leaves 2048 sectors: 20000 - 2048 = 17952, down to 8 * 2048.
        assert_eq!(added, Entry { kind: 0x0e, first: 16_384, sectors: 2048 });
        assert_eq!(mbr.entries()[0], Entry { kind: 0x83, first: 2048, sectors: 4096 });
        assert_eq!(mbr.entries()[1], added);
    }

    #[test]
    fn no_slot_or_no_space_is_said() {
        let used = (0x83, 2048, 4096);
        let mut full = Mbr::parse(&sector(&[used; 4])).unwrap();
        assert_eq!(full.add_fat_at_end(100_000, MIB), Err(MbrError::NoFreeSlot));
        let mut tight = Mbr::parse(&sector(&[used])).unwrap();
        assert_eq!(tight.add_fat_at_end(6200, MIB), Err(MbrError::NoSpace { wanted: 2048, free: 56 }));
        assert_eq!(tight.fit(6000), Err(MbrError::DiskTooSmall { needed: 6144, disk: 6000 }));
    }

    #[test]
    fn beyond_2_tib_the_partition_stays_within_32_bits() {
        let mut mbr = Mbr::parse(&sector(&[(0x83, 2048, 4096)])).unwrap();
        let added = mbr.add_fat_at_end(1 << 33, MIB).unwrap();
        assert!(u32::try_from(added.end()).is_ok());
    }
}
