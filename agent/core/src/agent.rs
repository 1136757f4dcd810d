//! The agent: one `step` for everything that can happen to it.

use std::time::Duration;

use ironwright_proto::{
    kinds::Role,
    wire::{
        CommandError, CommandUpdate, JournalMark, Lease, Pong, Progress, SpecSection, Welcome,
        agent_frame::Frame as ToGateway, gateway_frame::Frame as FromGateway,
    },
};
use rand::rngs::StdRng;

use crate::{
    RaisedEvent,
    backoff::Backoff,
    events,
    journal::{Journal, Record},
    order::Order,
    session::{Session, State, Welcomed},
    spec::Convergence,
    work::{self, Deferred, Situation},
};

/// Results sent again after a Welcome, and not yet acknowledged, at most.
const RESULT_WINDOW: usize = 16;
/// How often old results are looked for in an open session.
const PRUNE_EVERY: Duration = Duration::from_secs(3600);

/// What is fixed about an agent while it runs.
#[derive(Debug, Clone)]
pub struct Config {
    /// The node id; commands for another are refused.
    pub node_id: String,
    /// The role; kinds of other roles are refused.
    pub role: Role,
    /// The kernel's id of this boot.
    pub boot_id: String,
    /// Version of the agent program.
    pub agent_version: String,
    /// Role `site`: the site's name.
    pub site: String,
    /// Role `site`: the base URL of its boot HTTP.
    pub address: String,
    /// The kinds that executors run.
    pub kinds: Vec<&'static str>,
    /// The sections of a spec that parts of this agent apply.
    pub sections: Vec<&'static str>,
}

/// What can happen to an agent.
pub enum Input {
    /// The process has started; the journal was read. The first input, once.
    Start,
    /// Time has passed; see [`Agent::next_deadline`].
    Tick,
    /// The link that [`Effect::Connect`] asked for is there.
    Connected,
    /// There is no link, or no longer.
    LinkLost,
    /// The gateway says something.
    Frame(FromGateway),
    /// An executor has ended.
    Finished {
        /// The command's id.
        id: String,
        /// The kind's result message, encoded, or a named failure.
        result: Result<Vec<u8>, CommandError>,
    },
    /// The run that [`Effect::Apply`] began has ended.
    Applied {
        /// The section's name.
        name: String,
        /// Why it could not be applied, for people.
        result: Result<(), String>,
    },
    /// An executor says how far it is.
    Progress(Progress),
    /// A part of the agent raises an event.
    Raise(RaisedEvent),
    /// Events were lost before they could be raised.
    EventsLost {
        /// How many.
        count: u64,
        /// When this was seen, in milliseconds since the Unix epoch.
        unix_ms: i64,
    },
    /// The process is about to end.
    Stop,
}

/// What an agent does. Effects of one list are performed in order; `Persist` is durable before any later one
/// is begun, and when it fails nothing later is done.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Makes a change of the journal durable.
    Persist(Record),
    /// Opens a link to the gateway; answered by `Connected` or `LinkLost`.
    Connect,
    /// Ends the link. No `LinkLost` follows.
    Disconnect,
    /// Sends on the link.
    Send(ToGateway),
    /// Starts an executor.
    Start(Order),
    /// Applies a section of the spec; answered by `Applied`. A run on what is applied already changes nothing, or
    /// repairs what has drifted.
    Apply(SpecSection),
    /// Tells the executor of the command with this id to stop.
    Cancel(String),
    /// Something that other parts of the agent want to know.
    Tell(Notice),
}

impl Effect {
    pub(crate) fn tell_command(update: CommandUpdate) -> Self {
        Self::Send(ToGateway::Command(update))
    }
}

/// What other parts of the agent want to know.
#[derive(Debug, Clone, PartialEq)]
pub enum Notice {
    /// A session is open.
    Open(Welcome),
    /// It is not any more.
    Closed,
    /// A site's lease.
    Lease {
        /// Site, epoch, time to live.
        lease: Lease,
        /// The moment from which the time to live counts.
        asked: Duration,
    },
    /// The gateway does not want this node.
    Rejected {
        /// `revoked`, `node_unknown`, `old_epoch`, `bad_hello`.
        code: String,
        /// For people.
        message: String,
    },
    /// Why a session was given up.
    Failed(String),
}

