//! Our bytes under the eyes of the tools that others use on them: sgdisk, parted, blkid, fsck.vfat, mtools,
//! cpio, zstd, gzip, tar, ldd. One binary, so that it links once.

mod boot_files;
mod deploy;
mod seed;
mod streams;
mod tools;
