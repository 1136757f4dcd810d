//! The agent's decisions.

mod order;

pub use order::{Order, fail};

/// An event as a part of the agent raises it; the journal gives it a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RaisedEvent {
    /// `boot.fetched`, `log`, …
    pub kind: String,
    /// The particulars: a JSON object.
    pub json: String,
    /// When it was raised, in milliseconds since the Unix epoch, by this machine's clock.
    pub unix_ms: i64,
}
