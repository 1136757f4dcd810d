//! Reading the TPM's own byte structures: big-endian integers and sized buffers (TPM 2.0 Part 2).
//!
//! Everything here comes from outside, so nothing is allocated from a length field and every failure names
//! the structure and the field.

use p256::ecdsa::Signature;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Algorithm identifiers (Part 2, 6.3).
pub(crate) mod alg {
    pub(crate) const RSA: u16 = 0x0001;
    pub(crate) const SHA1: u16 = 0x0004;
    pub(crate) const AES: u16 = 0x0006;
    pub(crate) const SHA256: u16 = 0x000b;
    pub(crate) const SHA384: u16 = 0x000c;
    pub(crate) const SHA512: u16 = 0x000d;
    pub(crate) const NULL: u16 = 0x0010;
    pub(crate) const ECDSA: u16 = 0x0018;
    pub(crate) const ECC: u16 = 0x0023;
    pub(crate) const CFB: u16 = 0x0043;
}

/// Why bytes are not the structure that they should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StructureError {
    /// The bytes end too early.
    #[error("{what} ends inside the field `{field}`")]
    Short {
        /// The structure.
        what: &'static str,
        /// The field that is not all there.
        field: &'static str,
    },
    /// A sized buffer larger than its type allows.
    #[error("{what} has {len} bytes in the field `{field}`, which holds at most {limit}")]
    TooLong {
        /// The structure.
        what: &'static str,
        /// The field.
        field: &'static str,
        /// Bytes found.
        len: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// Something follows the structure.
    #[error("{what} is followed by {left} more bytes")]
    Trailing {
        /// The structure.
        what: &'static str,
        /// How many bytes are left.
        left: usize,
    },
    /// A field with a fixed value has another one.
    #[error("{what} has {found:#x} in the field `{field}` where {wanted:#x} is needed")]
    Unexpected {
        /// The structure.
        what: &'static str,
        /// The field.
        field: &'static str,
        /// The value found.
        found: u64,
        /// The only value accepted.
        wanted: u64,
    },
    /// A field with fixed bytes has others.
    #[error("{what} has a value in the field `{field}` that is not accepted")]
    Differs {
        /// The structure.
        what: &'static str,
        /// The field.
        field: &'static str,
    },
}

/// A cursor over one structure.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Self { rest: bytes, what }
    }

    pub(crate) fn bytes(&mut self, len: usize, field: &'static str) -> Result<&'a [u8], StructureError> {
        let short = StructureError::Short { what: self.what, field };
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(short)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], StructureError> {
        let mut out = [0; N];
        out.copy_from_slice(self.bytes(N, field)?);
        Ok(out)
    }

    pub(crate) fn u8(&mut self, field: &'static str) -> Result<u8, StructureError> {
        Ok(self.array::<1>(field)?[0])
    }

    pub(crate) fn u16(&mut self, field: &'static str) -> Result<u16, StructureError> {
        self.array(field).map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, StructureError> {
        self.array(field).map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self, field: &'static str) -> Result<u64, StructureError> {
        self.array(field).map(u64::from_be_bytes)
    }

    /// A TPM2B: a 16-bit length and that many bytes, at most `limit`.
    pub(crate) fn sized(&mut self, limit: usize, field: &'static str) -> Result<&'a [u8], StructureError> {
        let len = usize::from(self.u16(field)?);
        if len > limit {
            return Err(StructureError::TooLong { what: self.what, field, len, limit });
        }
        self.bytes(len, field)
    }

    /// A big-endian number of at most `N` bytes, left-padded: TPMs differ in whether they strip zeros.
    pub(crate) fn number<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], StructureError> {
        let digits = self.sized(N, field)?;
        let mut out = [0; N];
        out[N - digits.len()..].copy_from_slice(digits);
        Ok(out)
    }

    /// A number that can only have one value.
    pub(crate) fn expect(
        &self,
        field: &'static str,
        found: impl Into<u64>,
        wanted: impl Into<u64>,
    ) -> Result<(), StructureError> {
        let (found, wanted) = (found.into(), wanted.into());
        if found == wanted {
            Ok(())
        } else {
            Err(StructureError::Unexpected { what: self.what, field, found, wanted })
        }
    }

    /// Bytes that can only have one value.
    pub(crate) fn expect_bytes(&mut self, field: &'static str, wanted: &[u8]) -> Result<(), StructureError> {
        if self.bytes(wanted.len(), field)? == wanted {
            Ok(())
        } else {
            Err(StructureError::Differs { what: self.what, field })
        }
    }

    /// Nothing may be left.
    pub(crate) fn finish(self) -> Result<(), StructureError> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(StructureError::Trailing { what: self.what, left }),
        }
    }
}

