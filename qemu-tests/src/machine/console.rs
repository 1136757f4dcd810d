//! A machine's serial console.

use std::{
    fs::File,
    io::{Read, Write},
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

/// More than this on one console is a machine gone mad; what comes after it is only in the log file.
const MAX_BYTES: usize = 16 << 20;
/// How many lines an error repeats.
const ERROR_LINES: usize = 25;

/// Everything the machine has said, over all its power cycles; also in a log file. Waiting consumes: what
/// one [`Console::wait_for`] has found, the next does not find again.
#[derive(Debug)]
pub struct Console {
    shared: Arc<Shared>,
    log: PathBuf,
    position: usize,
}

#[derive(Debug, Default)]
struct Shared {
    text: Mutex<Vec<u8>>,
    grown: Condvar,
}

impl Shared {
    fn text(&self) -> MutexGuard<'_, Vec<u8>> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Console {
    /// A console that keeps its log in a new file.
    pub fn new(log: &Path) -> Result<Self> {
        File::create_new(log).with_context(|| format!("making {}", log.display()))?;
        Ok(Self { shared: Arc::default(), log: log.to_owned(), position: 0 })
    }

    /// Follows a stream to its end, in a thread.
    pub(super) fn follow(&self, mut stream: impl Read + Send + 'static) {
        let shared = Arc::clone(&self.shared);
        let log = self.log.clone();
        thread::spawn(move || {
            let mut log = File::options().append(true).open(log).ok();
            let mut chunk = [0; 4096];
            while let Ok(n @ 1..) = stream.read(&mut chunk) {
                if let Some(log) = &mut log {
                    let _ = log.write_all(&chunk[..n]);
                }
                let mut text = shared.text();
                if text.len() < MAX_BYTES {
                    text.extend_from_slice(&chunk[..n]);
                }
                drop(text);
                shared.grown.notify_all();
            }
        });
    }

    /// Waits until the machine says `what`, from where the wait before this one ended.
    pub fn wait_for(&mut self, what: &str, limit: Duration) -> Result<()> {
        self.wait_for_any(&[what], limit).map(drop)
    }

    /// Waits until the machine says one of these, and returns the index of the one that came first.
    pub fn wait_for_any(&mut self, whats: &[&str], limit: Duration) -> Result<usize> {
        let end = Instant::now() + limit;
        let mut text = self.shared.text();
        loop {
            if let Some((index, after)) = first_of(&text[self.position..], whats) {
                self.position += after;
                return Ok(index);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let last = last_lines(&text, ERROR_LINES);
                bail!(
                    "waited {} s for the console to say {whats:?}; its last lines:\n{last}",
                    limit.as_secs()
                );
            }
            text = self.shared.grown.wait_timeout(text, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Forgets what was said until now; the next wait looks only at what comes.
    pub fn skip_to_end(&mut self) {
        self.position = self.shared.text().len();
    }

    /// Whether the machine ever said it.
    pub fn ever_said(&self, what: &str) -> bool {
        first_of(&self.shared.text(), &[what]).is_some()
    }

    /// The lines up to the last one that contains `what`, without control characters.
    pub fn lines_until(&self, what: &str, count: usize) -> String {
        let text = self.shared.text();
        let end = text.windows(what.len().max(1)).rposition(|window| window == what.as_bytes());
        last_lines(&text[..end.map_or(text.len(), |at| at + what.len())], count)
    }
}

/// Which of `whats` comes first, and where it ends.
fn first_of(text: &[u8], whats: &[&str]) -> Option<(usize, usize)> {
    let find = |what: &str| text.windows(what.len().max(1)).position(|window| window == what.as_bytes());
    let hits = whats.iter().enumerate().filter_map(|(index, what)| Some((find(what)?, index, what.len())));
    hits.min().map(|(at, index, len)| (index, at + len))
}

fn last_lines(text: &[u8], count: usize) -> String {
    let text = String::from_utf8_lossy(text);
    let lines: Vec<_> = text.lines().map(printable).filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

/// A line without control characters and without the escape sequences that move the cursor (ECMA-48 CSI).
fn printable(line: &str) -> String {
    let mut out = String::new();
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            if chars.next() == Some('[') {
                chars.by_ref().find(|c| ('@'..='~').contains(c));
            }
        } else if !c.is_control() {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    fn console(text: &'static str) -> (Console, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let console = Console::new(&dir.path().join("console.log")).unwrap();
        console.follow(text.as_bytes());
        (console, dir)
    }

    #[test]
    fn waiting_consumes() {
        let (mut console, dir) = console("login: a\r\nlogin: b\r\n");
        console.wait_for("login:", SOON).unwrap();
        console.wait_for("login: b", SOON).unwrap();
        let err = console.wait_for("login", Duration::ZERO).unwrap_err().to_string();
        assert!(err.ends_with("login: a\nlogin: b"), "{err}");
        assert!(console.ever_said("login: a"));
        assert_eq!(
            std::fs::read_to_string(dir.path().join("console.log")).unwrap(),
            "login: a\r\nlogin: b\r\n"
        );
    }

    #[test]
    fn the_first_of_several_counts() {
        let (mut console, _dir) = console("one two");
        assert_eq!(console.wait_for_any(&["two", "one"], SOON).unwrap(), 1);
        console.wait_for("two", SOON).unwrap();
    }

    #[test]
    fn lines_are_shown_up_to_a_prompt() {
        let (mut console, _dir) = console("one\r\ntwo\r\nlogin: \r\nthree\r\n");
        console.wait_for("three", SOON).unwrap();
        assert_eq!(console.lines_until("login:", 2), "two\nlogin:");
    }

    #[test]
    fn escape_sequences_are_not_shown() {
        assert_eq!(last_lines(b"a\r\n\x1b[2J\x1b[01;01H\r\n[\x1b[0;32m OK \x1b[0m] b\r\n", 2), "a\n[ OK ] b");
    }
}
