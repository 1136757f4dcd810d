//! The task that owns a session: it takes one input at a time, steps the core, and performs the effects.

use std::{
    future::pending,
    sync::Arc,
    time::{Duration, SystemTime},
};

use ironwright_agent_core::{Agent, Config, Effect, Input, Journal, Notice};
use rand::{SeedableRng, rngs::StdRng};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    AgentConfig, HeldLease, LinkError, Port,
    connection::{Link, LinkEvent},
    renew,
    running::{RunEvent, Running},
};
use crate::{
    events::unix_ms,
    executor::Executor,
    identity::Identity,
    journal::{self, JournalError, Store},
};

/// Events that are journaled together.
const EVENT_BATCH: usize = 64;
/// On shutdown, what is queued for the gateway has this long to get there.
const FINISH_TIMEOUT: Duration = Duration::from_secs(5);
/// Rejections that a new session with the same identity cannot mend.
const NEEDS_NEW_IDENTITY: [&str; 2] = ["revoked", "node_unknown"];

/// Keeps a session with the gateway until `shutdown`: reconnects, runs commands with `executors`, and renews
/// the certificate. `port` can be used again after it returns.
pub async fn run(
    port: &mut Port,
    config: AgentConfig,
    identity: Identity,
    executors: Vec<Arc<dyn Executor>>,
    shutdown: CancellationToken,
) -> Result<(), LinkError> {
    let place = config.journal.clone();
    let opened = tokio::task::spawn_blocking(move || journal::open(&place)).await;
    let (journal, store) = opened.map_err(|_| JournalError::Interrupted)??;
    let _renewal = AbortOnDropHandle::new(tokio::spawn(renew::keep(identity.clone())));
    let mut session = Session::new(port, config, identity, &executors, journal, store);
    let result = session.run(&shutdown).await;
    session.port.connected.send_replace(false);
    result
}

pub(super) struct Session<'p> {
    port: &'p mut Port,
    identity: Identity,
    agent: Agent,
    /// Taken while a write is under way.
    store: Option<Box<dyn Store>>,
    link: Option<Link>,
    pub(super) running: Running,
    start: Instant,
}

impl<'p> Session<'p> {
    pub(super) fn new(
        port: &'p mut Port,
        config: AgentConfig,
        identity: Identity,
        executors: &[Arc<dyn Executor>],
        journal: Journal,
        store: Box<dyn Store>,
    ) -> Self {
        let running = Running::new(executors, port.sink.clone());
        let (site, address) = config.site.map(|site| (site.name, site.url)).unwrap_or_default();
        let config = Config {
            node_id: identity.node_id().to_owned(),
            role: config.role,
            boot_id: config.boot_id,
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            site,
            address,
            kinds: running.kinds(),
            sections: Vec::new(),
        };
        let agent = Agent::new(config, journal, StdRng::from_entropy());
        Self { port, identity, agent, store: Some(store), link: None, running, start: Instant::now() }
    }

    pub(super) async fn run(&mut self, shutdown: &CancellationToken) -> Result<(), LinkError> {
        self.step(Input::Start).await?;
        while let Some(inputs) = shutdown.run_until_cancelled(self.next_inputs()).await {
            for input in inputs {
                self.step(input).await?;
            }
        }
        self.agent.step(Input::Stop, self.start.elapsed());
        if let Some(link) = self.link.take()
            && timeout(FINISH_TIMEOUT, link.finish()).await.is_err()
        {
            tracing::warn!("the gateway did not end the session in time");
        }
        Ok(())
    }

    /// Waits for whatever happens next. Cancel safe.
    async fn next_inputs(&mut self) -> Vec<Input> {
        let deadline = self.agent.next_deadline().map(|after| self.start + after);
        let mut raised = Vec::new();
        let mut inputs = tokio::select! {
            event = next_of(&mut self.link) => vec![link_input(event, &mut self.link)],
            event = self.running.next() => vec![match event {
                RunEvent::Ended(id, result) => Input::Finished { id, result },
                RunEvent::Progress(progress) => Input::Progress(progress),
            }],
            _ = self.port.events.queue.recv_many(&mut raised, EVENT_BATCH) => {
                raised.into_iter().map(Input::Raise).collect()
            }
            () = sleep_to(deadline) => vec![Input::Tick],
        };
        let count = self.port.events.take_lost();
        if count > 0 {
            inputs.push(Input::EventsLost { count, unix_ms: unix_ms() });
        }
        inputs
    }

    /// Steps the core and performs what follows, and what follows from a link that could not take it.
    pub(super) async fn step(&mut self, input: Input) -> Result<(), LinkError> {
        let effects = self.agent.step(input, self.start.elapsed());
        if !self.perform(effects).await? {
            tracing::warn!("the gateway does not take what is sent; leaving it");
            self.link = None;
            let effects = self.agent.step(Input::LinkLost, self.start.elapsed());
            self.perform(effects).await?;
        }
        Ok(())
    }

    /// Performs effects: first all records in one durable write, then the rest in order. False where the
    /// link could not take a frame.
    async fn perform(&mut self, effects: Vec<Effect>) -> Result<bool, LinkError> {
        let (mut records, mut acts) = (Vec::new(), Vec::new());
        for effect in effects {
            match effect {
                Effect::Persist(record) => records.push(record),
                act => acts.push(act),
            }
        }
        if !records.is_empty() {
            let mut store = self.store.take().ok_or(JournalError::Interrupted)?;
            let write = tokio::task::spawn_blocking(move || store.write(&records).map(|()| store));
            self.store = Some(write.await.map_err(|_| JournalError::Interrupted)??);
        }
        let mut sent = true;
        for act in acts {
            match act {
                Effect::Persist(_) => unreachable!("sorted out above"),
                Effect::Connect => self.connect(SystemTime::now())?,
                Effect::Disconnect => self.link = None,
                Effect::Send(frame) => sent &= self.link.as_ref().is_some_and(|link| link.send(frame)),
                Effect::Start(order) => self.running.start(order),
                Effect::Cancel(id) => self.running.cancel(&id),
                Effect::Apply(_) => unreachable!("no section has a name here"),
                Effect::Tell(notice) => self.tell(notice)?,
            }
        }
        Ok(sent)
    }

