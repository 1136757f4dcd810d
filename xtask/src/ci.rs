//! What has to pass before a change goes in.

use anyhow::Result;

use crate::{arrows, cargo, setup, suite};

/// Runs all checks, cheap ones first. `offline` leaves out the advisories, whose database is fetched from GitHub.
pub(crate) fn run(offline: bool) -> Result<()> {
    setup::run()?;
    cargo::run(&["fmt", "--all", "--check"])?;
    arrows::check()?;
    check_dependencies(offline)?;
    cargo::run(&["clippy", "--release", "--workspace", "--all-targets", "--", "--deny", "warnings"])?;
    suite::test()
}

/// What `deny.toml` says of licences, sources, unwanted crates and advisories.
fn check_dependencies(offline: bool) -> Result<()> {
    let there = cargo::command(&["deny", "--version"]).output().is_ok_and(|out| out.status.success());
    if !there {
        cargo::run(&["install", "--locked", "cargo-deny"])?;
    }
    cargo::run(&["deny", "--workspace", "check", "bans", "licenses", "sources"])?;
    if offline {
        println!("ci: advisories are NOT checked: --offline");
        return Ok(());
    }
    cargo::run(&["deny", "--workspace", "check", "advisories"])
}
