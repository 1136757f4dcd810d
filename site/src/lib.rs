//! The role `site`: a place's network boot, on behalf of control.
//!
//! ```text
//!  control ◀── session (ironwright-agent) ──▶ executors ──▶ keeper (boot table, lease, discoveries)
//!     ▲                                          │              │
//!     └──── GET /blobs (mTLS) ◀── fetch ◀────────┘              ▼
//!                                  │        DHCP, TFTP, boot HTTP (ironwright-pxe) ◀── machines
//!                                  └─▶ cache ─────▶
//! ```
//!
//! Promises: without the lease nothing boots our ramdisk (503), a machine that nobody enrolled gets no script
//! (404) but a discovery event, a token is handed out once, and machines that belong on their disk are
//! left to it even while control is away.

mod authority;
mod cache;
mod config;
mod discovery;
mod durable;
mod executors;
mod fetch;
mod keeper;
mod lease;
mod run;
mod script;
mod serve;
mod table;
mod upstream;

pub use authority::{Authority, Connection, Report, Signer, Stream, Upstream};
pub use config::{Config, ConfigError, Dhcp};
pub use run::run;
pub use serve::{Addresses, Site};