    /// Opens a link, unless the gateway could only refuse it for as long as this identity is shown.
    fn connect(&mut self, now: SystemTime) -> Result<(), LinkError> {
        if self.identity.expired(now) {
            return Err(LinkError::Expired);
        }
        self.link = Some(Link::open(self.identity.clone()));
        Ok(())
    }

    fn tell(&mut self, notice: Notice) -> Result<(), LinkError> {
        match notice {
            Notice::Open(welcome) => {
                tracing::info!(epoch = welcome.session_epoch, "session open");
                self.port.welcome.send_replace(Some(welcome));
                self.port.connected.send_replace(true);
            }
            Notice::Closed => {
                tracing::info!("session closed");
                self.port.connected.send_replace(false);
            }
            Notice::Lease { lease, asked } => {
                let asked = (self.start + asked).into_std();
                self.port.lease.send_replace(Some(HeldLease { lease, asked }));
            }
            Notice::Failed(why) => tracing::warn!(why, "session given up"),
            Notice::Rejected { code, message } if NEEDS_NEW_IDENTITY.contains(&code.as_str()) => {
                return Err(LinkError::Rejected { code, message });
            }
            Notice::Rejected { code, message } => tracing::warn!(%code, message, "rejected by the gateway"),
        }
        Ok(())
    }
}

async fn next_of(link: &mut Option<Link>) -> LinkEvent {
    match link {
        Some(link) => link.next().await,
        None => pending().await,
    }
}

fn link_input(event: LinkEvent, link: &mut Option<Link>) -> Input {
    match event {
        LinkEvent::Up => Input::Connected,
        LinkEvent::Frame(frame) => Input::Frame(frame),
        LinkEvent::Down(why) => {
            tracing::warn!(why, "no link to the gateway");
            *link = None;
            Input::LinkLost
        }
    }
}

async fn sleep_to(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use ironwright_agent_core::{CommandEntry, Order, RaisedEvent, Record, Stage};
    use ironwright_proto::{
        kinds::Role,
        wire::{Command, CommandError},
    };

    use super::*;
    use crate::{
        executor::{BoxFuture, Ctx},
        identity::tests::identity,
        journal::faulty::Faulty,
        link::{JournalPlace, channel},
    };

    #[derive(Default)]
    struct Counter(AtomicUsize);

    impl Executor for Counter {
        fn kinds(&self) -> &'static [&'static str] {
            &["disk.erase"]
        }

        fn run(&self, _: Order, _: Ctx) -> BoxFuture<'_, Result<Vec<u8>, CommandError>> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Box::pin(async { Ok(vec![]) })
        }
    }

    fn session<'p>(port: &'p mut Port, executor: &Arc<Counter>, store: Faulty) -> Session<'p> {
        let journal = JournalPlace::Memory;
        let config = AgentConfig { role: Role::Ramdisk, boot_id: "b".into(), site: None, journal };
        let executors = [executor.clone() as Arc<dyn Executor>];
        Session::new(port, config, identity(), &executors, Journal::new("j".into()), Box::new(store))
    }

    fn acceptance() -> (Record, Vec<Effect>) {
        let command = Command { id: "c1".into(), kind: "disk.erase".into(), ..Command::default() };
        let order = Order { id: "c1".into(), kind: "disk.erase".into(), args: vec![] };
        let accepted = Record::Command(CommandEntry { command, stage: Stage::Accepted });
        (accepted.clone(), vec![Effect::Persist(accepted), Effect::Start(order)])
    }

    #[tokio::test]
    async fn nothing_starts_that_could_not_be_journaled() {
        let (_handle, mut port) = channel();
        let executor = Arc::new(Counter::default());
        let mut session = session(&mut port, &executor, Faulty::after(0));
        let result = session.perform(acceptance().1).await;
        assert!(matches!(result, Err(LinkError::Journal(_))), "{result:?}");
        tokio::task::yield_now().await;
        assert_eq!(executor.0.load(Ordering::SeqCst), 0);
        let result = session.step(Input::Start).await;
        assert!(result.is_ok(), "nothing to write");
        let event = RaisedEvent { kind: "log".into(), json: "{}".into(), unix_ms: 0 };
        assert!(matches!(session.step(Input::Raise(event)).await, Err(LinkError::Journal(_))));
    }

    #[tokio::test]
    async fn a_command_starts_once_it_is_journaled() {
        let (_handle, mut port) = channel();
        let executor = Arc::new(Counter::default());
        let store = Faulty::after(1);
        let mut session = session(&mut port, &executor, store.clone());
        let (accepted, effects) = acceptance();
        assert!(session.perform(effects).await.unwrap());
        assert_eq!(*store.written.lock().unwrap(), [accepted]);
        assert_eq!(session.running.next().await, RunEvent::Ended("c1".into(), Ok(vec![])));
        assert_eq!(executor.0.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn a_full_journal_ends_the_agent() {
        let (handle, mut port) = channel();
        let executor = Arc::new(Counter::default());
        let mut session = session(&mut port, &executor, Faulty::after(0));
        handle.events.send("log", &serde_json::json!({}));
        let ended = timeout(Duration::from_secs(10), session.run(&CancellationToken::new())).await.unwrap();
        assert!(matches!(ended, Err(LinkError::Journal(_))), "{ended:?}");
    }
}
