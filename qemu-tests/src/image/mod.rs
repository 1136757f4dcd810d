//! Disk images for tests and the demo. Made from files alone: no root, no loop devices, no mounts.

mod debian;
mod disk;
mod small;

pub use debian::debian;
pub use disk::{ESP_BYTES, ESP_OFFSET};
pub use small::{small, small_with_ballast};

use std::path::PathBuf;

/// A disk image in the cache.
#[derive(Debug, Clone)]
pub struct DiskImage {
    /// The image: GPT, boot loaders for BIOS and UEFI.
    pub raw: Option<PathBuf>,
    /// The same, compressed by zstd.
    pub zstd: Option<PathBuf>,
    /// Its EFI system partition: the bytes at [`ESP_OFFSET`].
    pub esp: PathBuf,
}
