//! Images: names for the digests of disk images.

use ironwright_proto::ids::Digest;

/// What control found out about an image's bytes when it stored them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageFacts {
    /// Digest of the bytes as they were given.
    pub digest: Digest,
    /// Size of the bytes as they were given.
    pub size_bytes: u64,
    /// Size after decoding.
    pub raw_size_bytes: u64,
    /// `raw`, `gzip` or `zstd`.
    pub format: String,
}
