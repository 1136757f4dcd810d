//! Whether the clock was set. Leases end by Unix time, which a file can hold over a restart, but clients
//! count seconds (RFC 2131 section 4.4.5): setting the clock must not end a lease that its client goes on using.

use crate::now::Now;

/// What is followed. Smaller differences are those between any two clocks that run.
const SMALLEST_STEP_MS: i64 = 1000;

/// The reading that later ones are compared with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Clock(Option<Now>);

impl Clock {
    /// By how many milliseconds Unix time was set forward since this was last said; 0 where it was not.
    pub(super) fn set_by(&mut self, now: Now) -> i64 {
        let from = *self.0.get_or_insert(now);
        let passed = now.mono.saturating_duration_since(from.mono).as_millis();
        let expected = from.unix_ms.saturating_add(i64::try_from(passed).unwrap_or(i64::MAX));
        let set_by = now.unix_ms.saturating_sub(expected);
        if set_by.saturating_abs() < SMALLEST_STEP_MS {
            return 0;
        }
        self.0 = Some(now);
        set_by
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn steps_are_told_once_and_passing_time_is_none() {
        let start = Instant::now();
        let at = |mono_ms, unix_ms| Now { unix_ms, mono: start + Duration::from_millis(mono_ms) };
        let mut clock = Clock::default();
        for (now, step) in [
            (at(0, 50_000), 0),
            (at(10_000, 60_000), 0),
            (at(20_000, 70_999), 0),
            (at(21_000, 72_000), 1000),
            (at(22_000, 73_000), 0),
            (at(23_000, 4_000), -70_000),
            (at(24_000, 5_000), 0),
            (at(25_000, 3_606_000), 3_600_000),
        ] {
            assert_eq!(clock.set_by(now), step, "{now:?}");
        }
    }

    #[test]
    fn any_time_is_followed() {
        let mono = Instant::now();
        let mut clock = Clock::default();
        let told = [0, i64::MIN, i64::MAX].map(|unix_ms| clock.set_by(Now { unix_ms, mono }));
        assert_eq!(told, [0, i64::MIN, i64::MAX]);
    }
}
