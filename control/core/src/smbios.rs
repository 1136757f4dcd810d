//! SMBIOS system UUIDs (DSP0134 §7.2.1).
//!
//! Since SMBIOS 2.6 the first three fields are little-endian; older firmware and some tools wrote all of it
//! big-endian. The same machine therefore shows one of two texts, and both mean it (field report identity U1).

/// Reads a UUID with or without hyphens or braces, in either case. All zeros and all ones mean "not set"
/// (DSP0134), so they are none.
pub(crate) fn parse(text: &str) -> Option<[u8; 16]> {
    if text.len() > 38 {
        return None;
    }
    let digits: Vec<u8> = text.bytes().filter(|b| !matches!(b, b'-' | b'{' | b'}')).collect();
    let mut uuid = [0; 16];
    hex::decode_to_slice(digits, &mut uuid).ok()?;
    (uuid != [0; 16] && uuid != [0xff; 16]).then_some(uuid)
}

fn swapped(uuid: [u8; 16]) -> [u8; 16] {
    let mut other = uuid;
    other[..4].reverse();
    other[4..6].reverse();
    other[6..8].reverse();
    other
}

/// Whether two texts name the same machine. Texts that are no UUIDs are compared as they are.
pub(crate) fn same_uuid(one: &str, other: &str) -> bool {
    match (parse(one), parse(other)) {
        (Some(one), Some(other)) => one == other || swapped(one) == other,
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn u1_product_uuid_matches_in_either_byte_order() {
        // The example of DSP0134 §7.2.1: 00112233-4455-6677-8899-AABBCCDDEEFF is stored as
        // 33 22 11 00 55 44 77 66 88 99 AA BB CC DD EE FF.
        let new = "00112233-4455-6677-8899-AABBCCDDEEFF";
        assert!(same_uuid(new, "33221100-5544-7766-8899-aabbccddeeff"));
        assert!(same_uuid("33221100554477668899aabbccddeeff", new));
        assert!(same_uuid(new, "{00112233-4455-6677-8899-aabbccddeeff}"));
        assert!(!same_uuid(new, "33221100-5544-7766-8899-aabbccddeefe"));
        assert!(!same_uuid(new, "33221100-4455-6677-8899-aabbccddeeff"), "only as a whole");
    }

    #[test]
    fn unset_uuids_are_none() {
        assert_eq!(parse("00000000-0000-0000-0000-000000000000"), None);
        assert_eq!(parse("FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF"), None);
        assert_eq!(parse("not-a-uuid"), None);
        assert_eq!(parse(&"0".repeat(1000)), None);
    }
}
