//! Test helpers: a TPM in software, and certificates with any quirk.

pub(crate) mod der;
pub(crate) mod ek_cert;
pub(crate) mod soft_tpm;
