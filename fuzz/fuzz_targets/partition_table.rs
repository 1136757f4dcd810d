//! The first bytes of a disk image: reading its partition table, moving it to a disk, adding the seed's
//! partition. Checksums are set right, so that what stands behind them is reached.
#![no_main]

use ironwright_fuzz::input::Input;
use ironwright_images::{
    gpt::Gpt,
    table::{Extent, Table},
    target::{MemoryDisk, Target},
};
use libfuzzer_sys::fuzz_target;

/// Field offsets of the header, UEFI 2.10 table 5-5.
const HEADER_CRC: usize = 16;
const ENTRIES_LBA: usize = 72;
const ENTRY_COUNT: usize = 80;
const ENTRY_LEN: usize = 84;
const ENTRIES_CRC: usize = 88;

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let field: [u8; N] = bytes.get(at..at + N)?.try_into().ok()?;
    Some(field.iter().rev().fold(0, |n, &byte| n << 8 | u64::from(byte)))
}

/// Sets both CRCs, where the header's numbers allow it.
fn set_checksums(head: &mut [u8], sector: usize) -> Option<()> {
    let header = head.get(sector..2 * sector)?;
    let count = number::<4>(header, ENTRY_COUNT)?.checked_mul(number::<4>(header, ENTRY_LEN)?)?;
    let start = number::<8>(header, ENTRIES_LBA)?.checked_mul(sector as u64)?;
    let range = usize::try_from(start).ok()?..usize::try_from(start.checked_add(count)?).ok()?;
    let crc = crc32fast::hash(head.get(range)?);
    head[sector + ENTRIES_CRC..][..4].copy_from_slice(&crc.to_le_bytes());
    let len = usize::try_from(number::<4>(&head[sector..], 12)?).ok()?;
    head[sector + HEADER_CRC..][..4].fill(0);
    let crc = crc32fast::hash(head.get(sector..sector.checked_add(len)?)?);
    head[sector + HEADER_CRC..][..4].copy_from_slice(&crc.to_le_bytes());
    Some(())
}

fn ends(extent: Extent) -> u64 {
    extent.offset.checked_add(extent.len).expect("an extent that ends")
}

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input::new(bytes);
    let flags = input.byte();
    let sector_size = if flags & 1 == 0 { 512 } else { 4096 };
    let disk_sectors = u64::from(u32::from_be_bytes(input.array()));
    let seed_len = (flags & 2 != 0).then(|| u64::from(u32::from_be_bytes(input.array())));
    // Long tables are mostly zeroes.
    let mut head = input.rest().to_vec();
    head.resize(head.len() + 64 * 1024, 0);
    if flags & 4 != 0 {
        let _ = set_checksums(&mut head, sector_size as usize);
    }
    let _ = Gpt::is_at(&head, sector_size);
    let Ok(mut table) = Table::parse(&head, sector_size) else { return };
    let _ = table.extents(sector_size);

    let size = disk_sectors * u64::from(sector_size);
    let before = table.extents(sector_size);
    let Ok(seed) = table.fit(size, sector_size, seed_len) else { return };
    assert_eq!(seed.is_some(), seed_len.is_some());
    for extent in &before {
        assert!(ends(*extent) <= size, "a partition behind the disk");
    }
    if let Some(seed) = seed {
        assert!(ends(seed) <= size, "a seed behind the disk");
        assert!(before.iter().all(|extent| ends(*extent) <= seed.offset), "a seed over a partition");
    }
    let mut disk = MemoryDisk::new(size, sector_size);
    let Ok(()) = disk.write_at(0, &head[..head.len().min(usize::try_from(size).unwrap_or(usize::MAX))])
    else {
        return;
    };
    table.write(&mut disk).expect("a table that fits");
    assert_eq!(Table::read(&mut disk).expect("a disk that works"), Ok(table));
});
