//! A DER writer that writes what it is told, also what no library would.

pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const BIT_STRING: u8 = 0x03;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const OID: u8 = 0x06;
pub(crate) const UTF8_STRING: u8 = 0x0c;
pub(crate) const GENERALIZED_TIME: u8 = 0x18;
pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const SET: u8 = 0x31;

/// Tag, length and the parts as content.
pub(crate) fn tlv(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let mut out = vec![tag];
    match u16::try_from(content.len()).unwrap() {
        len @ 0..=0x7f => out.push(len.to_be_bytes()[1]),
        len @ 0x80..=0xff => out.extend_from_slice(&[0x81, len.to_be_bytes()[1]]),
        len => {
            out.push(0x82);
            out.extend_from_slice(&len.to_be_bytes());
        }
    }
    out.extend_from_slice(&content);
    out
}

pub(crate) fn seq(parts: &[&[u8]]) -> Vec<u8> {
    tlv(SEQUENCE, parts)
}

/// A BIT STRING of whole bytes.
pub(crate) fn bits(bytes: &[u8]) -> Vec<u8> {
    tlv(BIT_STRING, &[&[0], bytes])
}

/// An attribute of a distinguished name.
pub(crate) fn attribute(oid: &[u8], value: &str) -> Vec<u8> {
    seq(&[&tlv(OID, &[oid]), &tlv(UTF8_STRING, &[value.as_bytes()])])
}

/// A distinguished name with one RDN: a common name.
pub(crate) fn common_name(name: &str) -> Vec<u8> {
    seq(&[&tlv(SET, &[&attribute(&[0x55, 0x04, 0x03], name)])])
}

pub(crate) fn extension(oid: &[u8], critical: bool, value: &[u8]) -> Vec<u8> {
    let critical: &[u8] = if critical { &[0x01, 0x01, 0xff] } else { &[] };
    seq(&[&tlv(OID, &[oid]), critical, &tlv(OCTET_STRING, &[value])])
}
