//! What has to pass before a change goes in.

use anyhow::Result;

use crate::{arrows, cargo, setup, suite};

/// Runs all checks, cheap ones first.
pub(crate) fn run() -> Result<()> {
    setup::run()?;
    cargo::run(&["fmt", "--all", "--check"])?;
    arrows::check()?;
    check_dependencies()?;
    cargo::run(&["clippy", "--release", "--workspace", "--all-targets", "--", "--deny", "warnings"])?;
    suite::test()
}

/// Licences and advisories by `deny.toml`, where cargo-deny is there.
fn check_dependencies() -> Result<()> {
    let there = cargo::command(&["deny", "--version"]).output().is_ok_and(|out| out.status.success());
    if there {
        cargo::run(&["deny", "--workspace", "check"])
    } else {
        println!("ci: licences and advisories are NOT checked: cargo-deny is not installed");
        Ok(())
    }
}
