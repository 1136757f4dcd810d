//! Joining until it works: control may be away for a while, and a refusal may be an operator's to clear.

use std::time::Duration;

use rand::Rng;
use tokio_util::sync::CancellationToken;

use super::{JoinConfig, JoinError};
use crate::identity::Identity;

const FIRST: Duration = Duration::from_secs(1);
const CAP: Duration = Duration::from_secs(60);
/// A refusal does not clear by itself: ask at least this far apart.
const REFUSED_FLOOR: Duration = Duration::from_secs(5);

/// How long to wait before the next attempt.
#[derive(Debug, Default)]
pub struct Retry {
    attempts: u32,
}

impl Retry {
    /// Full jitter over 1 s, 2 s, 4 s, … 60 s where control could not be reached; over 5 s to 60 s from
    /// the first time on where it refused.
    pub fn after(&mut self, failure: &JoinError, rng: &mut impl Rng) -> Duration {
        if failure.refusal().is_some() {
            return rng.gen_range(REFUSED_FLOOR..=CAP);
        }
        let window = FIRST.saturating_mul(1 << self.attempts.min(6)).min(CAP);
        self.attempts = self.attempts.saturating_add(1);
        rng.gen_range(Duration::ZERO..=window)
    }
}

/// Joins until it works; `None` on shutdown. `failed` hears of each failure and of the wait that follows.
pub async fn join_until(
    config: &JoinConfig,
    shutdown: &CancellationToken,
    mut failed: impl FnMut(&JoinError, Duration),
) -> Option<Identity> {
    let mut retry = Retry::default();
    loop {
        let attempt = shutdown.run_until_cancelled(Identity::join(config)).await?;
        let failure = match attempt {
            Ok(identity) => return Some(identity),
            Err(failure) => failure,
        };
        let wait = retry.after(&failure, &mut rand::thread_rng());
        failed(&failure, wait);
        shutdown.run_until_cancelled(tokio::time::sleep(wait)).await?;
    }
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::StdRng};

    use super::*;

    #[test]
    fn waits_grow_and_stay_within_their_windows() {
        let mut rng = StdRng::seed_from_u64(1);
        let mut retry = Retry::default();
        for window in [1, 2, 4, 8, 16, 32, 60, 60, 60] {
            let wait = retry.after(&JoinError::Interrupted, &mut rng);
            assert!(wait <= Duration::from_secs(window), "{wait:?} is longer than {window} s");
        }
    }

    #[test]
    fn a_refusal_is_never_retried_hot() {
        let mut rng = StdRng::seed_from_u64(2);
        let refused = JoinError::Refused { code: "unknown_machine".into() };
        for _ in 0..1000 {
            let wait = Retry::default().after(&refused, &mut rng);
            assert!((5..=60).contains(&wait.as_secs()), "{wait:?}");
        }
    }
}
