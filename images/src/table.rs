//! Whichever partition table an image has, and what a deploy does to it.

use std::io;

use crate::{
    gpt::{Gpt, GptError, Guid},
    mbr::{Mbr, MbrError},
    target::{END_LEN, Target},
};

/// Sector sizes that disks have, in bytes.
const SECTOR_SIZES: [u32; 2] = [512, 4096];

/// A partition table, taken from the first bytes of a disk or image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Table {
    /// GUID partition table.
    Gpt(Gpt),
    /// DOS partition table.
    Mbr(Mbr),
    /// None: a file system over the whole disk, or nothing.
    None,
}

/// Why a table does not fit to the disk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// Field report I5.
    #[error("the image is made for sectors of {image} bytes, the disk has sectors of {disk} bytes")]
    SectorSize {
        /// In bytes.
        image: u32,
        /// In bytes.
        disk: u32,
    },
    /// A protective MBR that protects nothing.
    #[error("the image has a protective MBR but no GPT")]
    GptMissing,
    /// There is no table that could take another partition.
    #[error("the image has no partition table, so there is no place for a seed partition")]
    NoTable,
    /// The GPT is damaged, or does not fit.
    #[error(transparent)]
    Gpt(#[from] GptError),
    /// The DOS table does not fit.
    #[error(transparent)]
    Mbr(#[from] MbrError),
}

/// A range of a disk in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
}

impl Table {
    /// Recognises the table in the first bytes (one mebibyte is enough) of what is for a disk with sectors of
    /// `sector_size` bytes.
    pub fn parse(head: &[u8], sector_size: u32) -> Result<Self, TableError> {
        if Gpt::is_at(head, sector_size) {
            return Ok(Self::Gpt(Gpt::parse(head, sector_size)?));
        }
        if let Some(image) = SECTOR_SIZES.into_iter().find(|&size| Gpt::is_at(head, size)) {
            return Err(TableError::SectorSize { image, disk: sector_size });
        }
        match Mbr::parse(head) {
            None => Ok(Self::None),
            Some(mbr) if mbr.is_protective() => Err(TableError::GptMissing),
            // A DOS table does not say its unit, but all images that still have one count in 512 bytes.
            Some(_) if sector_size != 512 => Err(TableError::SectorSize { image: 512, disk: sector_size }),
            Some(mbr) => Ok(Self::Mbr(mbr)),
        }
    }

    /// Reads the table of a disk.
    pub fn read(target: &mut dyn Target) -> io::Result<Result<Self, TableError>> {
        let mut head = vec![0; usize::try_from(END_LEN.min(target.size())).unwrap_or(0)];
        target.read_at(0, &mut head)?;
        Ok(Self::parse(&head, target.sector_size()))
    }

    /// Adapts the table to a disk of this geometry, and where a seed of `seed_len` bytes is wanted adds its
    /// partition at the end of the disk; returns where that is. Changes nothing but the value.
    pub fn fit(
        &mut self,
        disk_size: u64,
        sector_size: u32,
        seed_len: Option<u64>,
    ) -> Result<Option<Extent>, TableError> {
        let sector = u64::from(sector_size);
        let sectors = disk_size / sector;
        let extent = |first: u64, len| Extent { offset: first * sector, len };
        match self {
            Self::Gpt(gpt) => {
                gpt.fit(sectors)?;
                let Some(len) = seed_len else { return Ok(None) };
                let partition = gpt.add_at_end(Guid::BASIC_DATA, "cidata", len)?;
                Ok(Some(extent(partition.first_lba, len)))
            }
            Self::Mbr(mbr) => {
                mbr.fit(sectors)?;
                let Some(len) = seed_len else { return Ok(None) };
                let entry = mbr.add_fat_at_end(sectors, len)?;
                Ok(Some(extent(u64::from(entry.first), len)))
            }
            Self::None if seed_len.is_some() => Err(TableError::NoTable),
            Self::None => Ok(None),
        }
    }

    /// Writes the table.
    pub fn write(&self, target: &mut dyn Target) -> io::Result<()> {
        match self {
            Self::Gpt(gpt) => gpt.write(target),
            Self::Mbr(mbr) => target.write_at(0, mbr.bytes()),
            Self::None => Ok(()),
        }
    }

    /// The ranges of all partitions.
    pub fn extents(&self, sector_size: u32) -> Vec<Extent> {
        let extent = |first: u64, sectors: u64| Extent {
            offset: first.saturating_mul(u64::from(sector_size)),
            len: sectors.saturating_mul(u64::from(sector_size)),
        };
        match self {
            Self::Gpt(gpt) => {
                let partitions = gpt.partitions();
                partitions.iter().map(|p| extent(p.first_lba, p.last_lba - p.first_lba + 1)).collect()
            }
            Self::Mbr(mbr) => {
                let used = mbr.entries().into_iter().filter(|e| e.kind != 0);
                used.map(|e| extent(u64::from(e.first), u64::from(e.sectors))).collect()
            }
            Self::None => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i5_a_table_of_another_sector_size_is_named() {
        let mut head = vec![0; 8192];
        head[512..520].copy_from_slice(b"EFI PART");
        assert_eq!(Table::parse(&head, 4096), Err(TableError::SectorSize { image: 512, disk: 4096 }));
        let mut head = vec![0; 8192];
        head[4096..4104].copy_from_slice(b"EFI PART");
        assert_eq!(Table::parse(&head, 512), Err(TableError::SectorSize { image: 4096, disk: 512 }));
        let mut dos = vec![0; 8192];
        dos[446 + 4] = 0x83;
        dos[446 + 8..446 + 16].copy_from_slice(&[0, 8, 0, 0, 0, 8, 0, 0]);
        dos[510..512].copy_from_slice(&[0x55, 0xaa]);
        assert_eq!(Table::parse(&dos, 4096), Err(TableError::SectorSize { image: 512, disk: 4096 }));
        assert!(matches!(Table::parse(&dos, 512), Ok(Table::Mbr(_))));
    }

    #[test]
    fn without_a_table_there_is_no_place_for_a_seed() {
        let mut table = Table::parse(&[0; 4096], 512).unwrap();
        assert_eq!(table.fit(1 << 30, 512, None), Ok(None));
        assert_eq!(table.fit(1 << 30, 512, Some(1 << 20)), Err(TableError::NoTable));
        assert!(matches!(Table::parse(b"", 512), Ok(Table::None)));
    }
}
