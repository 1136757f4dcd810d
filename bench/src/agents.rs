//! The agents: each is what runs on a machine, but for the TPM and the disk under its journal.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use futures::stream::{StreamExt, iter};
use ironwright_agent::{
    CancellationToken, CommandError, Ctx, Executor, Identity, Order,
    executor::BoxFuture,
    keys::SoftKey,
    link::{self, AgentConfig, JournalPlace},
};
use ironwright_control::testing::JoinedNode;
use ironwright_proto::{
    ids::Digest,
    kinds::{self, Role},
};
use tokio::task::JoinSet;

use crate::{api::Api, control::Control};

/// Agents that are made at the same time.
const MAKING: usize = 64;
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// When commands were begun, by id.
#[derive(Default)]
pub(crate) struct Begun(Mutex<HashMap<String, Instant>>);

impl Begun {
    fn note(&self, id: String) {
        self.0.lock().expect("no holder panics").insert(id, Instant::now());
    }

    pub(crate) fn take(&self, id: &str) -> Option<Instant> {
        self.0.lock().expect("no holder panics").remove(id)
    }
}

/// Notes when it is begun, and is done.
struct Stopwatch(Arc<Begun>);

impl Executor for Stopwatch {
    fn kinds(&self) -> &'static [&'static str] {
        &[kinds::INVENTORY_COLLECT]
    }

    fn run(&self, order: Order, _ctx: Ctx) -> BoxFuture<'_, Result<Vec<u8>, CommandError>> {
        self.0.note(order.id);
        Box::pin(async { Ok(Vec::new()) })
    }
}

/// All agents.
pub(crate) struct Fleet {
    nodes: Vec<String>,
    pub(crate) begun: Arc<Begun>,
    connected: Arc<AtomicUsize>,
    shutdown: CancellationToken,
    tasks: JoinSet<()>,
}

impl Fleet {
    /// Starts an agent for each node.
    pub(crate) async fn start(joined: Vec<JoinedNode>, ca_pin: Digest) -> Result<Self> {
        let nodes = joined.iter().map(|node| node.grant.node_id.clone()).collect();
        let mut fleet = Self {
            nodes,
            begun: Arc::default(),
            connected: Arc::default(),
            shutdown: CancellationToken::new(),
            tasks: JoinSet::new(),
        };
        let identities = iter(joined).map(|node| async move {
            tokio::task::spawn_blocking(move || identity(&node, ca_pin))
                .await
                .context("making an identity")?
        });
        let mut identities = identities.buffer_unordered(MAKING);
        while let Some(identity) = identities.next().await {
            let (begun, connected) = (fleet.begun.clone(), fleet.connected.clone());
            let shutdown = fleet.shutdown.clone();
            fleet.tasks.spawn(agent(identity?, begun, connected, shutdown));
        }
        Ok(fleet)
    }

    pub(crate) fn nodes(&self) -> &[String] {
        &self.nodes
    }

    pub(crate) fn connected(&self) -> usize {
        self.connected.load(Ordering::Relaxed)
    }

    pub(crate) async fn all_connected(&self, limit: Duration) -> Result<()> {
        let end = Instant::now() + limit;
        while self.connected() < self.nodes.len() {
            ensure!(Instant::now() < end, "{} of {} agents connect", self.connected(), self.nodes.len());
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// Waits until a control that was just started has a session of each.
    pub(crate) async fn all_connected_to(&self, control: &Control, limit: Duration) -> Result<()> {
        let api = Api::connect(control).await?;
        let end = Instant::now() + limit;
        loop {
            let sessions = api.sessions().await?;
            if sessions == self.nodes.len() as u64 {
                return Ok(());
            }
            ensure!(Instant::now() < end, "control has {sessions} sessions of {}", self.nodes.len());
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    pub(crate) async fn stop(mut self) {
        self.shutdown.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

fn identity(node: &JoinedNode, ca_pin: Digest) -> Result<Identity> {
    let key = SoftKey::from_pem(&node.key_pem).context("reading a node's key")?;
    Ok(Identity::from_grant(&node.grant, Arc::new(key), ca_pin, None)?)
}

async fn agent(
    identity: Identity,
    begun: Arc<Begun>,
    connected: Arc<AtomicUsize>,
    shutdown: CancellationToken,
) {
    let (handle, mut port) = link::channel();
    let config = AgentConfig {
        role: Role::Node,
        boot_id: identity.node_id().to_owned(),
        site: None,
        journal: JournalPlace::Memory,
    };
    let executors: Vec<Arc<dyn Executor>> = vec![Arc::new(Stopwatch(begun))];
    let mut is_connected = handle.connected.clone();
    let counting = async move {
        let mut was = false;
        while is_connected.changed().await.is_ok() {
            let now = *is_connected.borrow_and_update();
            if now && !was {
                connected.fetch_add(1, Ordering::Relaxed);
            } else if was && !now {
                connected.fetch_sub(1, Ordering::Relaxed);
            }
            was = now;
        }
    };
    tokio::select! {
        ended = link::run(&mut port, config, identity, executors, shutdown) => {
            if let Err(error) = ended {
                eprintln!("an agent ended: {}", link::error_chain(&error));
            }
        }
        () = counting => {}
    }
}
