//! Running cargo.

use std::{
    env,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

/// The cargo that runs us, in the workspace's folder.
pub(crate) fn command(words: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(workspace()).args(words);
    command
}

/// Runs cargo; its failure is an error.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    println!("$ cargo {}", words.join(" "));
    let status = command(words).status().context("starting cargo")?;
    if !status.success() {
        bail!("`cargo {}` failed", words.join(" "));
    }
    Ok(())
}

/// Runs cargo, shows what it prints and hands each line of standard output on. Returns whether it succeeded.
pub(crate) fn run_with_lines(words: &[&str], mut line: impl FnMut(&str)) -> Result<bool> {
    println!("$ cargo {}", words.join(" "));
    let mut child = command(words).stdout(Stdio::piped()).spawn().context("starting cargo")?;
    let stdout = child.stdout.take().context("cargo has no output")?;
    for text in BufReader::new(stdout).lines() {
        let text = text.context("reading cargo's output")?;
        println!("{text}");
        line(&text);
    }
    Ok(child.wait().context("waiting for cargo")?.success())
}

/// Builds the programs that ship.
pub(crate) fn build_programs() -> Result<()> {
    run(&["build", "--release", "--package", "ironwright", "--package", "ironwright-ramdisk"])
}

/// The workspace's folder.
pub(crate) fn workspace() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}
