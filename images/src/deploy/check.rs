//! What can be known before the first write.

use std::io;

use super::DeployPlan;
use crate::{
    probe::{Format, ProbeError},
    seed::SeedError,
    table::TableError,
};

/// Why the disk was left alone.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Unknown format.
    #[error(transparent)]
    Format(#[from] ProbeError),
    /// The first bytes could not be read or decoded.
    #[error("reading the beginning of the image")]
    Read(#[source] io::Error),
    /// The image needs more space than there is (field report I6).
    #[error("the image is {image} bytes large when decoded, the disk {disk}")]
    LargerThanDisk {
        /// In bytes; at least.
        image: u64,
        /// In bytes.
        disk: u64,
    },
    /// The promised sizes contradict each other or the image's header.
    #[error("the image has {found} bytes when decoded, but {promised} were promised")]
    RawSize {
        /// In bytes; at least.
        found: u64,
        /// In bytes.
        promised: u64,
    },
    /// The partition table cannot work on this disk.
    #[error(transparent)]
    Table(TableError),
    /// The seed cannot be built.
    #[error(transparent)]
    Seed(SeedError),
}

/// Compares all sizes that are known: the disk's, the plan's, and what the stream's header promises as the
/// least decoded size.
pub(super) fn sizes(
    format: Format,
    promised_by_header: Option<u64>,
    plan: &DeployPlan,
    disk: u64,
) -> Result<(), Refusal> {
    let at_least = if format == Format::Raw { Some(plan.size) } else { promised_by_header };
    if let (Some(found), Some(promised)) = (at_least, plan.raw_size)
        && (found > promised || (format == Format::Raw && found != promised))
    {
        return Err(Refusal::RawSize { found, promised });
    }
    match plan.raw_size.max(at_least) {
        Some(image) if image > disk => Err(Refusal::LargerThanDisk { image, disk }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(size: u64, raw_size: Option<u64>) -> DeployPlan {
        DeployPlan { digest: [0; 32], size, raw_size, target_is_zero: false, seed: Vec::new() }
    }

    #[test]
    fn i6_one_byte_too_many_is_refused_from_any_source_of_knowledge() {
        let disk = 1 << 30;
        let over = disk + 1;
        let too_large = |r| matches!(r, Err(Refusal::LargerThanDisk { image, .. }) if image == over);
        assert!(too_large(sizes(Format::Raw, None, &plan(over, None), disk)), "raw length");
        assert!(too_large(sizes(Format::Gzip, None, &plan(5, Some(over)), disk)), "the plan");
        assert!(too_large(sizes(Format::Zstd, Some(over), &plan(5, None), disk)), "the frame header");
        assert!(sizes(Format::Raw, None, &plan(disk, Some(disk)), disk).is_ok(), "exactly full");
        assert!(sizes(Format::Gzip, None, &plan(5, None), disk).is_ok(), "unknown");
    }

    #[test]
    fn contradicting_sizes_are_refused() {
        let wrong = |r| matches!(r, Err(Refusal::RawSize { .. }));
        assert!(wrong(sizes(Format::Raw, None, &plan(10, Some(11)), 100)));
        assert!(wrong(sizes(Format::Zstd, Some(12), &plan(10, Some(11)), 100)));
        assert!(sizes(Format::Zstd, Some(5), &plan(10, Some(11)), 100).is_ok(), "more frames may follow");
    }
}
