//! What a person in front of the machine reads: one line per fact, `ironwright: <stage>: <text>`.
//!
//! The newest lines are kept, so that control can be given the story of the boot once a session is open.

use std::{
    collections::VecDeque,
    fmt::Display,
    fs::OpenOptions,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::Mutex,
};

use nix::{libc, unistd};
use tokio::sync::mpsc;

/// Longest text of a line, in characters; outside text (an error of a peer) may be in it.
const MAX_TEXT: usize = 400;
/// Lines kept for control until there is a session.
const MAX_KEPT: usize = 200;
/// Lines on their way to control; more are dropped, the console has them all.
const QUEUE: usize = 64;

/// A line as it was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The part of the boot it tells of: `net`, `join`, …
    pub stage: &'static str,
    /// The fact.
    pub text: String,
}

struct Log {
    kept: VecDeque<Line>,
    listener: Option<mpsc::Sender<Line>>,
}

static LOG: Mutex<Log> = Mutex::new(Log { kept: VecDeque::new(), listener: None });

/// Says one line. Control characters are replaced, so that nobody's text drives the terminal.
pub fn say(stage: &'static str, text: impl Display) {
    let line = Line { stage, text: printable(&text.to_string()) };
    // A console that cannot be written is no reason to stop, and nobody is left to be told.
    let _ = writeln!(io::stdout().lock(), "ironwright: {stage}: {}", line.text);
    let mut log = LOG.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(listener) = &log.listener {
        let _ = listener.try_send(line);
        return;
    }
    if log.kept.len() == MAX_KEPT {
        log.kept.pop_front();
    }
    log.kept.push_back(line);
}

/// Hands over what was said so far, and all later lines by the channel.
pub fn listen() -> (Vec<Line>, mpsc::Receiver<Line>) {
    let (tx, rx) = mpsc::channel(QUEUE);
    let mut log = LOG.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    log.listener = Some(tx);
    (log.kept.drain(..).collect(), rx)
}

/// An error and all its sources, in one line.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let source_text = source.to_string();
        if !text.ends_with(&source_text) {
            text.push_str(": ");
            text.push_str(&source_text);
        }
        next = source.source();
    }
    text
}

/// Makes `/dev/console` this process's input and output, whatever the kernel gave it.
pub fn attach(device: &Path) -> io::Result<()> {
    let console = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOCTTY).open(device)?;
    unistd::dup2_stdin(&console)?;
    unistd::dup2_stdout(&console)?;
    unistd::dup2_stderr(&console)?;
    Ok(())
}

/// Which kernel messages reach the console besides ours: errors, or with `debug` all.
pub fn set_kernel_level(debug: bool) -> io::Result<()> {
    std::fs::write("/proc/sys/kernel/printk", if debug { "8" } else { "4" })
}

/// Log lines of the crates we use: warnings, or with `debug` our own debug lines too.
pub fn log_to_console(debug: bool) {
    let filter = if debug { "info,ironwright=debug,ironwright_agent=debug" } else { "warn" };
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::new(filter))
        .with_ansi(false)
        .without_time()
        .with_writer(io::stdout)
        .finish();
    // Fails only if one is set already, which then does as well.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

fn printable(text: &str) -> String {
    text.chars().take(MAX_TEXT).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outside_text_cannot_drive_the_terminal() {
        assert_eq!(printable("a\x1b[2Jb\nc"), "a [2Jb c");
        assert_eq!(printable(&"x".repeat(5000)).len(), MAX_TEXT);
    }

    #[test]
    fn a_chain_names_every_source_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("opening the door")]
        struct Outer(#[source] io::Error);
        let error = Outer(io::Error::other("no key"));
        assert_eq!(chain(&error), "opening the door: no key");
    }
}
