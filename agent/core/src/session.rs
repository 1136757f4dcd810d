//! One session after the other with the gateway.
//!
//! ```text
//!                    ┌────────── the wait is over: Connect ──────────┐
//!                    │                                               ▼
//!  ┌────────────────────────┐      link lost                   ┌────────────┐
//!  │ Disconnected{until}    │◄─────────────────────────────────│ Connecting │
//!  └────────────────────────┘                                  └────────────┘
//!     ▲    ▲                                                         │ connected: send Hello
//!     │    │ 30 s, Rejected, a Welcome from the past,                ▼
//!     │    │ any other frame, link lost                      ┌──────────────┐
//!     │    └─────────────────────────────────────────────────│ AwaitWelcome │
//!     │                                                      └──────────────┘
//!     │ link lost, Rejected, a second Welcome: full jitter           │ Welcome
//!     │ Drain: exactly its retry_after                               ▼
//!     └───────────────────────────────────────────────────────────┌──────┐
//!                                                                 │ Open │ heartbeats
//!                                 Stop, from any state: Stopped   └──────┘
//! ```
//!
//! The shell promises that a Connect is answered by Connected or by LinkLost in bounded time, and that a
//! link whose peer stays silent through an HTTP/2 PING (20 s, then 20 s) is lost: control says nothing of
//! its own to a healthy agent, so there is no frame here to judge its silence by.

use std::{collections::VecDeque, time::Duration};

use ironwright_proto::{
    Message,
    wire::{Heartbeat, Hello, Lease, Welcome, agent_frame::Frame},
};

use crate::{
    Config, Effect, Notice,
    backoff::Backoff,
    journal::{CommandEntry, Journal},
};

/// A Hello is answered within this time.
pub const WELCOME_TIMEOUT: Duration = Duration::from_secs(30);
/// A session that was open this long was a success: the next wait starts small again.
const STABLE_AFTER: Duration = Duration::from_secs(10);
/// What a gateway may ask for as heartbeat interval.
const HEARTBEAT: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(60);
/// A Welcome may be this much before the latest time that control has told.
pub const TIME_TOLERANCE_MS: i64 = 5 * 60 * 1000;
/// Final states in a Hello have at most this many bytes together …
const HELLO_BUDGET: usize = 1 << 20;
/// … and are at most this many; what does not fit is sent after it.
const HELLO_RESULTS: usize = 1024;
const VERSION: u32 = 1;

/// Where the session is.
#[derive(Debug)]
pub(crate) enum State {
    Disconnected { until: Duration },
    Connecting,
    AwaitWelcome { asked: Duration },
    Open(Open),
    Stopped,
}

/// An open session.
#[derive(Debug)]
pub(crate) struct Open {
    since: Duration,
    heartbeat_every: Duration,
    next_heartbeat: Duration,
    heartbeats: u64,
    /// When the lease was asked for that is given next: the oldest unanswered heartbeat.
    lease_asked: Option<Duration>,
    last_asked: Duration,
    server_unix_ms: i64,
    /// The last event sent in this session.
    pub(crate) events_sent: u64,
    /// Results that wait for their turn to be sent again.
    pub(crate) results: VecDeque<String>,
}

impl Open {
    fn new(welcome: &Welcome, asked: Duration, now: Duration, journal: &Journal) -> Self {
        let every = Duration::from_millis(welcome.heartbeat_interval_ms.into());
        let heartbeat_every = every.clamp(*HEARTBEAT.start(), *HEARTBEAT.end());
        Self {
            since: now,
            heartbeat_every,
            next_heartbeat: now + heartbeat_every,
            heartbeats: 0,
            lease_asked: None,
            last_asked: asked,
            server_unix_ms: welcome.server_unix_ms,
            events_sent: journal.mark().events_through_seq,
            results: journal.unacked().map(|entry| entry.command.id.clone()).collect(),
        }
    }

    /// Control's time, by its Welcome and our own clock's pace.
    pub(crate) fn server_now(&self, now: Duration) -> i64 {
        let passed = i64::try_from(now.saturating_sub(self.since).as_millis()).unwrap_or(i64::MAX);
        self.server_unix_ms.saturating_add(passed)
    }

    /// A lease counts from when it was asked for. Where it is not certain which heartbeat it answers, the
    /// earlier one counts, so that this side's lease ends first.
    pub(crate) fn lease(&mut self, lease: Lease) -> Notice {
        self.last_asked = self.lease_asked.take().unwrap_or(self.last_asked);
        Notice::Lease { lease, asked: self.last_asked }
    }
}

/// What a Welcome leads to.
pub(crate) enum Welcomed {
    Opened,
    Refused,
}

/// The session's state, and when to try again.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) state: State,
    backoff: Backoff,
}

impl Session {
    pub(crate) fn new(backoff: Backoff) -> Self {
        Self { state: State::Disconnected { until: Duration::ZERO }, backoff }
    }

