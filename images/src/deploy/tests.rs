//! The whole path over a disk in memory, the faulty ways above all.

use sha2::{Digest as _, Sha256};

use super::*;
use crate::{
    gpt::Gpt,
    mbr::Mbr,
    table::TableError,
    target::{END_LEN, MemoryDisk},
};

const MIB: usize = 1 << 20;

/// An image with a DOS table, one partition from 1 MiB on, noise in it, and a hole.
fn image(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    bytes[0..4].copy_from_slice(b"boot");
    bytes[446 + 4] = 0x83;
    bytes[446 + 8..446 + 12].copy_from_slice(&2048u32.to_le_bytes());
    bytes[446 + 12..446 + 16].copy_from_slice(&u32::try_from(len / 512 - 2048).unwrap().to_le_bytes());
    bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
    for (i, byte) in bytes.iter_mut().enumerate().skip(MIB).filter(|(i, _)| i / MIB != 3) {
        *byte = u8::try_from(i % 251).unwrap();
    }
    bytes
}

fn plan_for(encoded: &[u8]) -> DeployPlan {
    DeployPlan {
        digest: Sha256::digest(encoded).into(),
        size: encoded.len() as u64,
        raw_size: None,
        target_is_zero: false,
        seed: Vec::new(),
    }
}

/// A disk full of an older system.
fn used_disk(mib: u64) -> MemoryDisk {
    let mut disk = MemoryDisk::new(mib * MIB as u64, 512);
    for i in 0..mib {
        disk.write_at(i * MIB as u64, &vec![0xee; MIB]).unwrap();
    }
    disk
}

fn run(source: &[u8], disk: &mut MemoryDisk, plan: &DeployPlan) -> Result<Deployed, DeployError> {
    deploy(source, disk, plan, &mut |_| {})
}

fn bytes_of(disk: &mut MemoryDisk, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    disk.read_at(0, &mut bytes).unwrap();
    bytes
}

fn ends_are_zero(disk: &MemoryDisk) -> bool {
    disk.is_zero(0..END_LEN) && disk.is_zero(disk.size() - END_LEN..disk.size())
}

fn failure(result: Result<Deployed, DeployError>) -> Failure {
    match result {
        Err(DeployError::Failed(failure)) => failure,
        other => panic!("expected a failure with zeroed ends, got {other:?}"),
    }
}

#[test]
fn every_format_arrives_whole_and_zeroes_replace_what_was_there() {
    let raw = image(6 * MIB + 512);
    let gzip = {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, &raw).unwrap();
        encoder.finish().unwrap()
    };
    let zstd = zstd::encode_all(&raw[..], 1).unwrap();
    for (encoded, format) in [(raw.clone(), Format::Raw), (gzip, Format::Gzip), (zstd, Format::Zstd)] {
        for offload in [true, false] {
            let mut disk = used_disk(16).with_offload(offload);
            let mut last = None;
            let plan = DeployPlan { raw_size: Some(raw.len() as u64), ..plan_for(&encoded) };
            let done = deploy(&encoded[..], &mut disk, &plan, &mut |p| last = Some(p)).unwrap();
            assert_eq!((done.format, done.raw_size), (format, raw.len() as u64));
            assert!(bytes_of(&mut disk, raw.len()) == raw, "{format}, offload {offload}");
            let total = encoded.len() as u64;
            assert_eq!(last, Some(Progress { read: total, total, position: raw.len() as u64 }));
        }
    }
}

#[test]
fn holes_are_skipped_only_on_a_disk_known_to_be_zero() {
    let raw = image(6 * MIB);
    let mut disk = MemoryDisk::new(16 * MIB as u64, 512).with_offload(false);
    let done = run(&raw, &mut disk, &DeployPlan { target_is_zero: true, ..plan_for(&raw) }).unwrap();
    assert_eq!(done.bytes_written, 5 * MIB as u64);
    assert!(bytes_of(&mut disk, raw.len()) == raw);
}

#[test]
fn i2_one_wrong_byte_fails_and_the_disk_does_not_boot() {
    let raw = image(6 * MIB);
    let plan = plan_for(&raw);
    let mut wrong = raw;
    wrong[5 * MIB] ^= 1;
    let mut disk = used_disk(16);
    let failure = failure(run(&wrong, &mut disk, &plan));
    assert!(matches!(&failure, Failure::Digest { expected, .. } if *expected == hex::encode(plan.digest)));
    assert!(ends_are_zero(&disk));
}

