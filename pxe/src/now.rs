//! The time that decisions are given.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Both clocks, read at one moment: what is agreed with others is in Unix time, what only we count (the
/// site lease) is in monotonic time, which nobody can set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds since the Unix epoch, UTC.
    pub unix_ms: i64,
    /// Monotonic clock.
    pub mono: Instant,
}

impl Now {
    /// Reads both clocks. For the shells around the decisions only.
    pub fn read() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { unix_ms: i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX), mono: Instant::now() }
    }
}