    pub(crate) fn open(&mut self) -> Option<&mut Open> {
        match &mut self.state {
            State::Open(open) => Some(open),
            _ => None,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// When [`Self::tick`] has something to do.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        match &self.state {
            State::Disconnected { until } => Some(*until),
            State::AwaitWelcome { asked } => Some(*asked + WELCOME_TIMEOUT),
            State::Open(open) => Some(open.next_heartbeat),
            State::Connecting | State::Stopped => None,
        }
    }

    pub(crate) fn tick(&mut self, now: Duration, out: &mut Vec<Effect>) {
        match &mut self.state {
            State::Disconnected { until } if now >= *until => {
                self.state = State::Connecting;
                out.push(Effect::Connect);
            }
            State::AwaitWelcome { asked } if now >= *asked + WELCOME_TIMEOUT => {
                self.fail(now, "the gateway did not answer Hello within 30 s", out);
            }
            State::Open(open) if now >= open.next_heartbeat => {
                open.heartbeats += 1;
                open.next_heartbeat = now + open.heartbeat_every;
                open.lease_asked.get_or_insert(now);
                out.push(Effect::Send(Frame::Heartbeat(Heartbeat { seq: open.heartbeats })));
            }
            _ => {}
        }
    }

    pub(crate) fn connected(
        &mut self,
        config: &Config,
        journal: &Journal,
        now: Duration,
        out: &mut Vec<Effect>,
    ) {
        if matches!(self.state, State::Connecting) {
            self.state = State::AwaitWelcome { asked: now };
            out.push(Effect::Send(Frame::Hello(hello(config, journal))));
        }
    }

    pub(crate) fn welcome(
        &mut self,
        welcome: Welcome,
        journal: &Journal,
        now: Duration,
        out: &mut Vec<Effect>,
    ) -> Welcomed {
        let State::AwaitWelcome { asked } = self.state else {
            self.fail(now, "the gateway sent a second Welcome", out);
            return Welcomed::Refused;
        };
        if welcome.server_unix_ms.saturating_add(TIME_TOLERANCE_MS) < journal.mark().server_unix_ms {
            self.fail(now, "the gateway's time is more than 5 minutes before the latest it has told", out);
            return Welcomed::Refused;
        }
        let mut open = Open::new(&welcome, asked, now, journal);
        let lease = welcome.lease.clone().map(|lease| open.lease(lease));
        self.state = State::Open(open);
        out.push(Effect::Tell(Notice::Open(welcome)));
        out.extend(lease.map(Effect::Tell));
        Welcomed::Opened
    }

    /// The link is gone, or never came to be.
    pub(crate) fn link_lost(&mut self, now: Duration, out: &mut Vec<Effect>) {
        if matches!(self.state, State::Connecting | State::AwaitWelcome { .. } | State::Open(_)) {
            self.leave(now, None, out);
        }
    }

    /// Ends the link for a reason worth telling.
    pub(crate) fn fail(&mut self, now: Duration, why: &str, out: &mut Vec<Effect>) {
        out.push(Effect::Disconnect);
        out.push(Effect::Tell(Notice::Failed(why.to_owned())));
        self.leave(now, None, out);
    }

    /// The gateway asks to come again after `wait`, which is followed exactly.
    pub(crate) fn drain(&mut self, now: Duration, wait: Duration, out: &mut Vec<Effect>) {
        out.push(Effect::Disconnect);
        self.leave(now, Some(wait), out);
    }

    pub(crate) fn stop(&mut self, out: &mut Vec<Effect>) {
        self.state = State::Stopped;
        out.push(Effect::Disconnect);
    }

    fn leave(&mut self, now: Duration, wait: Option<Duration>, out: &mut Vec<Effect>) {
        if let State::Open(open) = &self.state {
            if now.saturating_sub(open.since) >= STABLE_AFTER {
                self.backoff.reset();
            }
            out.push(Effect::Tell(Notice::Closed));
        }
        let wait = wait.unwrap_or_else(|| self.backoff.next());
        self.state = State::Disconnected { until: now + wait };
    }
}

/// Lists every command that control has not acknowledged. Results beyond the budget are left out: control
/// then sends those commands again and gets the stored results.
fn hello(config: &Config, journal: &Journal) -> Hello {
    let mut commands: Vec<_> = journal.unfinished().map(CommandEntry::update).collect();
    let mut bytes = 0;
    for entry in journal.unacked().take(HELLO_RESULTS) {
        let update = entry.update();
        bytes += update.encoded_len();
        if bytes > HELLO_BUDGET {
            break;
        }
        commands.push(update);
    }
    Hello {
        version: VERSION,
        role: config.role.as_str().to_owned(),
        boot_id: config.boot_id.clone(),
        journal_id: journal.id().to_owned(),
        agent_version: config.agent_version.clone(),
        commands,
        site: config.site.clone(),
        address: config.address.clone(),
        observed_generation: journal.spec().generation,
    }
}
