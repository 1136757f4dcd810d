//! The `ironwright` command line, run inside the network of a cluster.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;

use crate::{
    namespace::Namespace,
    process::{self, Output},
};

/// Exit status of a command that control refused.
const REFUSED: i32 = 1;
/// Exit status of a command that did not reach control.
const UNREACHABLE: i32 = 3;

/// Runs `ironwright` as a logged-in operator.
#[derive(Debug)]
pub struct Cli {
    program: PathBuf,
    namespace: Arc<Namespace>,
    config: PathBuf,
}

impl Cli {
    pub(super) fn new(program: &Path, namespace: Arc<Namespace>, config: PathBuf) -> Self {
        Self { program: program.to_owned(), namespace, config }
    }

    /// File with the operator's login.
    pub fn config(&self) -> &Path {
        &self.config
    }

    /// A command line, ready to run in the network.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = self.namespace.command(&self.program.to_string_lossy());
        command.args(words).env("IRONWRIGHT_CONFIG", &self.config);
        command
    }

    /// Runs a command and returns what it prints for people.
    pub fn text(&self, words: &[&str]) -> Result<String> {
        process::run(&mut self.command(words))
    }

    /// Runs a command with `--json` and reads its answer.
    pub fn json<T: DeserializeOwned>(&self, words: &[&str]) -> Result<T> {
        self.json_with_input(words, &[])
    }

    /// As [`Cli::json`], with something on standard input.
    pub fn json_with_input<T: DeserializeOwned>(&self, words: &[&str], input: &[u8]) -> Result<T> {
        let text = process::run_with_input(self.command(words).arg("--json"), input)?;
        parse(words, &text)
    }

    /// As [`Cli::json`], but `None` where control cannot be reached.
    pub fn json_if_reachable<T: DeserializeOwned>(&self, words: &[&str]) -> Result<Option<T>> {
        let Output { status, stdout, stderr } = process::output(self.command(words).arg("--json"), &[])?;
        match status.code() {
            Some(0) => parse(words, &stdout).map(Some),
            Some(UNREACHABLE) => Ok(None),
            _ => bail!("ironwright {} failed ({status}): {}", words.join(" "), process::tail(&stderr)),
        }
    }

    /// Runs a command that control must refuse, and returns its message.
    pub fn refusal(&self, words: &[&str]) -> Result<String> {
        let Output { status, stdout, stderr } = process::output(&mut self.command(words), &[])?;
        if status.code() != Some(REFUSED) {
            bail!("ironwright {} was not refused ({status}): {stdout}{stderr}", words.join(" "));
        }
        Ok(stderr)
    }
}

fn parse<T: DeserializeOwned>(words: &[&str], text: &str) -> Result<T> {
    serde_json::from_str(text).with_context(|| {
        format!("reading what `ironwright {}` printed: {}", words.join(" "), process::tail(text))
    })
}
