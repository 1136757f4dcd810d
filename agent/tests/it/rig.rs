//! An agent in a task, an executor that tests hold on a string, and the gateway's words.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use ironwright_agent::{
    CancellationToken, CommandError, Ctx, Executor, Identity, JoinConfig, KeySource, Order,
    executor::BoxFuture,
    fail,
    link::{self, AgentConfig, Handle, JournalPlace, LinkError, SiteAddress},
};
use ironwright_proto::{
    kinds::{self, Role},
    wire::{
        Command, CommandAck, CommandUpdate, GatewayFrame, Hello, JoinClaim, Welcome, agent_frame,
        gateway_frame,
    },
};
use tokio::{sync::Semaphore, task::JoinHandle};

use crate::control::{Control, NODE, Peer};

/// Longer than anything a test waits for.
const SOON: Duration = Duration::from_secs(20);
/// Control's time in a Welcome, in milliseconds since the Unix epoch.
pub(crate) const T0: i64 = 1_800_000_000_000;

/// Waits for something that is about to happen.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, future).await.unwrap_or_else(|_| panic!("{what} did not come within {SOON:?}"))
}

pub(crate) fn join_config(control: &Control, key: KeySource) -> JoinConfig {
    JoinConfig {
        control_url: control.api_url.clone(),
        ca_pin: control.shared.authority.pin(),
        claim: JoinClaim {
            machine_id: "web-1".into(),
            role: "ramdisk".into(),
            join_token: "token".into(),
            mac: "52:54:00:12:34:56".into(),
            ..JoinClaim::default()
        },
        key,
    }
}

/// Runs `disk.erase` and `boot.finish`: each run needs a permit to end, and echoes its arguments.
pub(crate) struct Held {
    pub(crate) runs: AtomicUsize,
    pub(crate) permits: Semaphore,
}

impl Held {
    pub(crate) fn new(permits: usize) -> Arc<Self> {
        Arc::new(Self { runs: AtomicUsize::new(0), permits: Semaphore::new(permits) })
    }

    pub(crate) fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }
}

impl Executor for Held {
    fn kinds(&self) -> &'static [&'static str] {
        &[kinds::DISK_ERASE, kinds::BOOT_FINISH]
    }

    fn run(&self, order: Order, ctx: Ctx) -> BoxFuture<'_, Result<Vec<u8>, CommandError>> {
        Box::pin(async move {
            self.runs.fetch_add(1, Ordering::SeqCst);
            ctx.progress("hold", 1, 2);
            tokio::select! {
                permit = self.permits.acquire() => permit.unwrap().forget(),
                () = ctx.cancelled() => return Err(fail("cancelled", "nothing was changed")),
            }
            Ok(order.args)
        })
    }
}

/// An agent that runs in the background; stopped hard when dropped.
pub(crate) struct Agent {
    pub(crate) handle: Handle,
    pub(crate) shutdown: CancellationToken,
    task: JoinHandle<Result<(), LinkError>>,
}

impl Agent {
    pub(crate) async fn start(control: &Control, executor: Arc<Held>) -> Self {
        let identity = Identity::join(&join_config(control, KeySource::Memory)).await.unwrap();
        Self::start_as(identity, Role::Ramdisk, JournalPlace::Memory, executor)
    }

    pub(crate) fn start_as(
        identity: Identity,
        role: Role,
        journal: JournalPlace,
        executor: Arc<Held>,
    ) -> Self {
        let site = (role == Role::Site).then(|| SiteAddress { name: "s-1".into(), url: "http://s".into() });
        let config = AgentConfig { role, boot_id: "boot-1".into(), site, journal };
        let (handle, mut port) = link::channel();
        let shutdown = CancellationToken::new();
        let until = shutdown.clone();
        let task =
            tokio::spawn(async move { link::run(&mut port, config, identity, vec![executor], until).await });
        Self { handle, shutdown, task }
    }

    /// How `link::run` ended.
    pub(crate) async fn ended(&mut self) -> Result<(), LinkError> {
        soon("the agent's end", &mut self.task).await.unwrap()
    }

    /// The process is killed.
    pub(crate) async fn kill(mut self) {
        self.task.abort();
        let _ = soon("the agent's end", &mut self.task).await;
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) fn order(id: &str) -> Command {
    Command {
        id: id.into(),
        kind: kinds::DISK_ERASE.into(),
        args: vec![7],
        not_after_unix_ms: T0 + 600_000,
        min_generation: 0,
        retry_safe: true,
        node_id: NODE.into(),
    }
}

impl Peer {
    pub(crate) async fn send(&self, frame: gateway_frame::Frame) {
        self.to_agent.send(Ok(GatewayFrame { frame: Some(frame) })).await.expect("the agent listens");
    }

    /// The next frame that is neither a heartbeat nor progress.
    pub(crate) async fn next(&mut self) -> Option<agent_frame::Frame> {
        use agent_frame::Frame::{Heartbeat, Progress};
        loop {
            let message = soon("a frame", self.from_agent.message()).await.ok()??;
            match message.frame {
                Some(Heartbeat(_) | Progress(_)) | None => {}
                frame => return frame,
            }
        }
    }

    pub(crate) async fn hello(&mut self) -> Hello {
        match self.next().await {
            Some(agent_frame::Frame::Hello(hello)) => hello,
            other => panic!("{other:?} instead of Hello"),
        }
    }

    /// Answers Hello.
    pub(crate) async fn welcome(&mut self) -> Hello {
        let hello = self.hello().await;
        let welcome =
            Welcome { session_epoch: 1, server_unix_ms: T0, heartbeat_interval_ms: 1_000, lease: None };
        self.send(gateway_frame::Frame::Welcome(welcome)).await;
        hello
    }

    pub(crate) async fn order(&self, command: Command) {
        self.send(gateway_frame::Frame::Command(command)).await;
    }

    pub(crate) async fn update(&mut self) -> CommandUpdate {
        match self.next().await {
            Some(agent_frame::Frame::Command(update)) => update,
            other => panic!("{other:?} instead of a command's update"),
        }
    }

    pub(crate) async fn ack(&self, id: &str) {
        self.send(gateway_frame::Frame::CommandAck(CommandAck { id: id.into() })).await;
    }

    /// The next event.
    pub(crate) async fn event(&mut self) -> ironwright_proto::wire::Event {
        match self.next().await {
            Some(agent_frame::Frame::Event(event)) => event,
            other => panic!("{other:?} instead of an event"),
        }
    }
}
