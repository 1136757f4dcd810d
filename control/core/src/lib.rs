//! Control's decisions over a [`store::Store`]: join policy, sessions, commands, runs, audit.
//!
//! Pure: no tokio, no sockets, no clock. Time and randomness are parameters. Everything that must survive is in the
//! store before an effect of it leaves; the shell (crate `ironwright-control`) only carries bytes.

pub mod admin;
pub mod audit;
mod commands;
pub mod control;
pub mod error;
mod gateways;
pub mod images;
mod inventory;
pub mod join;
mod limits;
mod machines;
mod nodes;
pub mod output;
pub mod runs;
mod secret;
pub mod seed;
pub mod session;
mod sites;
mod smbios;
mod specs;
pub mod store;
mod table;
pub mod testing;
mod tx;

pub use commands::NodeOrder;
pub use control::{Control, Settings, SetupError};
pub use error::Error;
pub use output::{Change, Output, SessionRef};
pub use specs::{SectionReport, SpecStatus};
