//! The twin of a disk in memory: sparse, and with faults on demand, so that error paths run in tests.

use std::{collections::BTreeMap, io, ops::Range};

use super::{Target, is_zero};

const PAGE: usize = 64 << 10;

/// What shall go wrong.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Writes that touch this byte range fail, as on a bad sector.
    pub bad_range: Option<Range<u64>>,
    /// All writes after this many fail, as when a cable is pulled.
    pub writes_until_gone: Option<u64>,
    /// Syncs fail, as when a write cache could not be flushed.
    pub sync_fails: bool,
}

/// A disk in memory; only pages that were written take space.
#[derive(Debug, Clone)]
pub struct MemoryDisk {
    size: u64,
    sector_size: u32,
    offload: bool,
    pages: BTreeMap<u64, Box<[u8]>>,
    writes: u64,
    /// May be changed at any time.
    pub faults: Faults,
}

impl MemoryDisk {
    /// A disk of zeroes.
    pub fn new(size: u64, sector_size: u32) -> Self {
        Self {
            size,
            sector_size,
            offload: true,
            pages: BTreeMap::new(),
            writes: 0,
            faults: Faults::default(),
        }
    }

    /// Whether the disk can zero by itself.
    #[must_use]
    pub fn with_offload(mut self, offload: bool) -> Self {
        self.offload = offload;
        self
    }

    /// Writes and zeroings asked for so far, the failed ones included.
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// Whether every byte of the range is zero.
    pub fn is_zero(&self, range: Range<u64>) -> bool {
        let pages = range.start / PAGE as u64..range.end.div_ceil(PAGE as u64);
        self.pages.range(pages).all(|(index, page)| {
            let base = index * PAGE as u64;
            let clip = |at: u64| usize::try_from(at.saturating_sub(base)).map_or(PAGE, |n| n.min(PAGE));
            is_zero(&page[clip(range.start)..clip(range.end)])
        })
    }

    fn begin_write(&mut self, offset: u64, len: u64) -> io::Result<()> {
        self.check_range(offset, len)?;
        self.writes += 1;
        let gone = self.faults.writes_until_gone.is_some_and(|limit| self.writes > limit);
        let bad = self.faults.bad_range.as_ref().is_some_and(|r| offset < r.end && offset + len > r.start);
        if gone || bad { Err(io::Error::other("injected write fault")) } else { Ok(()) }
    }

    fn check_range(&self, offset: u64, len: u64) -> io::Result<()> {
        if offset.checked_add(len).is_some_and(|end| end <= self.size) {
            Ok(())
        } else {
            Err(io::Error::other(format!("{len} bytes at {offset} of a disk of {} bytes", self.size)))
        }
    }

    /// The pages under a range: index, and range inside the page.
    fn pieces(offset: u64, len: u64) -> impl Iterator<Item = (u64, Range<usize>)> {
        let mut done = 0;
        std::iter::from_fn(move || {
            let at = offset + done;
            let start = usize::try_from(at % PAGE as u64).ok()?;
            let n = (PAGE - start).min(usize::try_from(len - done).unwrap_or(PAGE));
            let piece = (at / PAGE as u64, start..start + n);
            done += n as u64;
            (n > 0).then_some(piece)
        })
    }
}

impl Target for MemoryDisk {
    fn size(&self) -> u64 {
        self.size
    }

    fn sector_size(&self) -> u32 {
        self.sector_size
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check_range(offset, buf.len() as u64)?;
        let mut rest = buf;
        for (index, inside) in Self::pieces(offset, rest.len() as u64) {
            let (piece, tail) = rest.split_at_mut(inside.len());
            match self.pages.get(&index) {
                Some(page) => piece.copy_from_slice(&page[inside]),
                None => piece.fill(0),
            }
            rest = tail;
        }
        Ok(())
    }

    fn write_at(&mut self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.begin_write(offset, buf.len() as u64)?;
        let mut rest = buf;
        for (index, inside) in Self::pieces(offset, rest.len() as u64) {
            let (piece, tail) = rest.split_at(inside.len());
            let page = self.pages.entry(index).or_insert_with(|| vec![0; PAGE].into());
            page[inside].copy_from_slice(piece);
            rest = tail;
        }
        Ok(())
    }

    fn zero_offload(&mut self, offset: u64, len: u64) -> io::Result<bool> {
        if !self.offload {
            return Ok(false);
        }
        self.begin_write(offset, len)?;
        let end = offset + len;
        let whole = offset.div_ceil(PAGE as u64)..end / PAGE as u64;
        if whole.start < whole.end {
            let mut tail = self.pages.split_off(&whole.start);
            self.pages.append(&mut tail.split_off(&whole.end));
        }
        for index in [offset / PAGE as u64, end / PAGE as u64] {
            let base = index * PAGE as u64;
            if let Some(page) = self.pages.get_mut(&index) {
                let clip = |at: u64| usize::try_from(at.saturating_sub(base)).map_or(PAGE, |n| n.min(PAGE));
                page[clip(offset)..clip(end)].fill(0);
            }
        }
        Ok(true)
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.faults.sync_fails { Err(io::Error::other("injected sync fault")) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behaves_like_a_vector() {
        let mut disk = MemoryDisk::new(1 << 20, 512);
        let mut model = vec![0u8; 1 << 20];
        let ops = [
            (0, 70_000, 1),
            (65_530, 12, 2),
            (100, 200_000, 0),
            (1_000_000, 48_576, 3),
            (131_072, 65_536, 0),
        ];
        for (offset, len, byte) in ops {
            if byte == 0 {
                assert!(disk.zero_offload(offset, len).unwrap());
            } else {
                disk.write_at(offset, &vec![byte; usize::try_from(len).unwrap()]).unwrap();
            }
            let start = usize::try_from(offset).unwrap();
            model[start..start + usize::try_from(len).unwrap()].fill(byte);
            let mut back = vec![9; 1 << 20];
            disk.read_at(0, &mut back).unwrap();
            assert!(back == model, "after {offset} {len} {byte}");
        }
        assert!(disk.is_zero(100..200_100) && !disk.is_zero(0..101));
        assert!(disk.write_at((1 << 20) - 1, b"xy").is_err());
    }
}
