//! Tables are built here by hand from the standard; the integration tests compare with sgdisk.

use proptest::prelude::*;

use super::*;
use crate::target::MemoryDisk;

const SECTOR: u32 = 512;

/// A table of `sectors` sectors with one partition from 2048 to `last`.
fn table(sectors: u64, last: u64) -> Gpt {
    let mut gpt = Gpt {
        sector_size: SECTOR,
        disk_guid: Guid([7; 16]),
        backup_lba: sectors - 1,
        first_usable: 34,
        last_usable: sectors - 34,
        entries_lba: 2,
        entry_count: 128,
        entry_len: 128,
        entries: vec![0; 128 * 128],
    };
    let root = Partition {
        type_guid: Guid([1; 16]),
        unique_guid: Guid([2; 16]),
        first_lba: 2048,
        last_lba: last,
        attributes: 4,
        name: "root".into(),
    };
    gpt.entries[..128].copy_from_slice(&root.encode());
    gpt
}

fn head_of(gpt: &Gpt) -> Vec<u8> {
    let mut disk = MemoryDisk::new(1 << 40, SECTOR);
    gpt.write(&mut disk).unwrap();
    let mut head = vec![0; 1 << 20];
    disk.read_at(0, &mut head).unwrap();
    head
}

#[test]
fn what_is_written_is_read_back() {
    let gpt = table(1 << 20, 9999);
    assert_eq!(Gpt::parse(&head_of(&gpt), SECTOR), Ok(gpt));
}

#[test]
fn i4_the_backup_moves_to_the_last_sector_of_a_larger_disk() {
    let gib = (1 << 30) / u64::from(SECTOR);
    let mut gpt = table(gib, gib - 2048);
    gpt.fit(10 * gib).unwrap();
    let mut disk = MemoryDisk::new(10 << 30, SECTOR);
    gpt.write(&mut disk).unwrap();
    let mut backup = [0; 512];
    disk.read_at((10 << 30) - 512, &mut backup).unwrap();
    assert_eq!(&backup[..8], b"EFI PART");
    assert_eq!(u64_at(&backup, 24), 10 * gib - 1, "its own LBA");
    assert_eq!(u64_at(&backup, 32), 1, "the other header");
    assert_eq!(u64_at(&backup, 48), 10 * gib - 34, "32 sectors of entries and the header behind");
    assert_eq!(u64_at(&backup, 72), 10 * gib - 33);
}

#[test]
fn a_smaller_disk_is_refused() {
    let mut gpt = table(1 << 20, 500_000);
    assert_eq!(gpt.fit(500_033), Err(GptError::DiskTooSmall { needed: 500_034, disk: 500_033 }));
    gpt.fit(500_034).unwrap();
    assert_eq!(gpt.last_usable_lba(), 500_000);
}

#[test]
fn a_new_partition_is_aligned_and_at_the_end() {
    let mut gpt = table(1 << 20, 9999);
    let added = gpt.add_at_end(Guid::BASIC_DATA, "cidata", 2 * MIB).unwrap();
    // Usable up to 2^20 - 34; two mebibytes before that is sector 1044447, down to a whole mebibyte 509 * 2048.
    assert_eq!((added.first_lba, added.last_lba), (1_042_432, 1_046_527));
    assert_eq!(gpt.partitions().len(), 2);
    assert_eq!(gpt.partitions()[1], added);
    let free = 1_048_542 - 1_046_527;
    assert!(matches!(
        gpt.add_at_end(Guid::BASIC_DATA, "b", MIB),
        Err(GptError::NoSpace { wanted: 2048, free: f }) if f == free
    ));
}

#[test]
fn damage_is_named() {
    let head = head_of(&table(1 << 20, 9999));
    let damaged = |at: usize, byte: u8| {
        let mut head = head.clone();
        head[at] ^= byte;
        Gpt::parse(&head, SECTOR)
    };
    assert_eq!(damaged(512 + 56, 1), Err(GptError::Crc("header")));
    assert_eq!(damaged(1024 + 32, 1), Err(GptError::Crc("entry array")));
    assert!(matches!(damaged(512 + 8, 1), Err(GptError::Field { field: "revision", .. })));
    assert!(matches!(damaged(512 + 15, 1), Err(GptError::Field { field: "header size", .. })));
    assert_eq!(Gpt::parse(&head[..2000], SECTOR), Err(GptError::Truncated("the entry array")));
    assert_eq!(Gpt::parse(&head[..600], SECTOR), Err(GptError::Truncated("the header")));
}

#[test]
fn sizes_that_would_cost_memory_are_refused() {
    let mut head = head_of(&table(1 << 20, 9999));
    head[512 + 80..512 + 84].copy_from_slice(&u32::MAX.to_le_bytes());
    head[512 + 16..512 + 20].fill(0);
    let crc = crc32fast::hash(&head[512..512 + 92]);
    head[512 + 16..512 + 20].copy_from_slice(&crc.to_le_bytes());
    let limit = GptError::Field { field: "number of entries", value: u64::from(u32::MAX) };
    assert_eq!(Gpt::parse(&head, SECTOR), Err(limit));
}

#[test]
fn the_protective_mbr_covers_the_disk() {
    let mut disk = MemoryDisk::new(1 << 40, SECTOR);
    let mut mbr = [0; 512];
    mbr[446 + 4] = 0xee;
    mbr[446 + 8] = 1;
    mbr[446 + 12] = 1;
    mbr[510..].copy_from_slice(&[0x55, 0xaa]);
    disk.write_at(0, &mbr).unwrap();
    let mut gpt = table(1 << 20, 9999);
    gpt.fit(1 << 31).unwrap();
    gpt.write(&mut disk).unwrap();
    disk.read_at(0, &mut mbr).unwrap();
    assert_eq!(u32_at(&mbr, 446 + 12), (1 << 31) - 1);
}

proptest! {
    #[test]
    fn no_bytes_make_the_parser_panic(mut header in proptest::collection::vec(any::<u8>(), 92..512), fix in any::<bool>()) {
        header.resize(512, 0);
        header[..8].copy_from_slice(SIGNATURE);
        if fix {
            header[8..16].copy_from_slice(&[0, 0, 1, 0, 92, 0, 0, 0]);
            header[16..20].fill(0);
            let crc = crc32fast::hash(&header[..92]);
            header[16..20].copy_from_slice(&crc.to_le_bytes());
        }
        let mut head = vec![0; 1 << 16];
        head[512..1024].copy_from_slice(&header);
        let _ = Gpt::parse(&head, SECTOR);
    }

    #[test]
    fn fitting_and_adding_keeps_all_in_bounds(disk in 100_000u64..1 << 40, last in 2048u64..200_000, len in 1u64..1 << 34) {
        let mut gpt = table(1 << 20, last);
        if gpt.fit(disk).is_ok() {
            let _ = gpt.add_at_end(Guid::BASIC_DATA, "x", len);
            prop_assert_eq!(gpt.check_layout(), Ok(()));
            prop_assert_eq!(gpt.backup_lba(), disk - 1);
            let parts = gpt.partitions();
            prop_assert!(parts.len() == 1 || parts[1].first_lba > parts[0].last_lba);
        }
    }
}
