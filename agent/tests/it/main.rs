//! The agent against a control plane of the test: real TLS and gRPC on loopback, every answer scripted.

mod authority;
mod clock;
mod control;
mod join;
mod restart;
mod rig;
mod session;
mod tpm;
