//! A disk as the writer sees it.

mod device;
mod held;
mod ioctl;
mod memory;

use std::io;

pub use device::{DiskFile, OpenError};
pub use held::HeldHead;
pub use memory::{Faults, MemoryDisk};

/// How much is zeroed at each end of a disk so that nothing finds a boot loader, partition table or backup
/// partition table there, in bytes.
pub const END_LEN: u64 = crate::MIB;

/// Zeroes are written in pieces of this many bytes where the disk cannot zero by itself.
const ZERO_CHUNK: usize = 1 << 20;

/// A disk. Offsets and lengths are in bytes; reads and writes are whole or an error.
pub trait Target: Send {
    /// Size in bytes.
    fn size(&self) -> u64;

    /// Logical sector size in bytes: 512, or 4096 on 4Kn disks.
    fn sector_size(&self) -> u32;

    /// Fills `buf` from `offset` on.
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Writes all of `buf` at `offset`.
    fn write_at(&mut self, offset: u64, buf: &[u8]) -> io::Result<()>;

    /// Lets the disk zero a range by itself, without transferring bytes. True promises that the range reads
    /// zero; false means that it cannot do that and that nothing was promised.
    fn zero_offload(&mut self, offset: u64, len: u64) -> io::Result<bool>;

    /// Returns once everything written is on stable storage.
    fn sync(&mut self) -> io::Result<()>;
}

/// Makes a range zero, by the disk itself where it can, else by writing zeroes. Returns the bytes written.
pub fn zero(target: &mut dyn Target, offset: u64, len: u64) -> io::Result<u64> {
    if len == 0 || target.zero_offload(offset, len)? {
        return Ok(0);
    }
    let zeroes = vec![0; ZERO_CHUNK.min(usize::try_from(len).unwrap_or(ZERO_CHUNK))];
    let mut done = 0;
    while done < len {
        let n = zeroes.len().min(usize::try_from(len - done).unwrap_or(usize::MAX));
        target.write_at(offset + done, &zeroes[..n])?;
        done += n as u64;
    }
    Ok(len)
}

/// Makes the first and the last [`END_LEN`] zero and syncs. The second end is tried even where the first fails.
pub fn zero_ends(target: &mut dyn Target) -> io::Result<()> {
    let size = target.size();
    let first = zero(target, 0, END_LEN.min(size));
    let last = zero(target, size.saturating_sub(END_LEN), END_LEN.min(size));
    first.and(last)?;
    target.sync()
}

/// Whether all bytes are zero.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<16>();
    words.iter().all(|w| u128::from_ne_bytes(*w) == 0) && rest.iter().all(|&b| b == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_ends_leaves_the_middle() {
        for offload in [true, false] {
            let mut disk = MemoryDisk::new(8 * crate::MIB, 512).with_offload(offload);
            disk.write_at(0, &vec![0xaa; 8 << 20]).unwrap();
            zero_ends(&mut disk).unwrap();
            let mut whole = vec![0; 8 << 20];
            disk.read_at(0, &mut whole).unwrap();
            assert!(is_zero(&whole[..1 << 20]) && is_zero(&whole[7 << 20..]));
            assert!(whole[1 << 20..7 << 20].iter().all(|&b| b == 0xaa));
        }
    }

    #[test]
    fn is_zero_sees_a_single_bit_anywhere() {
        for len in [0, 1, 15, 16, 17, 64] {
            assert!(is_zero(&vec![0; len]));
            for at in 0..len {
                let mut bytes = vec![0; len];
                bytes[at] = 1;
                assert!(!is_zero(&bytes), "bit at {at} of {len}");
            }
        }
    }
}
