//! Control as others see it: real sockets, real TLS, real files.

mod agent;
mod auth;
mod client;
mod deploy;
mod durability;
mod gateway;
mod images;
mod init;
mod join;
mod resources;
mod rig;
// The software TPMs of the TPM crate's own tests.
#[allow(dead_code)]
#[path = "../../../tpm/tests/tpm/swtpm.rs"]
mod swtpm;
mod tpm;
mod web;