/// The TPM name of a public area whose name algorithm is SHA-256 (Part 1, 16): algorithm ‖ digest.
pub(crate) fn name_sha256(public: &[u8]) -> Vec<u8> {
    [&alg::SHA256.to_be_bytes()[..], &Sha256::digest(public)].concat()
}

/// Reads a `TPMT_SIGNATURE` that must be ECDSA P-256 with SHA-256 (Part 2, 11.3.4).
pub(crate) fn ecdsa_signature(bytes: &[u8], what: &'static str) -> Result<Signature, StructureError> {
    let mut reader = Reader::new(bytes, what);
    let scheme = reader.u16("sigAlg")?;
    reader.expect("sigAlg", scheme, alg::ECDSA)?;
    let hash = reader.u16("hash")?;
    reader.expect("hash", hash, alg::SHA256)?;
    let r: [u8; 32] = reader.number("signatureR")?;
    let s: [u8; 32] = reader.number("signatureS")?;
    reader.finish()?;
    // Refuses zero and anything not below the order of the curve.
    Signature::from_scalars(r, s).map_err(|_| StructureError::Differs { what, field: "signature" })
}

/// `TPMS_CLOCK_INFO` and the firmware version of an attestation (Part 2, 10.11.1 and 10.12.12).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// Milliseconds that the TPM was powered. Goes *back* after a power cut, so it orders nothing across one.
    pub clock_ms: u64,
    /// TPM resets so far: the only one that never goes back.
    pub reset_count: u32,
    /// Restarts and resumes since the last reset.
    pub restart_count: u32,
    /// False after a power cut, until the clock is known to be past its last value.
    pub safe: bool,
    /// Vendor's version of the TPM's firmware.
    pub firmware_version: u64,
}

impl Clock {
    /// Whether this may come after `last` on one TPM.
    pub fn may_follow(&self, last: &Self) -> bool {
        self.reset_count >= last.reset_count
    }

    /// Reads clock info and firmware version, which follow each other in a `TPMS_ATTEST`.
    pub(crate) fn read(reader: &mut Reader) -> Result<Self, StructureError> {
        Ok(Self {
            clock_ms: reader.u64("clock")?,
            reset_count: reader.u32("resetCount")?,
            restart_count: reader.u32("restartCount")?,
            safe: reader.u8("safe")? != 0,
            firmware_version: reader.u64("firmwareVersion")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_names_structure_and_field() {
        let mut short = Reader::new(&[0, 4, 1, 2], "X");
        assert_eq!(short.sized(8, "a"), Err(StructureError::Short { what: "X", field: "a" }));
        let mut long = Reader::new(&[0xff, 0xff, 1], "X");
        let error = StructureError::TooLong { what: "X", field: "a", len: 0xffff, limit: 8 };
        assert_eq!(long.sized(8, "a"), Err(error));
        let trailing = Reader::new(&[1], "X").finish();
        assert_eq!(trailing, Err(StructureError::Trailing { what: "X", left: 1 }));
    }

    #[test]
    fn a_stripped_number_is_padded_on_the_left() {
        let mut reader = Reader::new(&[0, 2, 0xaa, 0xbb], "X");
        assert_eq!(reader.number::<4>("n"), Ok([0, 0, 0xaa, 0xbb]));
    }

    #[test]
    fn a_signature_of_another_scheme_or_zero_is_refused() {
        let wire = |scheme: u16, hash: u16, r: &[u8], s: &[u8]| {
            let mut out = [scheme.to_be_bytes(), hash.to_be_bytes()].concat();
            for part in [r, s] {
                out.extend_from_slice(&u16::try_from(part.len()).unwrap().to_be_bytes());
                out.extend_from_slice(part);
            }
            out
        };
        assert!(ecdsa_signature(&wire(0x18, 0x0b, &[1], &[1; 32]), "sig").is_ok());
        for bad in [
            wire(0x14, 0x0b, &[1], &[1]),
            wire(0x18, 0x04, &[1], &[1]),
            wire(0x18, 0x0b, &[0], &[1]),
            wire(0x18, 0x0b, &[1], &[]),
            wire(0x18, 0x0b, &[0xff; 32], &[1]),
            wire(0x18, 0x0b, &[1; 33], &[1]),
            [wire(0x18, 0x0b, &[1], &[1]), vec![0]].concat(),
        ] {
            assert!(ecdsa_signature(&bad, "sig").is_err(), "{bad:02x?}");
        }
    }

    #[test]
    fn p6_the_reset_count_alone_orders_clocks() {
        let before =
            Clock { clock_ms: 412_829, reset_count: 3, restart_count: 0, safe: true, firmware_version: 1 };
        let power_cut = Clock { clock_ms: 412_823, reset_count: 4, safe: false, ..before };
        assert!(power_cut.may_follow(&before));
        assert!(!before.may_follow(&power_cut));
    }
}
