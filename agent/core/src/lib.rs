//! The agent's decisions, without a clock, a socket or a file.
//!
//! [`Agent::step`] takes one [`Input`] and the time, and gives the [`Effect`]s that follow, in order. The
//! journal is part of the agent's state; each change of it is also an `Effect::Persist` that the shell makes
//! durable before it performs anything later. So whatever a crash leaves behind, [`Journal::apply`] over the
//! durable records gives a state from which `Input::Start` goes on.

mod agent;
mod backoff;
mod events;
mod journal;
mod order;
mod session;
mod spec;
mod work;

pub use agent::{Agent, Config, Effect, Input, Notice};
pub use events::{DROPPED, MAX_JSON};
pub use journal::{
    CommandEntry, Journal, KEEP_DONE, MAX_COMMANDS, MAX_EVENT_BYTES, MAX_EVENTS, Record, Stage,
};
pub use order::{Order, fail};
pub use session::{TIME_TOLERANCE_MS, WELCOME_TIMEOUT};
pub use spec::{MAX_BODY, MAX_SECTIONS, PASS_EVERY};
pub use work::MAX_RESULT;

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
