//! The long-running programs of a cluster.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};

use crate::{namespace::Namespace, process::Process};

/// How long a server may take to say that it is ready.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How long a server may take to end on SIGTERM.
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// A server that can be killed and started again, on the same files.
#[derive(Debug)]
pub struct Server {
    name: &'static str,
    program: PathBuf,
    arguments: Vec<String>,
    namespace: Arc<Namespace>,
    log: PathBuf,
    process: Option<Process>,
}

impl Server {
    pub(super) fn new(
        name: &'static str,
        program: &Path,
        arguments: &[&str],
        namespace: Arc<Namespace>,
        dir: &Path,
    ) -> Self {
        Self {
            name,
            program: program.to_owned(),
            arguments: arguments.iter().map(|word| (*word).to_owned()).collect(),
            namespace,
            log: dir.join(format!("{name}.log")),
            process: None,
        }
    }

    /// Starts it and waits until it is ready.
    pub fn start(&mut self) -> Result<()> {
        let mut command = self.namespace.command(&self.program.to_string_lossy());
        command.args(&self.arguments);
        let mut process = Process::start(self.name, &mut command, &self.log)?;
        process.wait_for_log("ready", START_LIMIT)?;
        self.process = Some(process);
        Ok(())
    }

    /// SIGKILL.
    pub fn kill(&mut self) -> Result<()> {
        self.running()?.kill()?;
        self.process = None;
        Ok(())
    }

    /// SIGTERM; an error unless it ends cleanly.
    pub fn stop(&mut self) -> Result<()> {
        self.running()?.terminate(STOP_LIMIT)?;
        self.process = None;
        Ok(())
    }

    fn running(&mut self) -> Result<&mut Process> {
        let name = self.name;
        self.process.as_mut().with_context(|| format!("{name} does not run"))
    }
}
