//! When to try again: full jitter, so that a fleet that lost its gateway does not come back in step.

use std::time::Duration;

use rand::{Rng, rngs::StdRng};

const FIRST: Duration = Duration::from_secs(1);
const CAP: Duration = Duration::from_secs(60);

/// Counts failed attempts: the n-th wait is drawn from 0 to min(60 s, 1 s × 2^n).
#[derive(Debug)]
pub(crate) struct Backoff {
    attempts: u32,
    rng: StdRng,
}

impl Backoff {
    pub(crate) fn new(rng: StdRng) -> Self {
        Self { attempts: 0, rng }
    }

    /// The wait before the next attempt.
    pub(crate) fn next(&mut self) -> Duration {
        let window = FIRST.saturating_mul(1 << self.attempts.min(6)).min(CAP);
        self.attempts = self.attempts.saturating_add(1);
        self.rng.gen_range(Duration::ZERO..=window)
    }

    /// The last attempt lasted.
    pub(crate) fn reset(&mut self) {
        self.attempts = 0;
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn windows_double_from_one_second_to_sixty() {
        for seed in 0..50 {
            let mut backoff = Backoff::new(StdRng::seed_from_u64(seed));
            for window in [1, 2, 4, 8, 16, 32, 60, 60, 60] {
                assert!(backoff.next() <= Duration::from_secs(window));
            }
            backoff.reset();
            assert!(backoff.next() <= Duration::from_secs(1));
        }
    }

    #[test]
    fn waits_use_the_whole_window() {
        let mut backoff = Backoff::new(StdRng::seed_from_u64(7));
        backoff.attempts = 10;
        let waits: Vec<_> = (0..200).map(|_| backoff.next().as_secs()).collect();
        assert!(waits.iter().any(|w| *w < 10) && waits.iter().any(|w| *w > 50), "{waits:?}");
    }
}
