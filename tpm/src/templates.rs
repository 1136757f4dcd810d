//! The exact public areas (`TPMT_PUBLIC`) of every key in a join.
//!
//! One table serves both sides: the device creates keys from it, and control accepts nothing else. A key
//! whose public area differs in any bit before its `unique` field is another kind of key.
//!
//! Endorsement keys: TCG EK Credential Profile 2.5, templates L-1, L-2 and H-3 (annex B).

use crate::structures::{Reader, StructureError, alg};

/// Object attributes (Part 2, 8.3).
mod attribute {
    pub(super) const FIXED_TPM: u32 = 1 << 1;
    pub(super) const FIXED_PARENT: u32 = 1 << 4;
    pub(super) const SENSITIVE_DATA_ORIGIN: u32 = 1 << 5;
    pub(super) const USER_WITH_AUTH: u32 = 1 << 6;
    pub(super) const ADMIN_WITH_POLICY: u32 = 1 << 7;
    pub(super) const NO_DA: u32 = 1 << 10;
    pub(super) const RESTRICTED: u32 = 1 << 16;
    pub(super) const DECRYPT: u32 = 1 << 17;
    pub(super) const SIGN: u32 = 1 << 18;

    /// Made in this TPM, never leaves it.
    pub(super) const RESIDENT: u32 = FIXED_TPM | FIXED_PARENT | SENSITIVE_DATA_ORIGIN;
    pub(super) const ENDORSEMENT: u32 = RESIDENT | ADMIN_WITH_POLICY | RESTRICTED | DECRYPT;
    /// Without dictionary-attack protection: power cuts must not lock our keys (there is no password).
    pub(super) const OURS: u32 = RESIDENT | USER_WITH_AUTH | NO_DA;
}

/// `PolicySecret(TPM_RH_ENDORSEMENT)` with SHA-256: policy A of the EK profile.
const POLICY_A_SHA256: [u8; 32] = [
    0x83, 0x71, 0x97, 0x67, 0x44, 0x84, 0xb3, 0xf8, 0x1a, 0x90, 0xcc, 0x8d, 0x46, 0xa5, 0xd7, 0x24, 0xfd,
    0x52, 0xd7, 0x6e, 0x06, 0x52, 0x0b, 0x64, 0xf2, 0xa1, 0xda, 0x1b, 0x33, 0x14, 0x69, 0xaa,
];

/// Policy A of the EK profile with SHA-384.
#[cfg(any(test, feature = "device"))]
pub(crate) const POLICY_A_SHA384: [u8; 48] = [
    0x8b, 0xbf, 0x22, 0x66, 0x53, 0x7c, 0x17, 0x1c, 0xb5, 0x6e, 0x40, 0x3c, 0x4d, 0xc1, 0xd4, 0xb6, 0x4f,
    0x43, 0x26, 0x11, 0xdc, 0x38, 0x6e, 0x6f, 0x53, 0x20, 0x50, 0xc3, 0x27, 0x8c, 0x93, 0x0e, 0x14, 0x3e,
    0x8b, 0xb1, 0x13, 0x38, 0x24, 0xcc, 0xb4, 0x31, 0x05, 0x38, 0x71, 0xc6, 0xdb, 0x53,
];

/// Policy C of the EK profile with SHA-384: `PolicyAuthorizeNV` of index I-2, the other branch of policy B.
#[cfg(any(test, feature = "device"))]
pub(crate) const POLICY_C_SHA384: [u8; 48] = [
    0xd6, 0x03, 0x2c, 0xe6, 0x1f, 0x2f, 0xb3, 0xc2, 0x40, 0xeb, 0x3c, 0xf6, 0xa3, 0x32, 0x37, 0xef, 0x2b,
    0x6a, 0x16, 0xf4, 0x29, 0x3c, 0x22, 0xb4, 0x55, 0xe2, 0x61, 0xcf, 0xfd, 0x21, 0x7a, 0xd5, 0xb4, 0x94,
    0x7c, 0x2d, 0x73, 0xe6, 0x30, 0x05, 0xee, 0xd2, 0xdc, 0x2b, 0x35, 0x93, 0xd1, 0x65,
];

