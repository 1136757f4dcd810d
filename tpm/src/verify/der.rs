//! Cutting certificates out of what TPMs keep in their NV storage.

/// Certificates in one list; the longest real chains have four.
const MAX_CERTIFICATES: usize = 16;

/// DER tag of a SEQUENCE, with which every certificate begins.
const SEQUENCE: u8 = 0x30;

/// Header that some TPMs carry over from TPM 1.2 (TCPA_STORED_CERT, tag 0x1001, full certificate), followed by
/// a 16-bit length.
const STORED_CERT_HEADER: [u8; 3] = [0x10, 0x01, 0x00];

/// Why bytes hold no certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DerError {
    /// Not a DER SEQUENCE with a definite length inside the bytes.
    #[error("no whole DER certificate begins at byte {offset} of {len}")]
    NotACertificate {
        /// Where it should begin.
        offset: usize,
        /// Length of the input.
        len: usize,
    },
    /// More than any chain needs.
    #[error("more than {MAX_CERTIFICATES} certificates in one list")]
    TooMany,
}

/// The certificates of a whole list, as [`certificates`] cuts them.
pub(super) fn all_certificates(list: &[Vec<u8>]) -> Result<Vec<&[u8]>, DerError> {
    let mut found = Vec::new();
    for raw in list {
        found.extend(certificates(raw)?);
        if found.len() > MAX_CERTIFICATES {
            return Err(DerError::TooMany);
        }
    }
    Ok(found)
}

/// The DER certificates in `raw`, each cut at its own length, in order.
///
/// Accepts a TPM 1.2 header in front, padding of all 00 or all FF behind, and several certificates in a row.
/// Anything else behind a certificate is an error. Empty or padding alone gives an empty list.
pub(super) fn certificates(raw: &[u8]) -> Result<Vec<&[u8]>, DerError> {
    let mut rest = raw;
    if rest.starts_with(&STORED_CERT_HEADER) {
        rest = rest.get(STORED_CERT_HEADER.len() + 2..).unwrap_or_default();
    }
    let mut found = Vec::new();
    while !is_padding(rest) {
        if found.len() == MAX_CERTIFICATES {
            return Err(DerError::TooMany);
        }
        let offset = raw.len() - rest.len();
        let whole = element_len(rest).and_then(|len| rest.split_at_checked(len));
        let (certificate, behind) = whole.ok_or(DerError::NotACertificate { offset, len: raw.len() })?;
        found.push(certificate);
        rest = behind;
    }
    Ok(found)
}

fn is_padding(bytes: &[u8]) -> bool {
    bytes.iter().all(|&b| b == 0x00) || bytes.iter().all(|&b| b == 0xff)
}

/// Length in bytes of the SEQUENCE at the start, with its header (X.690, 8.1.3).
fn element_len(bytes: &[u8]) -> Option<usize> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    if tag != SEQUENCE {
        return None;
    }
    match first {
        0..=0x7f => Some(2 + usize::from(first)),
        0x81..=0x83 => {
            let octets = rest.get(..usize::from(first & 0x7f))?;
            let content = octets.iter().fold(0usize, |len, &octet| len << 8 | usize::from(octet));
            Some(2 + octets.len() + content)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A SEQUENCE of `len` content bytes (at least 128), with the long form of the length.
    fn element(len: u16, fill: u8) -> Vec<u8> {
        [&[0x30, 0x82][..], &len.to_be_bytes(), &vec![fill; usize::from(len)]].concat()
    }

    #[test]
    fn p1_padding_behind_the_certificate_is_cut() {
        let certificate = element(600, 7);
        for pad in [0x00, 0xff] {
            let padded = [certificate.clone(), vec![pad; 500]].concat();
            assert_eq!(certificates(&padded), Ok(vec![&certificate[..]]));
        }
        let mixed = [certificate.clone(), vec![0xff, 0x00]].concat();
        assert_eq!(certificates(&mixed), Err(DerError::NotACertificate { offset: 604, len: 606 }));
    }

    #[test]
    fn p2_header_of_tpm_1_2_is_stripped() {
        let certificate = element(600, 7);
        let with_header = [&[0x10, 0x01, 0x00, 0x02, 0x5c][..], &certificate].concat();
        assert_eq!(certificates(&with_header), Ok(vec![&certificate[..]]));
    }

    #[test]
    fn t15_two_certificates_in_a_row_are_two() {
        // The sizes of one pair seen in the field.
        let (rsa, ecc) = (element(852 - 4, 1), element(651 - 4, 2));
        let both = [rsa.clone(), ecc.clone()].concat();
        assert_eq!(certificates(&both), Ok(vec![&rsa[..], &ecc[..]]));
    }

    #[test]
    fn t37_bytes_without_a_certificate_are_named() {
        assert_eq!(certificates(&[]), Ok(vec![]));
        assert_eq!(certificates(&[0xff; 40]), Ok(vec![]));
        for junk in [
            &b"hello"[..],
            &[0x30],
            &[0x30, 0x80, 0, 0],
            &[0x30, 0x84, 0, 0, 0, 1, 0],
            &[0x30, 0x82, 0xff, 0xff, 1],
        ] {
            assert!(
                matches!(certificates(junk), Err(DerError::NotACertificate { offset: 0, .. })),
                "{junk:02x?}"
            );
        }
        assert_eq!(certificates(&[0x30, 0].repeat(17)), Err(DerError::TooMany));
        assert_eq!(all_certificates(&vec![vec![0x30, 0]; 17]), Err(DerError::TooMany));
    }

    proptest! {
        #[test]
        fn any_bytes_are_cut_or_refused(bytes: Vec<u8>) {
            if let Ok(found) = certificates(&bytes) {
                prop_assert!(found.iter().all(|c| c.len() >= 2 && c[0] == 0x30));
            }
        }
    }
}
