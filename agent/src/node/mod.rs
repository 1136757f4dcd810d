//! The agent of an operating system, role `node`.
//!
//! ```text
//!  start ─► clock ─► join ─► sessions ──► shutdown
//!                     ▲          │ revoked, node_unknown, expired
//!                     └── wait ──┘
//! ```

mod config;
mod hardware;

use std::{os::unix::fs::DirBuilderExt, sync::Arc, time::Duration};

use ironwright_proto::wire::JoinClaim;
use tokio_util::sync::CancellationToken;

pub use config::{Config, ConfigError};

use crate::{
    clock::{self, SetClock},
    executor::Executor,
    identity::Identity,
    join::{JoinConfig, KeySource, join_until},
    link::{self, AgentConfig, JournalPlace, LinkError, Port, error_chain},
    power::{Power, Reboot, Systemctl},
};

/// Between the end of an identity, by rejection or by age, and the next join.
const REJOIN_AFTER: Duration = Duration::from_secs(60);

/// Why the agent stopped.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The state folder.
    #[error("preparing the folder {path}")]
    StateDir {
        /// The folder.
        path: std::path::PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The kernel.
    #[error("reading the boot id")]
    BootId(#[source] std::io::Error),
    /// A certificate that is no longer wanted cannot be removed.
    #[error("forgetting the identity that control rejected")]
    Forget(#[source] std::io::Error),
    /// The session.
    #[error("keeping a session with control")]
    Link(#[from] LinkError),
}

/// Joins and keeps a session until `shutdown`. Reboots go through the service manager.
pub async fn run(config: Config, shutdown: CancellationToken) -> Result<(), NodeError> {
    let (_handle, mut port) = link::channel();
    run_with(config, &mut port, Arc::new(Systemctl), shutdown).await
}

/// As [`run`], where the caller sees the sessions by its side of `port` and knows how to reboot.
pub async fn run_with(
    config: Config,
    port: &mut Port,
    power: Arc<dyn Power>,
    shutdown: CancellationToken,
) -> Result<(), NodeError> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&config.state_dir)
        .map_err(|source| NodeError::StateDir { path: config.state_dir.clone(), source })?;
    let boot_id = link::boot_id().map_err(NodeError::BootId)?;
    let executors: Vec<Arc<dyn Executor>> = vec![Arc::new(Reboot::new(power))];
    let join = join_config(&config);
    loop {
        let Some(identity) = become_known(&join, &shutdown).await else { return Ok(()) };
        let session = AgentConfig {
            role: config.role,
            boot_id: boot_id.clone(),
            site: None,
            journal: JournalPlace::Dir(config.state_dir.clone()),
        };
        match link::run(port, session, identity, executors.clone(), shutdown.clone()).await {
            Err(LinkError::Rejected { code, message }) => {
                tracing::warn!(%code, message, "rejected by control; joining anew");
                Identity::forget(&join).map_err(NodeError::Forget)?;
            }
            Err(LinkError::Expired) => tracing::warn!("the node certificate has expired; joining anew"),
            ended => return Ok(ended?),
        }
        if shutdown.run_until_cancelled(tokio::time::sleep(REJOIN_AFTER)).await.is_none() {
            return Ok(());
        }
    }
}

/// Joins, with the clock looked after first: a machine whose clock is off can check no certificate.
async fn become_known(join: &JoinConfig, shutdown: &CancellationToken) -> Option<Identity> {
    let clock = clock::sync(&join.control_url, join.ca_pin, SetClock::IfOff);
    if let Err(err) = shutdown.run_until_cancelled(clock).await? {
        tracing::warn!("going on with this machine's clock: {}", error_chain(&err));
    }
    let identity = join_until(join, shutdown, |err, wait| {
        tracing::warn!(again_in_s = wait.as_secs(), "not joined: {}", error_chain(err));
    })
    .await?;
    tracing::info!(node = identity.node_id(), "joined");
    Some(identity)
}

/// A token in the configuration means that this machine may, and does, go without a TPM.
fn join_config(config: &Config) -> JoinConfig {
    let key = match &config.join_token {
        Some(_) => KeySource::Dir(config.state_dir.clone()),
        None => KeySource::Tpm { tcti: config.tcti.clone() },
    };
    let mac = config.mac.map(|mac| mac.to_string()).or_else(hardware::first_mac).unwrap_or_default();
    let claim = JoinClaim {
        machine_id: config.machine_id.to_string(),
        role: config.role.as_str().to_owned(),
        join_token: config.join_token.clone().unwrap_or_default(),
        mac,
        product_uuid: hardware::firmware_text("product_uuid"),
        serial: hardware::firmware_text("product_serial"),
        site_assertion: None,
    };
    JoinConfig { control_url: config.control_url.clone(), ca_pin: config.ca_pin, claim, key }
}
