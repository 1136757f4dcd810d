//! GUIDs in the mixed byte order of EFI structures (UEFI 2.10 appendix A).

use std::fmt;

use sha2::{Digest as _, Sha256};

/// A GUID as its 16 bytes on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Guid(pub [u8; 16]);

impl Guid {
    /// "Unused entry" (UEFI 2.10 table 5-7).
    pub const UNUSED: Self = Self([0; 16]);

    /// Basic data, `EBD0A0A2-B9E5-4433-87C0-68B6B72699C7`: what a FAT file system that is no ESP has.
    pub const BASIC_DATA: Self =
        Self::from_fields(0xebd0_a0a2, 0xb9e5, 0x4433, [0x87, 0xc0, 0x68, 0xb6, 0xb7, 0x26, 0x99, 0xc7]);

    /// From the fields as written in text; the first three are little-endian on disk.
    pub const fn from_fields(a: u32, b: u16, c: u16, d: [u8; 8]) -> Self {
        let (a, b, c) = (a.to_le_bytes(), b.to_le_bytes(), c.to_le_bytes());
        Self([a[0], a[1], a[2], a[3], b[0], b[1], c[0], c[1], d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7]])
    }

    /// A GUID that follows from `parts` alone: version 8, "custom", of RFC 9562.
    pub fn derived(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let hash: [u8; 32] = hash.finalize().into();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash[..16]);
        // The version is the high nibble of the third field, which is little-endian here.
        bytes[7] = bytes[7] & 0x0f | 0x80;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Self(bytes)
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let b = &self.0;
        let hex = |range: &[u8]| hex::encode_upper(range);
        write!(
            f,
            "{}-{}-{}-{}-{}",
            hex(&[b[3], b[2], b[1], b[0]]),
            hex(&[b[5], b[4]]),
            hex(&[b[7], b[6]]),
            hex(&b[8..10]),
            hex(&b[10..])
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_disk_order_differ_in_the_first_three_fields() {
        assert_eq!(Guid::BASIC_DATA.to_string(), "EBD0A0A2-B9E5-4433-87C0-68B6B72699C7");
        assert_eq!(Guid::BASIC_DATA.0[..4], [0xa2, 0xa0, 0xd0, 0xeb]);
    }

    #[test]
    fn derived_guids_are_stable_and_marked_as_version_8() {
        let guid = Guid::derived(&[b"disk", b"seed"]);
        assert_eq!(guid, Guid::derived(&[b"disk", b"seed"]));
        assert_ne!(guid, Guid::derived(&[b"disks", b"eed"]), "parts do not run together");
        let text = guid.to_string();
        assert_eq!(&text[14..15], "8");
        assert!(matches!(&text[19..20], "8" | "9" | "A" | "B"));
    }
}