/// `PolicyOR(A, C)` with SHA-384: policy B of the EK profile.
const POLICY_B_SHA384: [u8; 48] = [
    0xb2, 0x6e, 0x7d, 0x28, 0xd1, 0x1a, 0x50, 0xbc, 0x53, 0xd8, 0x82, 0xbc, 0xf5, 0xfd, 0x3a, 0x1a, 0x07,
    0x41, 0x48, 0xbb, 0x35, 0xd3, 0xb4, 0xe4, 0xcb, 0x1c, 0x0a, 0xd9, 0xbd, 0xe4, 0x19, 0xca, 0xcb, 0x47,
    0xba, 0x09, 0x69, 0x96, 0x46, 0x15, 0x0f, 0x9f, 0xc0, 0x00, 0xf3, 0xf8, 0x0e, 0x12,
];

const CURVE_P256: u16 = 0x0003;
const CURVE_P384: u16 = 0x0004;

/// All of a public area but its `unique` field.
pub(crate) struct Template {
    /// Names the key in errors.
    pub(crate) what: &'static str,
    kind: u16,
    name_alg: u16,
    attributes: u32,
    policy: &'static [u8],
    /// The 16-bit words of `TPMU_PUBLIC_PARMS`; an RSA exponent of 0 (65537) counts as two.
    parameters: &'static [u16],
}

/// Endorsement key, RSA-2048, profile L-1.
pub(crate) const EK_RSA_2048: Template = Template {
    what: "the RSA-2048 endorsement key",
    kind: alg::RSA,
    name_alg: alg::SHA256,
    attributes: attribute::ENDORSEMENT,
    policy: &POLICY_A_SHA256,
    parameters: &[alg::AES, 128, alg::CFB, alg::NULL, 2048, 0, 0],
};

/// Endorsement key, ECC P-256, profile L-2.
pub(crate) const EK_P256: Template = Template {
    what: "the P-256 endorsement key",
    kind: alg::ECC,
    name_alg: alg::SHA256,
    attributes: attribute::ENDORSEMENT,
    policy: &POLICY_A_SHA256,
    parameters: &[alg::AES, 128, alg::CFB, alg::NULL, CURVE_P256, alg::NULL],
};

/// Endorsement key, ECC P-384, profile H-3.
pub(crate) const EK_P384: Template = Template {
    what: "the P-384 endorsement key",
    kind: alg::ECC,
    name_alg: alg::SHA384,
    attributes: attribute::ENDORSEMENT | attribute::USER_WITH_AUTH,
    policy: &POLICY_B_SHA384,
    parameters: &[alg::AES, 256, alg::CFB, alg::NULL, CURVE_P384, alg::NULL],
};

/// Attestation key: restricted, so it signs only what the TPM itself says.
pub(crate) const ATTESTATION_KEY: Template = Template {
    what: "the attestation key",
    kind: alg::ECC,
    name_alg: alg::SHA256,
    attributes: attribute::OURS | attribute::RESTRICTED | attribute::SIGN,
    policy: &[],
    parameters: &[alg::NULL, alg::ECDSA, alg::SHA256, CURVE_P256, alg::NULL],
};

/// The node's own key: signs anything, hence also TLS handshakes.
pub(crate) const NODE_KEY: Template = Template {
    what: "the node key",
    kind: alg::ECC,
    name_alg: alg::SHA256,
    attributes: attribute::OURS | attribute::SIGN,
    policy: &[],
    parameters: &[alg::NULL, alg::ECDSA, alg::SHA256, CURVE_P256, alg::NULL],
};

