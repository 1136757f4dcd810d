//! One partition entry (UEFI 2.10 table 5-6).

use super::Guid;

/// Bytes of an entry that the standard defines; entries may be larger.
pub(super) const ENTRY_LEN: usize = 128;

/// Longest name in UTF-16 code units.
pub(super) const NAME_UNITS: usize = 36;

/// A partition. LBAs are in logical sectors of the disk, the last one included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// What it is for.
    pub type_guid: Guid,
    /// Its own identity (PARTUUID).
    pub unique_guid: Guid,
    /// First sector.
    pub first_lba: u64,
    /// Last sector, included.
    pub last_lba: u64,
    /// UEFI 2.10 table 5-8.
    pub attributes: u64,
    /// At most 36 UTF-16 code units.
    pub name: String,
}

impl Partition {
    /// Reads an entry; `None` where it is unused. Anything else in the 128 bytes is representable.
    pub fn decode(entry: &[u8; ENTRY_LEN]) -> Option<Self> {
        let type_guid = guid_at(entry, 0);
        if type_guid == Guid::UNUSED {
            return None;
        }
        let units = entry[56..].as_chunks::<2>().0.iter().map(|b| u16::from_le_bytes(*b));
        let name = char::decode_utf16(units.take_while(|&unit| unit != 0))
            .map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER))
            .collect();
        Some(Self {
            type_guid,
            unique_guid: guid_at(entry, 16),
            first_lba: u64_at(entry, 32),
            last_lba: u64_at(entry, 40),
            attributes: u64_at(entry, 48),
            name,
        })
    }

    /// The entry's bytes; a longer name is cut.
    pub fn encode(&self) -> [u8; ENTRY_LEN] {
        let mut entry = [0; ENTRY_LEN];
        entry[..16].copy_from_slice(&self.type_guid.0);
        entry[16..32].copy_from_slice(&self.unique_guid.0);
        entry[32..40].copy_from_slice(&self.first_lba.to_le_bytes());
        entry[40..48].copy_from_slice(&self.last_lba.to_le_bytes());
        entry[48..56].copy_from_slice(&self.attributes.to_le_bytes());
        let units = self.name.encode_utf16().take(NAME_UNITS);
        for (slot, unit) in entry[56..].as_chunks_mut::<2>().0.iter_mut().zip(units) {
            *slot = unit.to_le_bytes();
        }
        entry
    }
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |b| u64::from_le_bytes(*b))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |b| u32::from_le_bytes(*b))
}

pub(super) fn guid_at(bytes: &[u8], at: usize) -> Guid {
    bytes[at..].first_chunk().map_or(Guid::UNUSED, |b| Guid(*b))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            type_guid in any::<[u8; 16]>(), unique in any::<[u8; 16]>(),
            first in any::<u64>(), last in any::<u64>(), attributes in any::<u64>(),
            name in "[ -~äß€😀]{0,18}",
        ) {
            prop_assume!(type_guid != [0; 16]);
            let partition = Partition {
                type_guid: Guid(type_guid), unique_guid: Guid(unique),
                first_lba: first, last_lba: last, attributes, name,
            };
            prop_assert_eq!(Partition::decode(&partition.encode()), Some(partition));
        }
    }
}
