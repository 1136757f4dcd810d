//! Everything that crosses a wire or a disk between Ironwright's programs: protobuf messages, ids, boot
//! parameters, signed envelopes, and the JSON records of control's API and store.
//!
//! No I/O and no clock in here. Enums have an unknown variant, because old ramdisks and agents keep working.

pub mod api;
pub mod boot_params;
pub mod envelope;
pub mod ids;
pub mod kinds;

/// The protobuf messages and gRPC stubs of `proto/ironwright.proto`.
#[allow(missing_docs, clippy::pedantic)]
pub mod wire {
    tonic::include_proto!("ironwright.v1");
}

pub use prost::Message;