/// Storage root key, the node key's parent (TCG TPM v2.0 Provisioning Guidance, ECC template).
#[cfg(feature = "device")]
pub(crate) const STORAGE_ROOT_KEY: Template = Template {
    what: "the storage root key",
    kind: alg::ECC,
    name_alg: alg::SHA256,
    attributes: attribute::OURS | attribute::RESTRICTED | attribute::DECRYPT,
    policy: &[],
    parameters: &[alg::AES, 128, alg::CFB, alg::NULL, CURVE_P256, alg::NULL],
};

impl Template {
    /// The public area's bytes up to `unique`.
    #[cfg(any(test, feature = "device"))]
    pub(crate) fn prefix(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&self.kind.to_be_bytes());
        out.extend_from_slice(&self.name_alg.to_be_bytes());
        out.extend_from_slice(&self.attributes.to_be_bytes());
        let policy_len = u16::try_from(self.policy.len()).expect("policies are digests");
        out.extend_from_slice(&policy_len.to_be_bytes());
        out.extend_from_slice(self.policy);
        out.extend(self.parameters.iter().flat_map(|word| word.to_be_bytes()));
        out
    }

    /// Whether the public area is of this type, name algorithm and curve or size, whatever its other fields
    /// are. Tells profiles apart; [`Self::unique`] then checks.
    pub(crate) fn is_kind_of(&self, public: &[u8]) -> bool {
        public.starts_with(&[self.kind.to_be_bytes(), self.name_alg.to_be_bytes()].concat())
    }

    /// Checks every field before `unique`, and returns a reader that stands at `unique`.
    pub(crate) fn unique<'a>(&self, public: &'a [u8]) -> Result<Reader<'a>, StructureError> {
        let mut reader = Reader::new(public, self.what);
        let kind = reader.u16("type")?;
        reader.expect("type", kind, self.kind)?;
        let name_alg = reader.u16("nameAlg")?;
        reader.expect("nameAlg", name_alg, self.name_alg)?;
        let attributes = reader.u32("objectAttributes")?;
        reader.expect("objectAttributes", attributes, self.attributes)?;
        let policy_len = reader.u16("authPolicy")?;
        reader.expect("authPolicy", policy_len, self.policy.len() as u64)?;
        reader.expect_bytes("authPolicy", self.policy)?;
        let parameters: Vec<u8> = self.parameters.iter().flat_map(|word| word.to_be_bytes()).collect();
        reader.expect_bytes("parameters", &parameters)?;
        Ok(reader)
    }
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256, Sha384};

    use super::*;

    #[test]
    fn attribute_words_are_those_of_the_profiles() {
        assert_eq!(EK_RSA_2048.attributes, 0x0003_00b2);
        assert_eq!(EK_P256.attributes, 0x0003_00b2);
        assert_eq!(EK_P384.attributes, 0x0003_00f2);
        assert_eq!(ATTESTATION_KEY.attributes, 0x0005_0472);
        assert_eq!(NODE_KEY.attributes, 0x0004_0472);
    }

    /// Part 3, 23.4 (`PolicySecret`) and 23.6 (`PolicyOR`), computed from the handle up.
    #[test]
    fn policies_are_what_the_commands_compute() {
        const ENDORSEMENT: [u8; 4] = [0x40, 0x00, 0x00, 0x0b];
        const POLICY_SECRET: [u8; 4] = [0, 0, 0x01, 0x51];
        const POLICY_OR: [u8; 4] = [0, 0, 0x01, 0x71];
        let first = Sha256::digest([&[0; 32][..], &POLICY_SECRET, &ENDORSEMENT].concat());
        assert_eq!(Sha256::digest(first).as_slice(), POLICY_A_SHA256);
        let first = Sha384::digest([&[0; 48][..], &POLICY_SECRET, &ENDORSEMENT].concat());
        assert_eq!(Sha384::digest(first).as_slice(), POLICY_A_SHA384);
        let or = Sha384::digest([&[0; 48][..], &POLICY_OR, &POLICY_A_SHA384, &POLICY_C_SHA384].concat());
        assert_eq!(or.as_slice(), POLICY_B_SHA384);
    }
}
