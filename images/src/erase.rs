//! Makes a disk carry nothing any more.

use std::{
    io,
    time::{Duration, Instant},
};

use crate::{
    MIB,
    table::Table,
    target::{Target, is_zero, zero, zero_ends},
};

/// The disk zeroes itself in steps of this many bytes, so that the time limit is looked at in between.
const STEP: u64 = 1 << 30;

/// After this time the disk is no longer asked to zero itself: some drives do it at the speed of writing.
const ZERO_BUDGET: Duration = Duration::from_secs(120);

/// How many places are read back, and how many bytes at each.
const SAMPLES: u64 = 64;
const SAMPLE_LEN: usize = 4096;

/// Most partitions whose beginnings and ends are wiped.
const MAX_PARTITIONS: usize = 256;

/// How the disk was erased.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// The disk zeroed all its blocks by itself (deallocated them where it can).
    Discard,
    /// The ends of the disk and of every partition were overwritten: tables, boot loaders and signatures of
    /// file systems, LVM and md are gone; other content is not.
    ZeroEnds,
}

impl Method {
    /// The word used on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Discard => "discard",
            Self::ZeroEnds => "zero-ends",
        }
    }
}

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Erased {
    /// How.
    pub method: Method,
    /// Every byte of the disk now reads zero.
    pub target_is_zero: bool,
}

/// Why the disk is not erased.
#[derive(Debug, thiserror::Error)]
#[error("erasing the disk: {doing}")]
pub struct EraseError {
    doing: &'static str,
    #[source]
    source: io::Error,
}

fn failed(doing: &'static str) -> impl Fn(io::Error) -> EraseError {
    move |source| EraseError { doing, source }
}

/// Erases the whole disk. The ends go first, so that from the first moment on it does not boot.
pub fn erase(target: &mut dyn Target) -> Result<Erased, EraseError> {
    erase_until(target, Instant::now() + ZERO_BUDGET)
}

fn erase_until(target: &mut dyn Target, deadline: Instant) -> Result<Erased, EraseError> {
    // A table that cannot be read is no reason to stop: then there is nothing known to wipe.
    let table = Table::read(target).map_err(failed("reading the partition table"))?.unwrap_or(Table::None);
    zero_ends(target).map_err(failed("zeroing its ends"))?;
    if zero_whole(target, deadline).map_err(failed("letting it zero itself"))?
        && samples_are_zero(target).map_err(failed("reading it back"))?
    {
        target.sync().map_err(failed("syncing it"))?;
        return Ok(Erased { method: Method::Discard, target_is_zero: true });
    }
    wipe_partitions(target, &table).map_err(failed("wiping its partitions"))?;
    Ok(Erased { method: Method::ZeroEnds, target_is_zero: false })
}

/// False where the disk cannot zero by itself, or not in time.
fn zero_whole(target: &mut dyn Target, deadline: Instant) -> io::Result<bool> {
    let size = target.size();
    let mut done = 0;
    while done < size {
        let len = STEP.min(size - done);
        if Instant::now() >= deadline || !target.zero_offload(done, len)? {
            return Ok(false);
        }
        done += len;
    }
    Ok(true)
}

/// Looks at evenly spread places whether a disk that claimed to have zeroed itself has.
fn samples_are_zero(target: &mut dyn Target) -> io::Result<bool> {
    let sector = u64::from(target.sector_size());
    let last = target.size().saturating_sub(SAMPLE_LEN as u64);
    let mut buf = vec![0; SAMPLE_LEN.min(usize::try_from(target.size()).unwrap_or(SAMPLE_LEN))];
    for i in 0..SAMPLES {
        let offset = last / SAMPLES * i / sector * sector;
        target.read_at(offset, &mut buf)?;
        if !is_zero(&buf) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn wipe_partitions(target: &mut dyn Target, table: &Table) -> io::Result<()> {
    let size = target.size();
    for extent in table.extents(target.sector_size()).into_iter().take(MAX_PARTITIONS) {
        let end = extent.offset.saturating_add(extent.len).min(size);
        let start = extent.offset.min(end);
        let len = MIB.min(end - start);
        zero(target, start, len)?;
        zero(target, end - len, len)?;
    }
    target.sync()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{END_LEN, MemoryDisk};

    const SIZE: u64 = 3 << 30;

    /// A disk with a DOS table: one partition at 1 GiB, 64 MiB long, 0xaa at its start, end and middle.
    fn used_disk() -> MemoryDisk {
        let mut disk = MemoryDisk::new(SIZE, 512);
        let mut mbr = [0; 512];
        mbr[446 + 4] = 0x83;
        mbr[446 + 8..446 + 12].copy_from_slice(&(1u32 << 21).to_le_bytes());
        mbr[446 + 12..446 + 16].copy_from_slice(&(1u32 << 17).to_le_bytes());
        mbr[510..].copy_from_slice(&[0x55, 0xaa]);
        disk.write_at(0, &mbr).unwrap();
        for offset in [1 << 30, (1 << 30) + 32 * MIB, (1 << 30) + 64 * MIB - 4096, SIZE - 4096] {
            disk.write_at(offset, &[0xaa; 4096]).unwrap();
        }
        disk
    }

    #[test]
    fn a_disk_that_zeroes_itself_is_all_zero() {
        let mut disk = used_disk();
        let erased = erase(&mut disk).unwrap();
        assert_eq!(erased, Erased { method: Method::Discard, target_is_zero: true });
        assert!(disk.is_zero(0..SIZE));
    }

    #[test]
    fn otherwise_the_ends_of_disk_and_partitions_are_zeroed() {
        let mut disk = used_disk().with_offload(false);
        let erased = erase(&mut disk).unwrap();
        assert_eq!(erased, Erased { method: Method::ZeroEnds, target_is_zero: false });
        let part = 1u64 << 30;
        assert!(disk.is_zero(0..END_LEN) && disk.is_zero(SIZE - END_LEN..SIZE));
        assert!(disk.is_zero(part..part + MIB) && disk.is_zero(part + 63 * MIB..part + 64 * MIB));
        assert!(!disk.is_zero(part..part + 64 * MIB), "the middle is not claimed to be erased");
    }

    #[test]
    fn a_slow_disk_is_not_waited_for() {
        let mut disk = used_disk();
        let erased = erase_until(&mut disk, Instant::now()).unwrap();
        assert_eq!(erased.method, Method::ZeroEnds);
        assert!(!erased.target_is_zero);
        assert!(disk.is_zero(0..END_LEN));
    }

    #[test]
    fn a_failing_disk_fails_the_erase() {
        let mut disk = used_disk().with_offload(false);
        disk.faults.bad_range = Some((1 << 30)..(1 << 30) + 512);
        assert!(erase(&mut disk).is_err());
        let mut disk = used_disk();
        disk.faults.sync_fails = true;
        assert!(erase(&mut disk).is_err());
    }
}
