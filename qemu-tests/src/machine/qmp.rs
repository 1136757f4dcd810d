//! QEMU's monitor protocol: one command at a time, over a Unix socket.

use std::{
    io::{BufRead, BufReader, ErrorKind, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::wait;

/// How long QEMU may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// A connection to QEMU's monitor.
#[derive(Debug)]
pub struct Qmp {
    reader: BufReader<UnixStream>,
    line: Vec<u8>,
}

/// What the guest's CPUs are doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunStatus {
    /// Running.
    Running,
    /// Powered down by the guest.
    Shutdown,
    /// Anything else, in QEMU's word.
    Other(String),
}

impl Qmp {
    /// Connects as soon as the socket is there.
    pub(super) fn connect(socket: &Path, limit: Duration) -> Result<Self> {
        let stream = wait::until("QEMU's monitor", limit, || match UnixStream::connect(socket) {
            Ok(stream) => Ok(Some(stream)),
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => Ok(None),
            Err(e) => Err(e).context("connecting to QEMU's monitor"),
        })?;
        Self::over(stream)
    }

    fn over(stream: UnixStream) -> Result<Self> {
        stream.set_read_timeout(Some(ANSWER_LIMIT)).context("setting the monitor's timeout")?;
        let mut qmp = Self { reader: BufReader::new(stream), line: Vec::new() };
        let greeting = qmp.read()?;
        if greeting.get("QMP").is_none() {
            bail!("the monitor greets with {greeting}");
        }
        qmp.execute("qmp_capabilities")?;
        Ok(qmp)
    }

    /// Executes a command without arguments and returns its answer.
    pub fn execute(&mut self, command: &str) -> Result<Value> {
        let request = json!({ "execute": command });
        writeln!(self.reader.get_mut(), "{request}").with_context(|| format!("sending `{command}`"))?;
        loop {
            let mut message =
                self.read().with_context(|| format!("waiting for the answer to `{command}`"))?;
            if let Some(error) = message.get("error") {
                bail!("QEMU refuses `{command}`: {error}");
            }
            // What is neither answer nor error is an event.
            if let Some(answer) = message.get_mut("return") {
                return Ok(answer.take());
            }
        }
    }

    /// What the guest's CPUs are doing.
    pub fn status(&mut self) -> Result<RunStatus> {
        let answer = self.execute("query-status")?;
        Ok(match answer["status"].as_str() {
            Some("running") => RunStatus::Running,
            Some("shutdown") => RunStatus::Shutdown,
            other => RunStatus::Other(other.unwrap_or("no status").to_owned()),
        })
    }

    /// Bytes the guest has written to a drive since QEMU started.
    pub(super) fn bytes_written(&mut self, drive: &str) -> Result<u64> {
        let answer = self.execute("query-blockstats")?;
        let devices = answer.as_array().context("block statistics are no list")?;
        let device = devices.iter().find(|device| device["device"] == drive);
        device.and_then(|d| d["stats"]["wr_bytes"].as_u64()).with_context(|| format!("no drive `{drive}`"))
    }

    fn read(&mut self) -> Result<Value> {
        self.line.clear();
        if self.reader.read_until(b'\n', &mut self.line).context("reading from the monitor")? == 0 {
            bail!("QEMU has closed its monitor");
        }
        serde_json::from_slice(&self.line).context("reading the monitor's JSON")
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// A monitor that says these lines, whatever it hears.
    fn monitor(lines: &'static str) -> Result<Qmp> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        thread::spawn(move || {
            theirs.write_all(lines.as_bytes()).unwrap();
            // Stays open until the other end is closed.
            let _ = std::io::copy(&mut theirs, &mut std::io::sink());
        });
        Qmp::over(ours)
    }

    #[test]
    fn events_between_question_and_answer_are_skipped() {
        let mut qmp = monitor(
            "{\"QMP\": {\"capabilities\": []}}\n{\"return\": {}}\n{\"event\": \"RESET\"}\n\
             {\"return\": {\"status\": \"shutdown\", \"running\": false}}\n",
        )
        .unwrap();
        assert_eq!(qmp.status().unwrap(), RunStatus::Shutdown);
    }

    #[test]
    fn a_refusal_is_named() {
        let err = monitor("{\"QMP\": {}}\n{\"error\": {\"class\": \"GenericError\", \"desc\": \"no\"}}\n");
        assert!(err.unwrap_err().to_string().starts_with("QEMU refuses `qmp_capabilities`"));
    }

    #[test]
    fn written_bytes_are_those_of_the_drive() {
        let mut qmp = monitor(
            "{\"QMP\": {}}\n{\"return\": {}}\n{\"return\": [{\"device\": \"pflash0\", \"stats\": {\"wr_bytes\": 7}}, \
             {\"device\": \"disk0\", \"stats\": {\"wr_bytes\": 42}}]}\n",
        )
        .unwrap();
        assert_eq!(qmp.bytes_written("disk0").unwrap(), 42);
    }
}
