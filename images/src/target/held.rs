//! A disk whose first bytes stay in memory until everything else is safely written.

use std::io;

use super::{END_LEN, Target};

/// Passes everything through to the disk below, except for its first [`END_LEN`] bytes: those are kept in
/// memory until [`HeldHead::release`]. As long as they are not released the disk's own head is zero, so no
/// firmware boots it.
pub struct HeldHead<'a> {
    inner: &'a mut dyn Target,
    head: Vec<u8>,
}

impl<'a> HeldHead<'a> {
    /// Begins with a head of zeroes, in memory only.
    pub fn new(inner: &'a mut dyn Target) -> Self {
        let len = usize::try_from(END_LEN.min(inner.size())).unwrap_or(0);
        Self { inner, head: vec![0; len] }
    }

    /// Syncs what lies behind the head, then writes the head and syncs again.
    pub fn release(self) -> io::Result<()> {
        self.inner.sync()?;
        self.inner.write_at(0, &self.head)?;
        self.inner.sync()
    }

    /// How many bytes from `offset` on fall into the head.
    fn overlap(&self, offset: u64, len: usize) -> usize {
        usize::try_from((self.head.len() as u64).saturating_sub(offset)).map_or(len, |n| n.min(len))
    }

    fn head_part(&mut self, offset: u64, len: usize) -> &mut [u8] {
        let n = self.overlap(offset, len);
        // An offset that fits no usize lies behind the head, where `n` is 0.
        let start = if n == 0 { 0 } else { usize::try_from(offset).unwrap_or(0) };
        &mut self.head[start..start + n]
    }
}

impl Target for HeldHead<'_> {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn sector_size(&self) -> u32 {
        self.inner.sector_size()
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let n = self.overlap(offset, buf.len());
        let (held, below) = buf.split_at_mut(n);
        held.copy_from_slice(self.head_part(offset, n));
        if below.is_empty() { Ok(()) } else { self.inner.read_at(offset + n as u64, below) }
    }

    fn write_at(&mut self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let (held, below) = buf.split_at(self.overlap(offset, buf.len()));
        self.head_part(offset, held.len()).copy_from_slice(held);
        if below.is_empty() { Ok(()) } else { self.inner.write_at(offset + held.len() as u64, below) }
    }

    fn zero_offload(&mut self, offset: u64, len: u64) -> io::Result<bool> {
        let n = self.overlap(offset, usize::try_from(len).unwrap_or(usize::MAX));
        self.head_part(offset, n).fill(0);
        let below = len - n as u64;
        if below == 0 { Ok(true) } else { self.inner.zero_offload(offset + n as u64, below) }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.inner.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::{super::MemoryDisk, *};

    #[test]
    fn the_head_reaches_the_disk_only_when_released() {
        let mut disk = MemoryDisk::new(4 * END_LEN, 512);
        let mut held = HeldHead::new(&mut disk);
        let across = END_LEN - 2;
        held.write_at(0, b"boot").unwrap();
        held.write_at(across, b"1234").unwrap();
        let mut back = [0; 4];
        held.read_at(across, &mut back).unwrap();
        assert_eq!(&back, b"1234", "reads see both parts");
        held.inner.read_at(across, &mut back).unwrap();
        assert_eq!(&back, b"\0\x0034", "below, only what lies behind the head");
        held.release().unwrap();
        disk.read_at(0, &mut back).unwrap();
        assert_eq!(&back, b"boot");
        disk.read_at(across, &mut back).unwrap();
        assert_eq!(&back, b"1234");
    }

    #[test]
    fn zeroing_across_the_boundary_clears_both_parts() {
        let mut disk = MemoryDisk::new(4 * END_LEN, 512);
        let mut held = HeldHead::new(&mut disk);
        held.write_at(END_LEN - 2, b"1234").unwrap();
        assert!(held.zero_offload(END_LEN - 1, 2).unwrap());
        let mut back = [0; 4];
        held.read_at(END_LEN - 2, &mut back).unwrap();
        assert_eq!(&back, b"1\0\x004");
    }
}
