//! Rate limits in memory: so many per minute and key.

use std::collections::HashMap;

const WINDOW_MS: i64 = 60_000;
/// Keys counted one by one in a window; all further ones share one count.
const MAX_KEYS: usize = 4096;

/// Counts per key in windows of one minute.
#[derive(Debug)]
pub(crate) struct PerMinute {
    limit: u32,
    window_start_ms: i64,
    counts: HashMap<String, u32>,
    others: u32,
}

impl PerMinute {
    pub(crate) fn new(limit: u32) -> Self {
        Self { limit, window_start_ms: i64::MIN, counts: HashMap::new(), others: 0 }
    }

    /// Counts one more of `key`; whether it is within the limit.
    pub(crate) fn admit(&mut self, key: &str, now_ms: i64) -> bool {
        let window = now_ms - now_ms.rem_euclid(WINDOW_MS);
        if window != self.window_start_ms {
            self.window_start_ms = window;
            self.counts.clear();
            self.others = 0;
        }
        let count = if self.counts.len() < MAX_KEYS || self.counts.contains_key(key) {
            self.counts.entry(key.to_owned()).or_default()
        } else {
            &mut self.others
        };
        *count = count.saturating_add(1);
        *count <= self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_its_own_count_and_a_new_minute_starts_anew() {
        let mut limit = PerMinute::new(2);
        assert_eq!([0, 1, 2].map(|at| limit.admit("a", at)), [true, true, false]);
        assert!(limit.admit("b", 3));
        assert!(limit.admit("a", 60_000));
    }

    #[test]
    fn many_keys_cost_bounded_memory_and_share_a_count() {
        let mut limit = PerMinute::new(3);
        for n in 0..MAX_KEYS {
            assert!(limit.admit(&n.to_string(), 0));
        }
        assert_eq!(["x", "y", "z", "w"].map(|key| limit.admit(key, 0)), [true, true, true, false]);
        assert!(limit.admit("7", 0), "known keys are not crowded out");
        assert_eq!(limit.counts.len(), MAX_KEYS);
    }
}
