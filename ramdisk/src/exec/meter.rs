//! The console's progress lines: one every few seconds, however often there is news.

use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_secs(5);
const MIB: u64 = 1 << 20;

/// Decides when to say how far a transfer is.
#[derive(Debug)]
pub(super) struct Meter {
    began: Instant,
    next: Instant,
}

impl Meter {
    pub(super) fn new(now: Instant) -> Self {
        Self { began: now, next: now + EVERY }
    }

    /// A line to say now, or none.
    pub(super) fn line(&mut self, done: u64, total: u64, now: Instant) -> Option<String> {
        if now < self.next {
            return None;
        }
        self.next = now + EVERY;
        let seconds = now.saturating_duration_since(self.began).as_secs().max(1);
        let percent = done.saturating_mul(100).checked_div(total).unwrap_or(0);
        let (done, total, speed) = (done / MIB, total / MIB, done / seconds / MIB);
        Some(format!("{percent} % ({done} of {total} MiB, {speed} MiB/s)"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_every_five_seconds() {
        let start = Instant::now();
        let mut meter = Meter::new(start);
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        assert_eq!(meter.line(50 * MIB, 400 * MIB, at(4)), None);
        assert_eq!(meter.line(100 * MIB, 400 * MIB, at(5)).unwrap(), "25 % (100 of 400 MiB, 20 MiB/s)");
        assert_eq!(meter.line(110 * MIB, 400 * MIB, at(9)), None);
        assert_eq!(meter.line(200 * MIB, 400 * MIB, at(10)).unwrap(), "50 % (200 of 400 MiB, 20 MiB/s)");
        assert!(meter.line(1, 0, at(20)).unwrap().starts_with("0 %"));
    }
}
