//! The control process: the embedded store, the certificate authority, the HTTP API, and the agents' gateway.
//!
//! It carries bytes and keeps promises about sockets and disks; what is decided, `ironwright-control-core` decides.
//!
//! ```text
//!                     ┌───────────────── driver (one thread) ─────────────────┐
//!  api ─ join ───────▶│ Control<RedbStore>: apply, one fsync, then let out    │
//!  gateway ─ sessions▶│                                                       │──▶ frames to sessions
//!  sources (images) ─▶└───────────────────────────────────────────────────────┘
//! ```

mod api;
mod ca;
mod clock;
mod config;
mod driver;
mod files;
mod gateway;
mod init;
mod join;
mod net;
mod serve;
mod sources;
mod store;
pub mod testing;

pub use self::{
    ca::CaError,
    config::{Config, ConfigError},
    init::{InitError, InitOptions, Initialised, init},
    net::TlsError,
    serve::{ServeError, Server, serve},
};
