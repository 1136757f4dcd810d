//! Time that control has lived through: what silence is measured in.
//!
//! A clock that is set forward, or a process that was stopped with its agents' frames waiting unread, must not make a
//! whole fleet look silent. So time of day counts only as far as it moved evenly: between two ticks, never back, and
//! by two seconds at most.

/// What one tick can add, in ms. Ticks come every second.
pub(crate) const MAX_STEP_MS: i64 = 2_000;

/// A clock in milliseconds from any start.
#[derive(Debug, Default)]
pub(crate) struct Lived {
    lived_ms: i64,
    last_tick_ms: Option<i64>,
}

impl Lived {
    /// The time at `now_ms` of the day.
    pub(crate) fn at(&mut self, now_ms: i64) -> i64 {
        let last = *self.last_tick_ms.get_or_insert(now_ms);
        self.lived_ms + now_ms.saturating_sub(last).clamp(0, MAX_STEP_MS)
    }

    /// Goes on; gives the time.
    pub(crate) fn tick(&mut self, now_ms: i64) -> i64 {
        self.lived_ms = self.at(now_ms);
        self.last_tick_ms = Some(now_ms);
        self.lived_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_time_passes_as_it_is() {
        let mut lived = Lived::default();
        assert_eq!([5_000, 6_000, 7_500].map(|now| lived.tick(now)), [0, 1_000, 2_500]);
        assert_eq!(lived.at(7_600), 2_600);
        assert_eq!(lived.tick(8_000), 3_000);
    }

    #[test]
    fn jumps_count_as_one_tick_at_most() {
        let mut lived = Lived::default();
        assert_eq!(
            [0, 1_000_000, 1_001_000, 0, 1_000].map(|now| lived.tick(now)),
            [0, 2_000, 3_000, 3_000, 4_000]
        );
        assert_eq!(Lived::default().at(i64::MIN), 0);
    }
}
