//! Checked ids: MAC addresses, content digests and operator-given names.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Why a text is not the id that it was meant to be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Not six octets in hexadecimal.
    #[error("`{0}` is not a MAC address (six hexadecimal octets, e.g. 52:54:00:12:34:56)")]
    Mac(String),
    /// A group address, which no interface owns.
    #[error("`{0}` is a multicast MAC address; a machine needs the address of one interface")]
    MulticastMac(String),
    /// Not `sha256:` and 64 hexadecimal digits.
    #[error("`{0}` is not a digest (sha256: and 64 hexadecimal digits)")]
    Digest(String),
    /// Names end up in host names, file names and URLs.
    #[error("`{0}` is not a name: 1 to 63 of a-z, 0-9 and -, beginning and ending with a letter or digit")]
    Name(String),
}

/// An IEEE 802 MAC-48 address. Text forms with `:`, `-`, `.` or nothing between the octets, in either
/// case, are read; lower case with colons is written (field report identity U3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac(pub [u8; 6]);

impl FromStr for Mac {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let bad = || IdError::Mac(text.chars().take(32).collect());
        let digits: Vec<u8> = text.bytes().filter(|b| !matches!(b, b':' | b'-' | b'.')).collect();
        if digits.len() != 12 || text.len() > 17 {
            return Err(bad());
        }
        let mut octets = [0u8; 6];
        hex::decode_to_slice(&digits, &mut octets).map_err(|_| bad())?;
        if octets[0] & 1 == 1 {
            return Err(IdError::MulticastMac(text.to_owned()));
        }
        Ok(Self(octets))
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let octets: Vec<String> = self.0.iter().map(|octet| format!("{octet:02x}")).collect();
        f.write_str(&octets.join(":"))
    }
}

/// A SHA-256 digest, written `sha256:<64 hexadecimal digits>`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The 64 hexadecimal digits alone, as used in URLs and file names.
    pub fn hex(&self) -> String {
        hex::encode(self.0)
    }
}

impl FromStr for Digest {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let bad = || IdError::Digest(text.chars().take(80).collect());
        let digits = text.strip_prefix("sha256:").ok_or_else(bad)?;
        let mut octets = [0u8; 32];
        hex::decode_to_slice(digits, &mut octets).map_err(|_| bad())?;
        Ok(Self(octets))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

/// A name an operator gives to a machine, site or image: an RFC 1123 host label.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

impl Name {
    /// The text of the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let ok = (1..=63).contains(&text.len())
            && text.bytes().all(inner)
            && !text.starts_with('-')
            && !text.ends_with('-');
        if ok { Ok(Self(text.to_owned())) } else { Err(IdError::Name(text.chars().take(80).collect())) }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

macro_rules! text_forms {
    ($($type:ty),*) => {$(
        impl TryFrom<String> for $type {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                text.parse()
            }
        }
        impl From<$type> for String {
            fn from(id: $type) -> String {
                id.to_string()
            }
        }
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    )*};
}
text_forms!(Mac, Digest, Name);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn u3_mac_is_read_in_any_case_and_separator() {
        let expected = Mac([0x52, 0x54, 0x00, 0xab, 0xcd, 0xef]);
        for text in ["52:54:00:ab:cd:ef", "52-54-00-AB-CD-EF", "525400ABCDEF", "5254.00ab.cdef"] {
            assert_eq!(text.parse::<Mac>(), Ok(expected), "{text}");
        }
        assert_eq!(expected.to_string(), "52:54:00:ab:cd:ef");
    }

    #[test]
    fn bad_ids_are_named() {
        for text in ["", "52:54:00:ab:cd", "52:54:00:ab:cd:eg", "52:54:00:ab:cd:ef:00"] {
            assert!(matches!(text.parse::<Mac>(), Err(IdError::Mac(_))), "{text}");
        }
        assert!(matches!("01:00:5e:00:00:01".parse::<Mac>(), Err(IdError::MulticastMac(_))));
        assert!(matches!("sha256:00".parse::<Digest>(), Err(IdError::Digest(_))));
        for text in ["", "-a", "a-", "A", "a_b", "a/b", "..", &"x".repeat(64)] {
            assert!(matches!(text.parse::<Name>(), Err(IdError::Name(_))), "{text}");
        }
    }
}