#[test]
fn i6_an_image_of_unknown_size_that_overruns_the_disk_leaves_zeroed_ends() {
    let raw = image(8 * MIB + 1);
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, &raw).unwrap();
    let encoded = encoder.finish().unwrap();
    let mut disk = used_disk(8);
    let failure = failure(run(&encoded, &mut disk, &plan_for(&encoded)));
    assert!(matches!(failure, Failure::LargerThanDisk { disk } if disk == 8 * MIB as u64));
    assert!(ends_are_zero(&disk));
}

#[test]
fn what_can_be_known_is_refused_without_a_write() {
    let raw = image(8 * MIB);
    let mut four_k = vec![0; 2 * MIB];
    four_k[4096..4104].copy_from_slice(b"EFI PART");
    let zstd = zstd::bulk::compress(&raw, 1).unwrap();
    let with_seed = |plan| DeployPlan { seed: vec![("meta-data".into(), b"x".to_vec())], ..plan };
    let cases: Vec<(&str, Vec<u8>, DeployPlan)> = vec![
        ("raw larger than the disk", raw.clone(), plan_for(&raw)),
        ("zstd frame says larger", zstd.clone(), plan_for(&zstd)),
        (
            "the plan says larger",
            b"\x1f\x8b".to_vec(),
            DeployPlan { raw_size: Some(1 << 40), ..plan_for(b"xx") },
        ),
        ("i5: GPT of 4 KiB sectors", four_k.clone(), plan_for(&four_k)),
        ("qcow2", b"QFI\xfb\0\0\0\x03".to_vec(), plan_for(b"QFI\xfb\0\0\0\x03")),
        ("nothing", Vec::new(), plan_for(b"")),
        ("not gzip after all", b"\x1f\x8bxxxxxxxxxxxxxxxx".to_vec(), plan_for(b"\x1f\x8bxxxxxxxxxxxxxxxx")),
        ("no table for the seed", vec![1; MIB], with_seed(plan_for(&vec![1; MIB]))),
        ("no room for the seed", image(7 * MIB), with_seed(plan_for(&image(7 * MIB)))),
    ];
    for (name, source, plan) in cases {
        let mut disk = used_disk(7);
        let before = disk.writes();
        let result = run(&source, &mut disk, &plan);
        assert!(matches!(result, Err(DeployError::Refused(_))), "{name}: {result:?}");
        assert_eq!(disk.writes(), before, "{name}");
    }
}

#[test]
fn i5_a_gpt_of_512_byte_sectors_is_refused_by_a_4kn_disk_before_the_first_write() {
    let mut raw = vec![0; 2 * MIB];
    raw[512..520].copy_from_slice(b"EFI PART");
    let mut disk = MemoryDisk::new(16 * MIB as u64, 4096);
    let error = run(&raw, &mut disk, &plan_for(&raw)).unwrap_err();
    let expected = TableError::SectorSize { image: 512, disk: 4096 };
    assert!(matches!(error, DeployError::Refused(Refusal::Table(found)) if found == expected));
    assert_eq!(disk.writes(), 0);
}

#[test]
fn i1_a_container_inside_a_compression_is_refused_before_the_first_write() {
    let mut tar = vec![0; 1024];
    tar[257..262].copy_from_slice(b"ustar");
    let zstd = zstd::encode_all(&tar[..], 1).unwrap();
    let mut disk = MemoryDisk::new(16 * MIB as u64, 512);
    let error = run(&zstd, &mut disk, &plan_for(&zstd)).unwrap_err();
    let expected = probe::ProbeError::Nested("a tar archive");
    assert!(matches!(error, DeployError::Refused(Refusal::Format(found)) if found == expected));
    assert_eq!(disk.writes(), 0);
}

