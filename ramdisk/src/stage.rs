//! Stages of the boot: each has a time limit, is tried again after a growing pause, and never fails silently.
//!
//! ```text
//!         ┌────── pause 1 s, 2 s, 4 s … 60 s ──────┐
//!         ▼                                        │ (attempts left)
//!      trying ── ok ──► done      failed or too slow ── none left, or no use ──► given up (caller reboots)
//! ```

use std::{fmt::Display, future::Future, time::Duration};

use tokio::time;

use crate::console::say;

/// First pause after a failure.
pub const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause between two attempts.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// How long and how often a stage is tried.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Attempts in all.
    pub attempts: u32,
    /// Time of one attempt.
    pub each: Duration,
}

/// How one attempt failed.
#[derive(Debug)]
pub enum Failure {
    /// Another attempt may help.
    Passing(String),
    /// The same again would fail the same.
    Lasting(String),
}

/// A stage that did not come to its end.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{stage}: {why}")]
pub struct GivenUp {
    /// Name of the stage.
    pub stage: &'static str,
    /// The last failure.
    pub why: String,
}

/// The pause after the `n`th failure, counted from 1.
pub fn pause(failures: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(LONGEST_PAUSE)
}

/// Runs a stage until it succeeds or is given up, saying every failure on the console.
pub async fn run<T, F, A>(stage: &'static str, limits: Limits, mut attempt: F) -> Result<T, GivenUp>
where
    F: FnMut() -> A,
    A: Future<Output = Result<T, Failure>>,
{
    let mut failures = 0;
    loop {
        let why = match time::timeout(limits.each, attempt()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(Failure::Lasting(why))) => return Err(GivenUp { stage, why }),
            Ok(Err(Failure::Passing(why))) => why,
            Err(_) => format!("not done within {} s", limits.each.as_secs()),
        };
        failures += 1;
        if failures >= limits.attempts {
            return Err(GivenUp { stage, why });
        }
        let pause = pause(failures);
        say(stage, again(&why, failures, limits.attempts, pause));
        time::sleep(pause).await;
    }
}

fn again(why: &dyn Display, failures: u32, attempts: u32, pause: Duration) -> String {
    format!("{why}; attempt {failures} of {attempts}, again in {} s", pause.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { attempts: 3, each: Duration::from_secs(10) };

    #[test]
    fn pauses_double_from_one_second_to_one_minute() {
        let seconds: Vec<u64> = (1..=8).map(|n| pause(n).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(pause(u32::MAX), LONGEST_PAUSE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_passing_failure_is_tried_again_until_it_works() {
        let mut calls = 0;
        let result = run("test", LIMITS, || {
            calls += 1;
            let n = calls;
            async move { if n < 3 { Err(Failure::Passing("not yet".into())) } else { Ok(n) } }
        })
        .await;
        assert_eq!(result, Ok(3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_hanging_attempt_counts_as_failed() {
        let began = time::Instant::now();
        let result = run("test", LIMITS, std::future::pending::<Result<(), Failure>>).await;
        assert_eq!(result, Err(GivenUp { stage: "test", why: "not done within 10 s".into() }));
        // Three attempts of 10 s and the pauses of 1 s and 2 s between them.
        assert_eq!(began.elapsed().as_secs(), 33);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lasting_failure_is_not_tried_again() {
        let mut calls = 0;
        let result: Result<(), _> = run("test", LIMITS, || {
            calls += 1;
            async { Err(Failure::Lasting("refused".into())) }
        })
        .await;
        assert!(result.is_err());
        assert_eq!(calls, 1);
    }
}
