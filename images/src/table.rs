//! Whichever partition table an image has, and what a deploy does to it.

use std::io;

use crate::{
    gpt::{Gpt, GptError, Guid},
    mbr::{Mbr, MbrError},
    target::{END_LEN, Target},
};

/// Sector sizes that disks have, in bytes.
const SECTOR_SIZES: [u32; 2] = [512, 4096];

/// How many first bytes of a disk a table is looked for in.
pub const HEAD_LEN: usize = 1 << 20;

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

impl TableError {
    /// The stable word: of an image that is registered, and of an order that fails.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::SectorSize { .. } => "sector_size_mismatch",
            Self::Gpt(GptError::DiskTooSmall { .. } | GptError::NoSpace { .. })
            | Self::Mbr(MbrError::DiskTooSmall { .. } | MbrError::NoSpace { .. }) => "image_too_large",
            Self::GptMissing | Self::NoTable | Self::Gpt(_) | Self::Mbr(_) => "bad_partition_table",
        }
    }
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
    /// Refuses the first bytes ([`HEAD_LEN`] of them, fewer if there are no more) of an image that no disk could take
    /// together with a seed: [`Self::parse`] and [`Self::fit`] for the image's own sector size and the largest disk.
    pub fn check_image(head: &[u8]) -> Result<(), TableError> {
        let sector_size = gpt_sector_size(head).unwrap_or(SECTOR_SIZES[0]);
        let mut table = Self::parse(head, sector_size)?;
        table.fit(u64::MAX, sector_size, Some(u64::from(sector_size))).map(drop)
    }

    /// Recognises the table in the first bytes ([`HEAD_LEN`] is enough) of what is for a disk with sectors of
    /// `sector_size` bytes.
    pub fn parse(head: &[u8], sector_size: u32) -> Result<Self, TableError> {
        if Gpt::is_at(head, sector_size) {
            return Ok(Self::Gpt(Gpt::parse(head, sector_size)?));
        }
        if let Some(image) = gpt_sector_size(head) {
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

/// The sector size for which there is a GPT header.
fn gpt_sector_size(head: &[u8]) -> Option<u32> {
    SECTOR_SIZES.into_iter().find(|&size| Gpt::is_at(head, size))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A first sector with a DOS table whose first `used` entries have this type.
    fn dos(used: usize, kind: u8) -> Vec<u8> {
        let mut head = vec![0; 8192];
        for at in (446..).step_by(16).take(used) {
            head[at + 4] = kind;
            head[at + 8..at + 16].copy_from_slice(&[0, 8, 0, 0, 0, 8, 0, 0]);
        }
        head[510..512].copy_from_slice(&[0x55, 0xaa]);
        head
    }

    #[test]
    fn an_image_that_no_disk_could_take_is_refused_by_what_a_deploy_says() {
        let refused = |head: &[u8]| Table::check_image(head).unwrap_err();
        assert_eq!(refused(b"hello world\n"), TableError::NoTable);
        assert_eq!(refused(&[0; 8192]), TableError::NoTable);
        assert_eq!(refused(&dos(0, 0)), TableError::NoTable);
        assert_eq!(refused(&dos(1, 0xee)), TableError::GptMissing);
        assert_eq!(refused(&dos(4, 0x83)), TableError::Mbr(MbrError::NoFreeSlot));
        for sector_size in SECTOR_SIZES {
            let mut head = dos(1, 0xee);
            head[sector_size as usize..][..8].copy_from_slice(b"EFI PART");
            assert!(matches!(refused(&head), TableError::Gpt(GptError::Field { field: "revision", .. })));
        }
        for error in [TableError::NoTable, TableError::GptMissing, TableError::Mbr(MbrError::NoFreeSlot)] {
            assert_eq!(error.code(), "bad_partition_table");
        }
        assert_eq!(Table::check_image(&dos(1, 0x83)), Ok(()));
        assert_eq!(Table::check_image(&dos(3, 0x83)[..512]), Ok(()));
    }

    #[test]
    fn i5_a_table_of_another_sector_size_is_named() {
        let mut head = vec![0; 8192];
        head[512..520].copy_from_slice(b"EFI PART");
        assert_eq!(Table::parse(&head, 4096), Err(TableError::SectorSize { image: 512, disk: 4096 }));
        let mut head = vec![0; 8192];
        head[4096..4104].copy_from_slice(b"EFI PART");
        assert_eq!(Table::parse(&head, 512), Err(TableError::SectorSize { image: 4096, disk: 512 }));
        let dos = dos(1, 0x83);
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
