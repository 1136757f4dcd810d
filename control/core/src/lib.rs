//! Control's decisions over a [`store::Store`]: join policy, sessions, commands, runs, audit.
//!
//! Pure: no tokio, no sockets, no clock. Time and randomness are parameters. Everything that must survive is in the
//! store before an effect of it leaves; the shell (crate `ironwright-control`) only carries bytes.

pub mod admin;
pub mod control;
pub mod error;
pub mod images;
pub mod join;
pub mod output;
pub mod session;
pub mod store;

pub use control::{Control, Settings};
pub use error::Error;
pub use output::{Output, SessionRef};
