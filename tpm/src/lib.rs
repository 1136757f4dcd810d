//! TPM 2.0 attestation: how a machine proves which TPM it has, and that a key lives in it.
//!
//! * [`join`]: the formulas that both sides of a join compute.
//! * [`verify`]: what control checks. Pure Rust, no TPM and no clock; time is always a parameter.
//! * `device` (feature `device`): the machine's half, through the distribution's libtss2.
//!
//! Standards: TCG TPM 2.0 Library Specification, parts 1 to 3; TCG EK Credential Profile for TPM Family 2.0;
//! TCG PC Client Platform Firmware Profile (event log).

pub mod join;
pub mod verify;

#[cfg(feature = "device")]
pub mod device;

mod structures;
mod templates;
#[cfg(test)]
mod testing;

pub use structures::{Clock, StructureError};