#[test]
fn short_long_and_broken_streams_are_told_apart() {
    let raw = image(4 * MIB);
    let zstd = zstd::encode_all(&raw[..], 1).unwrap();
    let mut flipped = zstd.clone();
    let middle = flipped.len() - 100;
    flipped[middle] ^= 0xff;
    let mut longer = raw.clone();
    longer.push(0);
    let fail = |source: &[u8], plan: &DeployPlan| {
        let mut disk = used_disk(16);
        let failure = failure(run(source, &mut disk, plan));
        assert!(ends_are_zero(&disk));
        failure
    };
    let (of_raw, of_zstd) = (plan_for(&raw), plan_for(&zstd));
    assert!(matches!(fail(&raw[..3 * MIB], &of_raw), Failure::Truncated { .. }));
    assert!(matches!(fail(&zstd[..zstd.len() - 5], &of_zstd), Failure::Truncated { .. }));
    assert!(matches!(fail(&longer, &of_raw), Failure::TooLong { .. }));
    assert!(matches!(fail(&flipped, &of_zstd), Failure::Corrupt { .. } | Failure::Digest { .. }));
    let wrong_raw_size = DeployPlan { raw_size: Some(raw.len() as u64 + 1), ..of_zstd };
    assert!(matches!(fail(&zstd, &wrong_raw_size), Failure::RawSize { .. }));
}

/// Gives some bytes and then fails, like a connection that was reset.
struct Reset<'a>(&'a [u8]);

impl Read for Reset<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buf)? {
            0 => Err(io::ErrorKind::ConnectionReset.into()),
            n => Ok(n),
        }
    }
}

#[test]
fn a_failing_source_is_named_as_such() {
    let raw = image(4 * MIB);
    let mut disk = used_disk(16);
    let result = deploy(Reset(&raw[..3 * MIB]), &mut disk, &plan_for(&raw), &mut |_| {});
    let Failure::Source { read, source } = failure(result) else { panic!("another failure") };
    assert_eq!((read, source.kind()), (3 * MIB as u64, io::ErrorKind::ConnectionReset));
    assert!(ends_are_zero(&disk));
    let early = deploy(Reset(&raw[..100]), &mut disk, &plan_for(&raw), &mut |_| {});
    assert!(matches!(early, Err(DeployError::Refused(Refusal::Read(_)))));
}

#[test]
fn a_failing_disk_is_reported_with_the_state_of_its_ends() {
    let raw = image(8 * MIB);
    let mut disk = used_disk(16);
    disk.faults.bad_range = Some(4 * MIB as u64..4 * MIB as u64 + 512);
    assert!(matches!(failure(run(&raw, &mut disk, &plan_for(&raw))), Failure::Disk { .. }));
    assert!(ends_are_zero(&disk));

    let mut disk = used_disk(16);
    disk.faults.writes_until_gone = Some(disk.writes() + 4);
    let result = run(&raw, &mut disk, &plan_for(&raw));
    assert!(matches!(result, Err(DeployError::Stuck { .. })), "{result:?}");
    assert!(ends_are_zero(&disk), "they were zeroed before the first chunk");
}

#[test]
fn whenever_the_disk_dies_its_head_is_zero_or_the_image_is_complete() {
    let raw = image(8 * MIB);
    let plan = DeployPlan { seed: vec![("user-data".into(), b"#cloud-config\n".to_vec())], ..plan_for(&raw) };
    let mut whole = used_disk(16);
    let before = whole.writes();
    run(&raw, &mut whole, &plan).unwrap();
    let needed = whole.writes() - before;
    for limit in 1..needed {
        let mut disk = used_disk(16);
        disk.faults.writes_until_gone = Some(before + limit);
        assert!(run(&raw, &mut disk, &plan).is_err());
        assert!(disk.is_zero(0..END_LEN), "after {limit} of {needed} writes");
    }
}

#[test]
fn the_seed_lies_at_the_end_behind_free_space() {
    let raw = image(4 * MIB);
    let seed = vec![("user-data".to_owned(), b"#cloud-config\n".to_vec())];
    let mut disk = used_disk(64);
    let done = run(&raw, &mut disk, &DeployPlan { seed, ..plan_for(&raw) }).unwrap();
    let extent = done.seed.unwrap();
    assert_eq!(extent, Extent { offset: 62 * MIB as u64, len: 2 * MIB as u64 });
    let mut fat = vec![0; 2 * MIB];
    disk.read_at(extent.offset, &mut fat).unwrap();
    assert!(fat.windows(11).any(|w| w == b"CIDATA     "));
    let mbr = Mbr::parse(&bytes_of(&mut disk, 512)).unwrap();
    assert_eq!(mbr.entries()[1].first, 62 * 2048);
    assert_eq!(&mbr.bytes()[..4], b"boot", "the boot code stays");
    assert!(!Gpt::is_at(&bytes_of(&mut disk, 1024), 512));
}
