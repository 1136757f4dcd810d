//! Child processes that never outlive the rig.
//!
//! Every program is started through `setpriv --pdeathsig KILL`: the kernel kills it when the *thread*
//! that started it ends, however it ends. So a [`Process`] has to be started by a thread that lives as
//! long as the process is needed; in a test that is the test's own thread.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::Write,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::wait;

/// How much of a program's output an error repeats.
const ERROR_TAIL_BYTES: usize = 2000;

/// Where programs are; without root, `sbin` is often not searched.
pub(crate) const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A command that is killed together with the calling thread.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.env("PATH", SEARCH_PATH).args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// As [`command`], with the right to give files to any user: as root, or as root of a user namespace.
pub fn as_root(program: &str) -> Command {
    if nix::unistd::geteuid().is_root() {
        return command(program);
    }
    let mut command = command("unshare");
    command.args(["--map-root-user", "--map-auto", "--", program]);
    command
}

/// Runs a command to its end and returns its standard output; its failure is an error that tells its output.
pub fn run(command: &mut Command) -> Result<String> {
    run_with_input(command, &[])
}

/// As [`run`], with `input` on standard input. For secrets, which have no place in arguments.
pub fn run_with_input(command: &mut Command, input: &[u8]) -> Result<String> {
    let out = output(command, input)?;
    if !out.status.success() {
        bail!("{} failed ({}): {}", line(command), out.status, tail(&(out.stdout + &out.stderr)));
    }
    Ok(out.stdout)
}

/// How a program ended and what it said.
#[derive(Debug)]
pub struct Output {
    /// How it ended.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

/// Runs a command to its end, whatever its end is.
pub fn output(command: &mut Command, input: &[u8]) -> Result<Output> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {}", line(command)))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not read its input is no error.
        let _ = stdin.write_all(input);
    }
    let out = child.wait_with_output().with_context(|| format!("running {}", line(command)))?;
    Ok(Output {
        status: out.status,
        stdout: String::from_utf8_lossy(&out.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&out.stderr).into_owned(),
    })
}

/// The command line, for messages.
fn line(command: &Command) -> String {
    let words = command.get_args().map(|arg| arg.to_string_lossy());
    // What is in front of the last `--` only says where the program runs.
    let words: Vec<_> = words.collect();
    let program = words.iter().rposition(|word| word == "--").map_or(0, |at| at + 1);
    words[program..].join(" ")
}

/// The last lines of a text.
pub fn tail(text: &str) -> &str {
    let mut start = text.len().saturating_sub(ERROR_TAIL_BYTES);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    text[start..].trim()
}

/// A running program whose output goes to a log file. Killed when dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    log_start: u64,
}

impl Process {
    /// Starts a command; standard output and error are appended to `log`.
    pub fn start(name: &str, command: &mut Command, log: &Path) -> Result<Self> {
        let file = append(log)?;
        let log_start = file.metadata().with_context(|| format!("looking at {}", log.display()))?.len();
        let stderr = file.try_clone().with_context(|| format!("opening {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(stderr)
            .spawn()
            .with_context(|| format!("starting {name}"))?;
        Ok(Self { name: name.to_owned(), child, log: log.to_owned(), log_start })
    }

    /// As [`Process::start`], but standard output is the caller's, by [`Process::take_stdout`].
    pub fn start_piped(name: &str, command: &mut Command, log: &Path) -> Result<Self> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(append(log)?)
            .spawn()
            .with_context(|| format!("starting {name}"))?;
        Ok(Self { name: name.to_owned(), child, log: log.to_owned(), log_start: 0 })
    }

    /// Standard output of a process started by [`Process::start_piped`]; once.
    pub fn take_stdout(&mut self) -> Option<std::process::ChildStdout> {
        self.child.stdout.take()
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, or `None` while it runs.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().with_context(|| format!("waiting for {}", self.name))
    }

    /// What it has logged since it was started.
    pub fn log(&self) -> Result<String> {
        let bytes = fs::read(&self.log).with_context(|| format!("reading {}", self.log.display()))?;
        let start = usize::try_from(self.log_start).unwrap_or(0).min(bytes.len());
        Ok(String::from_utf8_lossy(&bytes[start..]).into_owned())
    }

    /// Waits until the log contains `text`; fails early if the process ends before.
    pub fn wait_for_log(&mut self, text: &str, limit: Duration) -> Result<()> {
        wait::until(&format!("{} to log `{text}`", self.name), limit, || {
            let ended = self.ended()?;
            let log = self.log()?;
            match ended {
                _ if log.contains(text) => Ok(Some(())),
                Some(status) => bail!("{} ended ({status}): {}", self.name, tail(&log)),
                None => Ok(None),
            }
        })
    }

    /// SIGKILL: it gets no chance to tidy up.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().with_context(|| format!("killing {}", self.name))?;
        self.child.wait().with_context(|| format!("waiting for {}", self.name))?;
        Ok(())
    }

    /// SIGTERM, and an error unless it ends cleanly within `limit`.
    pub fn terminate(&mut self, limit: Duration) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.pid()).context("process id")?);
        kill(pid, Signal::SIGTERM).with_context(|| format!("stopping {}", self.name))?;
        let what = format!("{} to end on SIGTERM", self.name);
        let status = wait::until(&what, limit, || self.ended())?;
        if !status.success() && status.signal() != Some(Signal::SIGTERM as i32) {
            bail!("{} ended badly on SIGTERM ({status})", self.name);
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn append(path: &Path) -> Result<File> {
    File::options()
        .create(true)
        .append(true)
        .open(path)
        .with_context(|| format!("opening {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_program_is_named_with_its_output() {
        let err = run(command("ls").arg("/no-such-folder")).unwrap_err().to_string();
        assert!(err.starts_with("ls /no-such-folder failed"), "{err}");
        assert!(err.contains("No such file"), "{err}");
    }

    #[test]
    fn input_reaches_the_program() {
        assert_eq!(run_with_input(&mut command("cat"), b"secret").unwrap(), "secret");
    }

    #[test]
    fn a_process_dies_with_the_thread_that_started_it() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let started = std::thread::spawn(move || {
            let process = Process::start("sleep", command("sleep").arg("600"), &log).unwrap();
            let comm = format!("/proc/{}/comm", process.pid());
            wait::until("setpriv to start sleep", Duration::from_secs(10), || {
                Ok((fs::read_to_string(&comm)? == "sleep\n").then_some(()))
            })
            .unwrap();
            process
        });
        let mut process = started.join().unwrap();
        let status = wait::until("its end", Duration::from_secs(10), || process.ended()).unwrap();
        assert_eq!(status.signal(), Some(Signal::SIGKILL as i32));
    }

    #[test]
    fn only_the_log_of_this_start_is_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        fs::write(&log, "ready, said the one before\n").unwrap();
        let mut process = Process::start("true", &mut command("true"), &log).unwrap();
        let err = process.wait_for_log("ready", Duration::from_secs(10)).unwrap_err().to_string();
        assert!(err.starts_with("true ended"), "{err}");
    }
}