/// The agent's state. It has no clock: `now` is the time since any moment that stays the same while the
/// process runs.
#[derive(Debug)]
pub struct Agent {
    config: Config,
    journal: Journal,
    session: Session,
    convergence: Convergence,
    deferred: Deferred,
    next_prune: Duration,
}

impl Agent {
    /// An agent with the journal that was read at its start. `rng` draws the waits between attempts.
    pub fn new(config: Config, journal: Journal, rng: StdRng) -> Self {
        Self {
            config,
            journal,
            session: Session::new(Backoff::new(rng)),
            convergence: Convergence::default(),
            deferred: Deferred::new(),
            next_prune: Duration::ZERO,
        }
    }

    /// The journal as it is once all effects so far are performed.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// When the next [`Input::Tick`] is due.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.session.next_deadline().into_iter().chain(self.convergence.next_deadline()).min()
    }

    /// Decides what follows from `input` at `now`.
    pub fn step(&mut self, input: Input, now: Duration) -> Vec<Effect> {
        let mut out = Vec::new();
        let ends_work = matches!(input, Input::Finished { .. });
        if matches!(self.session.state, State::Stopped) && !ends_work {
            return out;
        }
        match input {
            Input::Start => {
                work::resume(&self.config, &mut self.journal, &mut out);
                let spec = self.journal.spec().clone();
                self.convergence.begin(&self.config.sections, &spec, now, &mut out);
                self.drop_sends(&mut out);
                self.session.tick(now, &mut out);
            }
            Input::Tick => self.tick(now, &mut out),
            Input::Connected => self.session.connected(&self.config, &self.journal, now, &mut out),
            Input::LinkLost => self.session.link_lost(now, &mut out),
            Input::Frame(frame) => self.frame(frame, now, &mut out),
            Input::Finished { id, result } => {
                let server_now = self.server_now(now);
                work::finished(&mut self.journal, id, result, server_now, &mut out);
                self.drop_sends(&mut out);
            }
            Input::Applied { name, result } => {
                self.convergence.applied(&name, result, now, &mut out);
                self.deliver_deferred(now, &mut out);
            }
            Input::Progress(progress) if self.session.is_open() => {
                out.push(Effect::Send(ToGateway::Progress(progress)));
            }
            Input::Progress(_) => {}
            Input::Raise(event) => {
                events::raise(&mut self.journal, event, &mut out);
                self.pump_events(&mut out);
            }
            Input::EventsLost { count, unix_ms } => {
                events::count_dropped(&mut self.journal, count, unix_ms, &mut out);
                self.pump_events(&mut out);
            }
            Input::Stop => self.session.stop(&mut out),
        }
        self.report(&mut out);
        out
    }

    /// Tells control how far the machine is with its spec, where that has changed.
    fn report(&mut self, out: &mut Vec<Effect>) {
        if self.session.is_open() {
            out.extend(self.convergence.report().map(|report| Effect::Send(ToGateway::Status(report))));
        } else {
            self.deferred.clear();
        }
    }

    fn deliver_deferred(&mut self, now: Duration, out: &mut Vec<Effect>) {
        if self.deferred.is_empty() {
            return;
        }
        let server_now = self.server_now(now);
        let generation = self.convergence.applied_generation();
        let situation = Situation { config: &self.config, generation, server_now };
        work::deliver_deferred(situation, &mut self.journal, &mut self.deferred, out);
    }

    fn tick(&mut self, now: Duration, out: &mut Vec<Effect>) {
        self.session.tick(now, out);
        self.convergence.tick(now, out);
        self.deliver_deferred(now, out);
        if self.session.is_open() && now >= self.next_prune {
            self.next_prune = now + PRUNE_EVERY;
            let server_now = self.server_now(now);
            work::prune(&mut self.journal, server_now, out);
        }
    }

    fn frame(&mut self, frame: FromGateway, now: Duration, out: &mut Vec<Effect>) {
        match (frame, &mut self.session.state) {
            (_, State::Disconnected { .. } | State::Connecting | State::Stopped) => {}
            (FromGateway::Rejected(rejected), _) => {
                let (code, message) = (rejected.code, rejected.message);
                self.session.fail(now, &format!("the gateway rejected this node: {code}"), out);
                out.push(Effect::Tell(Notice::Rejected { code, message }));
            }
            (FromGateway::Drain(drain), _) => {
                self.session.drain(now, Duration::from_millis(drain.retry_after_ms.into()), out);
            }
            (FromGateway::Welcome(welcome), _) => self.welcome(welcome, now, out),
            (FromGateway::Ping(ping), _) => out.push(Effect::Send(ToGateway::Pong(Pong { seq: ping.seq }))),
            (_, State::AwaitWelcome { .. }) => {
                self.session.fail(now, "the gateway gave orders before its Welcome", out);
            }
            (FromGateway::Command(command), State::Open(open)) => {
                let server_now = open.server_now(now).max(self.journal.mark().server_unix_ms);
                let generation = self.convergence.applied_generation();
                let situation = Situation { config: &self.config, generation, server_now };
                work::deliver(situation, &mut self.journal, &mut self.deferred, command, out);
            }
            (FromGateway::CommandAck(ack), State::Open(_)) => {
                work::acknowledged(&mut self.journal, &ack.id, out);
                self.pump_results(1, out);
            }
            (FromGateway::EventAck(ack), State::Open(open)) => {
                let (sent, server_now) = (open.events_sent, open.server_now(now));
                events::acknowledged(&mut self.journal, ack.through_seq, sent, server_now, out);
                self.pump_events(out);
            }
            (FromGateway::Lease(lease), State::Open(open)) => out.push(Effect::Tell(open.lease(lease))),
            (FromGateway::Spec(spec), State::Open(_)) => {
                self.convergence.take(&self.config.sections, &mut self.journal, spec, now, out);
                self.deliver_deferred(now, out);
            }
            (FromGateway::Cancel(cancel), State::Open(_)) => {
                work::call_back(&mut self.deferred, &cancel.id, out);
                if self.journal.unfinished().any(|entry| entry.command.id == cancel.id) {
                    out.push(Effect::Cancel(cancel.id));
                }
            }
        }
    }

    fn welcome(&mut self, welcome: Welcome, now: Duration, out: &mut Vec<Effect>) {
        let told = welcome.server_unix_ms;
        if let Welcomed::Refused = self.session.welcome(welcome, &self.journal, now, out) {
            return;
        }
        if told > self.journal.mark().server_unix_ms {
            let mark = JournalMark { server_unix_ms: told, ..*self.journal.mark() };
            work::persist(&mut self.journal, Record::Mark(mark), out);
        }
        self.convergence.report_again();
        self.pump_results(RESULT_WINDOW, out);
        self.pump_events(out);
    }

    /// Sends `count` more of the results that control has not acknowledged.
    fn pump_results(&mut self, count: usize, out: &mut Vec<Effect>) {
        let Some(open) = self.session.open() else { return };
        for _ in 0..count {
            let Some(entry) = open.results.pop_front().and_then(|id| self.journal.command(&id)) else {
                return;
            };
            if !entry.is_acked() {
                out.push(Effect::tell_command(entry.update()));
            }
        }
    }

    fn pump_events(&mut self, out: &mut Vec<Effect>) {
        if let Some(open) = self.session.open() {
            events::pump(&self.journal, &mut open.events_sent, out);
        }
    }

    /// Control's time, as well as this agent knows it.
    fn server_now(&mut self, now: Duration) -> i64 {
        let told = self.journal.mark().server_unix_ms;
        self.session.open().map_or(told, |open| open.server_now(now).max(told))
    }

    /// What the journal holds is told after the next Welcome.
    fn drop_sends(&self, out: &mut Vec<Effect>) {
        if !self.session.is_open() {
            out.retain(|effect| !matches!(effect, Effect::Send(_)));
        }
    }
}
