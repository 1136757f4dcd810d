//! Running tests and adding up their results.

use std::{
    fmt, thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};

use crate::{cargo, setup};

/// Unit and integration tests, then the quick end-to-end tests. The last line is the sum.
pub(crate) fn test() -> Result<()> {
    let start = Instant::now();
    setup::run()?;
    cargo::build_programs()?;
    let mut sum = Sum::default();
    // The end-to-end tests are a part of the rig's package, hence the two steps.
    sum.run(&[
        "test",
        "--release",
        "--workspace",
        "--exclude",
        "ironwright-qemu-tests",
        "--features",
        "ironwright-tpm/device",
        "--no-fail-fast",
    ])?;
    sum.run(&["test", "--release", "--package", "ironwright-qemu-tests", "--lib"])?;
    sum.run(&e2e_words(Some("quick_"), &e2e_threads()))?;
    sum.finish("test", start.elapsed())
}

/// All end-to-end tests, or those whose name contains the filter.
pub(crate) fn e2e(filter: Option<&str>) -> Result<()> {
    let start = Instant::now();
    setup::run()?;
    cargo::build_programs()?;
    let mut sum = Sum::default();
    sum.run(&e2e_words(filter, &e2e_threads()))?;
    sum.finish("e2e", start.elapsed())
}

fn e2e_words<'a>(filter: Option<&'a str>, threads: &'a str) -> Vec<&'a str> {
    let mut words = vec!["test", "--release", "--package", "ironwright-qemu-tests", "--test", "e2e", "--"];
    words.extend(filter);
    words.extend(["--test-threads", threads]);
    words
}

/// Each test has an emulated machine with two CPUs that is idle about half of the time.
fn e2e_threads() -> String {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    (cpus / 2 + 1).to_string()
}

/// Results of several test programs.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sum {
    passed: u64,
    failed: u64,
    ignored: u64,
    /// Something failed, maybe before any test ran.
    broken: bool,
}

impl Sum {
    /// Runs `cargo test` and adds its results. The other tests are to run even where these fail.
    fn run(&mut self, words: &[&str]) -> Result<()> {
        let succeeded = cargo::run_with_lines(words, |line| self.add(line))?;
        self.broken |= !succeeded;
        Ok(())
    }

    /// Adds a line like `test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; …`.
    fn add(&mut self, line: &str) {
        let Some((_, counts)) = line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". "))
        else {
            return;
        };
        for count in counts.split("; ") {
            match count.split_once(' ').and_then(|(number, word)| Some((number.parse::<u64>().ok()?, word))) {
                Some((number, "passed")) => self.passed += number,
                Some((number, "failed")) => self.failed += number,
                Some((number, "ignored")) => self.ignored += number,
                _ => {}
            }
        }
    }

    fn finish(&self, name: &str, took: Duration) -> Result<()> {
        if self.broken || self.failed > 0 {
            bail!("{name}: FAILED, {self} in {} s", took.as_secs());
        }
        println!("{name}: ok, {self} in {} s", took.as_secs());
        Ok(())
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} ignored", self.passed, self.failed, self.ignored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_added_up() {
        let mut sum = Sum::default();
        for line in [
            "running 3 tests",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.10s",
            "test result: FAILED. 40 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 3.00s",
            "test result: what",
        ] {
            sum.add(line);
        }
        assert_eq!(sum, Sum { passed: 43, failed: 2, ignored: 1, broken: false });
        assert!(sum.finish("test", Duration::ZERO).is_err());
    }

    #[test]
    fn a_build_that_breaks_is_a_failure() {
        assert!(Sum { broken: true, ..Sum::default() }.finish("test", Duration::ZERO).is_err());
    }
}
