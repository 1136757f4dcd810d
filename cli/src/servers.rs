//! The long-running programs: logging, SIGTERM, and the call into the library that does the work.

use std::{
    io::IsTerminal,
    path::{Path, PathBuf},
};

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use crate::args::{Command, ControlCommand, SiteCommand};

/// Servers log to standard error at `info`, clients at `warn`; `RUST_LOG` overrides.
pub(crate) fn init_logging(command: &Command) -> anyhow::Result<()> {
    let server = matches!(
        command,
        Command::Agent { .. }
            | Command::Control(ControlCommand::Serve { .. })
            | Command::Site(SiteCommand::Run { .. })
    );
    let filter = match std::env::var("RUST_LOG") {
        Ok(text) => EnvFilter::try_new(&text).with_context(|| format!("reading RUST_LOG `{text}`"))?,
        Err(_) => EnvFilter::new(if server { "info" } else { "warn" }),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .init();
    Ok(())
}

pub(crate) async fn control(dir: PathBuf) -> anyhow::Result<()> {
    let config = ironwright_control::Config::load(&dir)?;
    ironwright_control::serve(config, shutdown_on_signal()?).await?;
    Ok(())
}

pub(crate) async fn site(path: &Path) -> anyhow::Result<()> {
    let config = ironwright_site::Config::load(path)?;
    Box::pin(ironwright_site::run(config, shutdown_on_signal()?)).await?;
    Ok(())
}

pub(crate) async fn agent(path: &Path) -> anyhow::Result<()> {
    let config = ironwright_agent::node::Config::load(path)?;
    ironwright_agent::node::run(config, shutdown_on_signal()?).await?;
    Ok(())
}

/// A token that is cancelled by SIGTERM or SIGINT.
fn shutdown_on_signal() -> anyhow::Result<CancellationToken> {
    let token = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    let cancelled = token.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping");
        cancelled.cancel();
    });
    Ok(token)
}
