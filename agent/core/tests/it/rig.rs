//! An agent, a clock that tests turn by hand, and a disk that keeps what was persisted.

use std::time::Duration;

use ironwright_agent_core::{Agent, Config, Effect, Input, Journal, Record, Stage};
use ironwright_proto::{
    kinds::{self, Role},
    wire::{
        Command, CommandError, CommandState, CommandUpdate, Welcome, agent_frame::Frame as ToGateway,
        gateway_frame::Frame as FromGateway,
    },
};
use rand::{SeedableRng, rngs::StdRng};

pub(crate) const NODE: &str = "n-1";
pub(crate) const BOOT: &str = "boot-1";
/// Control's time in the first Welcome of a test, in milliseconds since the Unix epoch.
pub(crate) const T0: i64 = 1_800_000_000_000;

pub(crate) fn config(boot_id: &str) -> Config {
    Config {
        node_id: NODE.into(),
        role: Role::Ramdisk,
        boot_id: boot_id.into(),
        agent_version: "1".into(),
        site: String::new(),
        address: String::new(),
        kinds: vec![
            kinds::INVENTORY_COLLECT,
            kinds::DISK_ERASE,
            kinds::IMAGE_DEPLOY,
            kinds::BOOT_FINISH,
            kinds::NODE_REBOOT,
        ],
        sections: vec!["a", "b"],
    }
}

pub(crate) fn command(id: &str, kind: &str) -> Command {
    Command {
        id: id.into(),
        kind: kind.into(),
        args: vec![1, 2, 3],
        not_after_unix_ms: T0 + 60_000,
        min_generation: 0,
        retry_safe: true,
        node_id: NODE.into(),
    }
}

pub(crate) struct Rig {
    pub(crate) agent: Agent,
    pub(crate) disk: Journal,
    pub(crate) now: Duration,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::on(Journal::new("j-1".into()), BOOT)
    }

    /// A process that starts with what is on `disk`.
    pub(crate) fn on(disk: Journal, boot_id: &str) -> Self {
        let agent = Agent::new(config(boot_id), disk.clone(), StdRng::seed_from_u64(7));
        Self { agent, disk, now: Duration::ZERO }
    }

    /// A rig with an open session at control's time [`T0`].
    pub(crate) fn open() -> Self {
        let mut rig = Self::new();
        rig.step(Input::Start);
        rig.open_session(T0);
        rig
    }

    /// One step with all its effects performed.
    pub(crate) fn step(&mut self, input: Input) -> Vec<Effect> {
        let effects = self.step_unchecked(input);
        assert_eq!(&self.disk, self.agent.journal(), "each change is also a record");
        effects
    }

    /// The same without the comparison, which costs as much as the journal is long.
    pub(crate) fn step_unchecked(&mut self, input: Input) -> Vec<Effect> {
        let effects = self.agent.step(input, self.now);
        for effect in &effects {
            if let Effect::Persist(record) = effect {
                self.disk.apply(record);
            }
        }
        effects
    }

    pub(crate) fn frame(&mut self, frame: FromGateway) -> Vec<Effect> {
        self.step(Input::Frame(frame))
    }

    pub(crate) fn deliver(&mut self, command: Command) -> Vec<Effect> {
        self.frame(FromGateway::Command(command))
    }

    pub(crate) fn finish(&mut self, id: &str, result: Result<Vec<u8>, CommandError>) -> Vec<Effect> {
        self.step(Input::Finished { id: id.into(), result })
    }

    pub(crate) fn ack(&mut self, id: &str) -> Vec<Effect> {
        self.frame(FromGateway::CommandAck(ironwright_proto::wire::CommandAck { id: id.into() }))
    }

    /// How long it is to the next deadline.
    pub(crate) fn next_wait(&self) -> Duration {
        self.agent.next_deadline().expect("there is something to wait for").saturating_sub(self.now)
    }

    /// Turns the clock to the next deadline.
    pub(crate) fn wait(&mut self) -> Vec<Effect> {
        self.now = self.agent.next_deadline().expect("there is something to wait for");
        self.step(Input::Tick)
    }

    /// From disconnected or connecting to open; the effects of the Welcome.
    pub(crate) fn open_session(&mut self, server_unix_ms: i64) -> Vec<Effect> {
        if self.agent.next_deadline().is_some() {
            self.wait();
        }
        self.step(Input::Connected);
        self.frame(FromGateway::Welcome(welcome(server_unix_ms)))
    }

    /// A new process in the same or another boot, with what is on the disk.
    pub(crate) fn restart(&mut self, boot_id: &str) -> Vec<Effect> {
        *self = Self::on(self.disk.clone(), boot_id);
        self.step(Input::Start)
    }

    pub(crate) fn stage(&self, id: &str) -> Option<&Stage> {
        self.disk.command(id).map(|entry| &entry.stage)
    }
}

pub(crate) fn welcome(server_unix_ms: i64) -> Welcome {
    Welcome { session_epoch: 1, server_unix_ms, heartbeat_interval_ms: 10_000, lease: None }
}

pub(crate) fn sent(effects: &[Effect]) -> Vec<&ToGateway> {
    let frames = effects.iter().filter_map(|effect| match effect {
        Effect::Send(frame) => Some(frame),
        _ => None,
    });
    frames.collect()
}

/// The updates of commands among the effects: id, state, error code.
pub(crate) fn updates(effects: &[Effect]) -> Vec<(String, CommandState, String)> {
    let summary = |update: &CommandUpdate| {
        let code = update.error.as_ref().map(|error| error.code.clone()).unwrap_or_default();
        (update.id.clone(), update.state(), code)
    };
    let commands = sent(effects).into_iter().filter_map(|frame| match frame {
        ToGateway::Command(update) => Some(summary(update)),
        _ => None,
    });
    commands.collect()
}

pub(crate) fn starts(effects: &[Effect]) -> Vec<String> {
    let id = |effect: &Effect| match effect {
        Effect::Start(order) => Some(order.id.clone()),
        _ => None,
    };
    effects.iter().filter_map(id).collect()
}

pub(crate) fn is_persist(effect: &Effect) -> bool {
    matches!(
        effect,
        Effect::Persist(Record::Command(_) | Record::Mark(_) | Record::Event(_) | Record::Forget(_))
    )
}
