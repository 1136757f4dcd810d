//! The shell patterns of module aliases: fnmatch(3) with `*`, `?` and `[...]`, and no special characters else.

/// Whether the whole text matches. Takes at most the product of both lengths in steps.
pub fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    // Where to go on when what follows the last `*` does not match: one byte of text further.
    let mut retry = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            retry = Some((p, t));
        } else if let Some(len) = one(&pattern[p..], text[t]) {
            p += len;
            t += 1;
        } else if let Some((after_star, at)) = retry {
            p = after_star;
            t = at + 1;
            retry = Some((after_star, t));
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&b| b == b'*')
}

/// The length of the pattern's first element, if it matches this byte.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match *pattern.first()? {
        b'?' => Some(1),
        b'[' => {
            let end = pattern.iter().position(|&b| b == b']')?;
            let set = &pattern[1..end];
            let (negated, set) = match set.split_first() {
                Some((b'!' | b'^', rest)) => (true, rest),
                _ => (false, set),
            };
            (in_set(set, byte) != negated).then_some(end + 1)
        }
        literal => (literal == byte).then_some(1),
    }
}

fn in_set(mut set: &[u8], byte: u8) -> bool {
    loop {
        match *set {
            [from, b'-', to, ref rest @ ..] => {
                if (from..=to).contains(&byte) {
                    return true;
                }
                set = rest;
            }
            [single, ref rest @ ..] => {
                if single == byte {
                    return true;
                }
                set = rest;
            }
            [] => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn real_aliases() {
        let virtio_net = "pci:v00001AF4d00001041sv00001AF4sd00001100bc02sc00i00";
        assert!(matches("pci:v00001AF4d*sv*sd*bc*sc*i*", virtio_net));
        assert!(!matches("pci:v00008086d*sv*sd*bc*sc*i*", virtio_net));
        assert!(matches("usb:v0421p*d0[0-9]10*dc*", "usb:v0421p04FAd0510dc02"));
        assert!(!matches("usb:v0421p*d0[0-9]10*dc*", "usb:v0421p04FAd0A10dc02"));
        assert!(matches("acpi*:MSFT0101:*", "acpi:MSFT0101:"));
        assert!(matches("virtio:d00000001v*", "virtio:d00000001v00001AF4"));
    }

    #[test]
    fn corners() {
        assert!(matches("", "") && matches("*", "") && matches("**", "abc") && matches("a?c", "abc"));
        assert!(!matches("", "a") && !matches("?", "") && !matches("a", "ab") && !matches("[a", "a"));
        assert!(matches("[!a]", "b") && !matches("[!a]", "a") && matches("[a-]", "-"));
    }

    proptest! {
        #[test]
        fn agrees_with_the_definition(pattern in "[ab*?]{0,8}", text in "[ab]{0,8}") {
            fn slow(p: &[u8], t: &[u8]) -> bool {
                match p.split_first() {
                    None => t.is_empty(),
                    Some((b'*', rest)) => (0..=t.len()).any(|i| slow(rest, &t[i..])),
                    Some((b'?', rest)) => !t.is_empty() && slow(rest, &t[1..]),
                    Some((c, rest)) => t.first() == Some(c) && slow(rest, &t[1..]),
                }
            }
            prop_assert_eq!(matches(&pattern, &text), slow(pattern.as_bytes(), text.as_bytes()));
        }
    }
}
