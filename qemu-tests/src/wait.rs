//! Waiting for conditions.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};

/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(100);

/// Looks at a condition until it holds, and returns what it gave; fails after `limit`, naming `what`.
pub fn until<T>(what: &str, limit: Duration, mut probe: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let start = Instant::now();
    loop {
        if let Some(value) = probe()? {
            return Ok(value);
        }
        if start.elapsed() >= limit {
            bail!("waited {} s for {what}", limit.as_secs());
        }
        thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_that_never_holds_is_named() {
        let err = until::<()>("the moon", Duration::ZERO, || Ok(None)).unwrap_err();
        assert_eq!(err.to_string(), "waited 0 s for the moon");
    }

    #[test]
    fn the_third_look_is_enough() {
        let mut looks = 0;
        let value = until("three", Duration::from_secs(5), || {
            looks += 1;
            Ok((looks == 3).then_some(looks))
        });
        assert_eq!(value.unwrap(), 3);
    }
}
