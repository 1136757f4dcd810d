//! The `Range` header (RFC 9110 section 14).

/// What part of a file to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// All of it: no range, or one that may be ignored.
    Whole,
    /// `len` bytes from `start`; never empty.
    Bytes {
        /// First byte.
        start: u64,
        /// How many.
        len: u64,
    },
    /// Nothing of the file is in the range: 416.
    Unsatisfiable,
}

/// Reads one `bytes=` range. Several ranges and other units are ignored, which the RFC allows.
pub fn part(header: Option<&str>, size: u64) -> Part {
    let spec = header.and_then(|header| header.trim().strip_prefix("bytes="));
    let Some((first, last)) = spec.and_then(|spec| spec.split_once('-')) else { return Part::Whole };
    // `+5` parses as a number, yet is none here.
    let number = |text: &str| text.parse::<u64>().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()));
    let (start, end) = match (first.trim(), last.trim()) {
        ("", suffix) => match number(suffix) {
            Some(0) => return Part::Unsatisfiable,
            Some(suffix) => (size.saturating_sub(suffix), size),
            None => return Part::Whole,
        },
        (first, "") => match number(first) {
            Some(start) => (start, size),
            None => return Part::Whole,
        },
        (first, last) => match (number(first), number(last)) {
            (Some(start), Some(last)) if start <= last => (start, last.saturating_add(1).min(size)),
            _ => return Part::Whole,
        },
    };
    if start < end { Part::Bytes { start, len: end - start } } else { Part::Unsatisfiable }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_of_rfc_9110() {
        let bytes = |start, len| Part::Bytes { start, len };
        for (header, expected) in [
            ("bytes=0-499", bytes(0, 500)),
            ("bytes=500-999", bytes(500, 500)),
            ("bytes=-500", bytes(9500, 500)),
            ("bytes=9500-", bytes(9500, 500)),
            ("bytes=0-0", bytes(0, 1)),
            ("bytes=-1", bytes(9999, 1)),
            ("bytes=9999-10000", bytes(9999, 1)),
            ("bytes=-20000", bytes(0, 10000)),
            ("bytes=10000-", Part::Unsatisfiable),
            ("bytes=-0", Part::Unsatisfiable),
            ("bytes=5-4", Part::Whole),
            ("bytes=0-1,5-6", Part::Whole),
            ("bytes=+0-1", Part::Whole),
            ("bytes=-", Part::Whole),
            ("lines=0-1", Part::Whole),
        ] {
            assert_eq!(part(Some(header), 10_000), expected, "{header}");
        }
        assert_eq!(part(None, 10), Part::Whole);
        assert_eq!(part(Some("bytes=0-"), 0), Part::Unsatisfiable);
    }

    proptest! {
        #[test]
        fn a_part_is_within_the_file(header in "(bytes=)?[-0-9,+ ]{0,44}", size: u64) {
            if let Part::Bytes { start, len } = part(Some(&header), size) {
                prop_assert!(len > 0 && start.checked_add(len).is_some_and(|end| end <= size));
            }
        }
    }
}
