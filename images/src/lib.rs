//! Everything about bytes that end on disks or in boot files, with plain blocking I/O.
//!
//! | module | subject |
//! |---|---|
//! | [`probe`], [`decode`], [`digest`] | what an image stream is, its raw bytes, its identity |
//! | [`target`] | a disk as we write it; a file or block device, and a twin in memory with faults |
//! | [`deploy`] | an image onto a disk, so that no half-written disk ever boots |
//! | [`gpt`], [`mbr`], [`table`] | partition tables: check, repair after a move to a larger disk, add a partition |
//! | [`seed`] | the NoCloud seed as a FAT partition |
//! | [`disks`] | which disk; what `/sys/block` says |
//! | [`erase`] | a disk that carries nothing any more |
//! | [`store`] | files by the digest of their bytes |
//! | [`kernel`] | the release that a kernel file names |
//! | [`initramfs`], [`elf`], [`modules`], [`bundle`], [`ramdisk`] | boot files made from a running system's files |

pub mod bundle;
pub mod decode;
pub mod deploy;
pub mod digest;
pub mod disks;
pub mod elf;
pub mod erase;
pub mod gpt;
pub mod initramfs;
pub mod kernel;
pub mod mbr;
pub mod modules;
pub mod probe;
pub mod ramdisk;
pub mod seed;
pub mod store;
pub mod table;
pub mod target;

/// One mebibyte in bytes.
pub const MIB: u64 = 1 << 20;
