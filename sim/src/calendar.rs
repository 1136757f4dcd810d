//! Simulated time: what happens next.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    fmt,
    ops::{Add, Sub},
    time::Duration,
};

/// A moment, in microseconds from the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct At(pub u64);

impl At {
    /// So many seconds from the start.
    pub const fn seconds(seconds: u64) -> Self {
        Self(seconds * 1_000_000)
    }

    /// Milliseconds from the start, for clocks.
    pub(crate) fn millis(self) -> i64 {
        i64::try_from(self.0 / 1000).unwrap_or(i64::MAX)
    }
}

impl Add<Duration> for At {
    type Output = Self;

    /// Rounded up: a deadline that is said to be over is over.
    fn add(self, after: Duration) -> Self {
        Self(self.0 + u64::try_from(after.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX))
    }
}

impl Sub for At {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// Seconds with six digits.
impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

/// Events by time; those of the same moment in the order in which they were entered.
#[derive(Debug)]
pub(crate) struct Calendar<E> {
    now: At,
    entered: u64,
    order: BinaryHeap<Reverse<(At, u64)>>,
    events: BTreeMap<u64, E>,
}

impl<E> Calendar<E> {
    pub(crate) fn new() -> Self {
        Self { now: At::default(), entered: 0, order: BinaryHeap::new(), events: BTreeMap::new() }
    }

    pub(crate) const fn now(&self) -> At {
        self.now
    }

    /// Enters an event; one for the past happens now.
    pub(crate) fn enter(&mut self, at: At, event: E) {
        let number = self.entered;
        self.entered += 1;
        self.order.push(Reverse((at.max(self.now), number)));
        self.events.insert(number, event);
    }

    /// Enters an event that happens `after` from now.
    pub(crate) fn enter_after(&mut self, after: Duration, event: E) {
        self.enter(self.now + after, event);
    }

    /// Goes on to the next event, unless it is after `end`.
    pub(crate) fn next(&mut self, end: At) -> Option<E> {
        let Reverse((at, number)) = *self.order.peek()?;
        if at > end {
            return None;
        }
        self.order.pop();
        self.now = at;
        self.events.remove(&number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_by_entry() {
        let mut calendar = Calendar::new();
        for (at, event) in [(5, "c"), (1, "a"), (5, "d"), (3, "b"), (9, "late")] {
            calendar.enter(At::seconds(at), event);
        }
        let mut seen = Vec::new();
        while let Some(event) = calendar.next(At::seconds(8)) {
            seen.push(event);
        }
        assert_eq!((seen, calendar.now()), (vec!["a", "b", "c", "d"], At::seconds(5)));
        calendar.enter(At::seconds(2), "past");
        assert_eq!(calendar.next(At::seconds(8)), Some("past"));
        assert_eq!(calendar.now(), At::seconds(5), "time does not go back");
    }
}
