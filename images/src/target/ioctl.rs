//! The two `ioctl`s on block devices that the standard library and `nix` do not wrap.
#![allow(unsafe_code)]

use std::{fs::File, io, os::fd::AsRawFd};

mod raw {
    // linux/fs.h: _IO(0x12, 104) and _IO(0x12, 95); defined without a size for historical reasons, hence "bad".
    nix::ioctl_read_bad!(blksszget, nix::request_code_none!(0x12, 104), nix::libc::c_int);
    nix::ioctl_none_bad!(blkrrpart, nix::request_code_none!(0x12, 95));
}

/// BLKSSZGET: the logical sector size in bytes.
pub(super) fn sector_size(device: &File) -> io::Result<u32> {
    let mut bytes = 0;
    // SAFETY: the descriptor is open for as long as `device` is borrowed, and BLKSSZGET writes one int.
    unsafe { raw::blksszget(device.as_raw_fd(), &raw mut bytes) }?;
    u32::try_from(bytes).map_err(|_| io::Error::other("the kernel gave a negative sector size"))
}

/// BLKRRPART: makes the kernel read the partition table anew.
pub(super) fn reread_partitions(device: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open for as long as `device` is borrowed, and BLKRRPART takes no argument.
    unsafe { raw::blkrrpart(device.as_raw_fd()) }?;
    Ok(())
}
