//! The whole role: serve, join, keep a session.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use ironwright_agent::{
    Executor, Identity, JoinConfig, KeySource,
    join::join_until,
    link::{self, AgentConfig, JournalPlace, LinkError, Port, SiteAddress},
};
use ironwright_proto::{kinds::Role, wire::JoinClaim};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{authority::Authority, config::Config, durable, serve::Site, upstream::Joined};

/// Largest token file.
const MAX_TOKEN_FILE: u64 = 4096;
/// Pause after an identity has ended, by rejection or by age, before joining anew.
const REJOIN_PAUSE: Duration = Duration::from_secs(10);

/// Runs the site until shutdown. Machines that belong on their disk are served from the start, whether
/// control can be reached or not.
pub async fn run(config: Config, shutdown: CancellationToken) -> anyhow::Result<()> {
    let site = Site::open(&config).await?;
    let joined = Joined::default();
    let (handle, port) = link::channel();
    let authority = Authority {
        lease: handle.lease.clone(),
        signer: Arc::new(joined.clone()),
        report: Arc::new(handle.events.clone()),
    };
    let executors = vec![site.executor(Arc::new(joined.clone()))];
    let address = SiteAddress { name: config.site.to_string(), url: site.base_url().to_owned() };

    // Whichever side ends first takes the other one down.
    let stop = shutdown.child_token();
    let serve = async {
        let _stop = stop.clone().drop_guard();
        site.run(authority, stop.clone()).await
    };
    let session = async {
        let _stop = stop.clone().drop_guard();
        keep_session(&config, address, joined, port, executors, &stop).await
    };
    let (served, kept) = tokio::join!(serve, session);
    served.and(kept)
}

async fn keep_session(
    config: &Config,
    address: SiteAddress,
    joined: Joined,
    mut port: Port,
    executors: Vec<Arc<dyn Executor>>,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let agent = AgentConfig {
        role: Role::Site,
        boot_id: link::boot_id().context("reading the kernel's boot id")?,
        site: Some(address),
        journal: JournalPlace::Dir(config.state_dir.clone()),
    };
    loop {
        let join = join_config(config)?;
        let failed = |error: &ironwright_agent::JoinError, wait: Duration| {
            let error = error as &dyn std::error::Error;
            warn!(error, wait_s = wait.as_secs(), "cannot join control, trying again");
        };
        let Some(identity) = join_until(&join, stop, failed).await else { return Ok(()) };
        info!(node = identity.node_id(), gateway = identity.gateway_url(), "joined control");
        joined.set(identity.clone());
        match link::run(&mut port, agent.clone(), identity, executors.clone(), stop.clone()).await {
            Ok(()) => return Ok(()),
            Err(LinkError::Rejected { code, message }) => {
                warn!(code, message, "control does not want this identity any more, joining anew");
                Identity::forget(&join).context("removing the stored identity")?;
            }
            Err(LinkError::Expired) => warn!("the node certificate has expired, joining anew"),
            Err(error) => return Err(error).context("keeping the session with control"),
        }
        if stop.run_until_cancelled(tokio::time::sleep(REJOIN_PAUSE)).await.is_none() {
            return Ok(());
        }
    }
}

/// The token file is read at every attempt to join: an operator may have put a fresh token there. It may be
/// gone once the site has joined.
fn join_config(config: &Config) -> anyhow::Result<JoinConfig> {
    let path = &config.join_token_file;
    let token = durable::read(path, MAX_TOKEN_FILE)
        .with_context(|| format!("reading the join token from {}", path.display()))?;
    let claim = JoinClaim {
        role: Role::Site.as_str().to_owned(),
        join_token: token.unwrap_or_default().trim().to_owned(),
        ..JoinClaim::default()
    };
    Ok(JoinConfig {
        control_url: config.control_url.clone(),
        ca_pin: config.ca_pin,
        claim,
        key: KeySource::Dir(config.state_dir.clone()),
    })
}
