//! The tokio shell around `ironwright-agent-core`: it performs the effects that the core decides on.
//!
//! An agent joins ([`join`]) to get an [`Identity`], then keeps a session with control's gateway ([`link`])
//! that hands commands to [`executor::Executor`]s. All state of a session is owned by one task.

mod channel;
pub mod clock;
pub mod contain;
pub mod events;
pub mod executor;
pub mod identity;
pub mod join;
mod journal;
pub mod keys;
pub mod link;
pub mod node;
pub mod power;
pub mod tls;

pub use channel::ConnectError;
pub use events::EventSink;
pub use executor::{Ctx, Executor, Order, fail};
pub use identity::Identity;
pub use ironwright_proto::wire::CommandError;
pub use join::{JoinConfig, JoinError, KeySource};
pub use journal::JournalError;
pub use tokio_util::sync::CancellationToken;
