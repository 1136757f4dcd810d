//! The client's decisions (RFC 2131 §4.4): bytes and time come in, messages and news come out.
//!
//! ```text
//!              offer                    ack
//! Selecting ─────────► Requesting ───────────────► Bound
//!   ▲  ▲ ▲               │ nak, or 4 unanswered      │ T1
//!   │  │ └───────────────┘                           ▼        ack
//!   │  │                                           Renewing ───────► Bound
//!   │  └────────────── nak (lost) ───────────────────┤ T2
//!   │                                                ▼        ack
//!   └───────── nak, or lease over (lost) ────────── Rebinding ─────► Bound
//! ```

use std::{
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use dhcproto::v4::SERVER_PORT;
use ironwright_proto::ids::Mac;
use rand::{Rng, SeedableRng, rngs::StdRng};

use super::message::{Ask, Lease, Reply, parse, request};

/// First wait for an offer or an acknowledgement. RFC 2131 says 4 s, but the first packet after a link came
/// up is the one most often lost, and a boot waits for it.
const FIRST_RESEND: Duration = Duration::from_secs(1);
/// Longest wait for an offer.
const LONGEST_RESEND: Duration = Duration::from_secs(16);
/// Unanswered requests of an offer before the search begins anew.
const MAX_REQUESTS: u32 = 4;
/// Shortest pause between renewals.
const MIN_RENEW_PAUSE: Duration = Duration::from_secs(5);

/// What happened.
#[derive(Debug, Clone, Copy)]
pub enum Input<'a> {
    /// Time has passed; given at [`Client::wake`].
    Time,
    /// A datagram came to the client port.
    Datagram(&'a [u8]),
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Send to this address, server port.
    Send {
        /// The broadcast address, or our server.
        to: Ipv4Addr,
        /// The datagram.
        bytes: Vec<u8>,
    },
    /// The lease holds, newly or again; it may differ from the one before.
    Bound(Lease),
    /// The address may no longer be used.
    Lost(&'static str),
}

#[derive(Debug)]
enum State {
    Selecting,
    Requesting(Lease),
    Bound { lease: Lease, since: Instant },
    Renewing { lease: Lease, since: Instant },
    Rebinding { lease: Lease, since: Instant },
}

/// A DHCP client of one interface.
#[derive(Debug)]
pub struct Client {
    mac: Mac,
    rng: StdRng,
    state: State,
    xid: u32,
    /// When this exchange began, and when its first request with this `xid` went out.
    began: Instant,
    asked: Instant,
    /// Requests sent in this state.
    sent: u32,
    wake: Instant,
}

impl Client {
    /// The server's port.
    pub const SERVER_PORT: u16 = SERVER_PORT;

    /// A client that begins to ask at its first [`Input::Time`].
    pub fn new(mac: Mac, seed: u64, now: Instant) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let xid = rng.r#gen();
        Self { mac, rng, state: State::Selecting, xid, began: now, asked: now, sent: 0, wake: now }
    }

    /// When [`Input::Time`] is wanted next.
    pub fn wake(&self) -> Instant {
        self.wake
    }

    /// One step.
    pub fn step(&mut self, input: Input<'_>, now: Instant) -> Vec<Effect> {
        match input {
            Input::Time if now < self.wake => Vec::new(),
            Input::Time => self.time(now),
            // Every datagram on the segment comes here; what is no answer to us is nothing to us.
            Input::Datagram(bytes) => {
                parse(bytes, self.xid, self.mac).map(|reply| self.reply(reply, now)).unwrap_or_default()
            }
        }
    }

    fn time(&mut self, now: Instant) -> Vec<Effect> {
        match &self.state {
            State::Selecting => vec![self.ask_for_offers(now)],
            State::Requesting(_) if self.sent >= MAX_REQUESTS => self.search(now),
            State::Requesting(lease) => {
                let lease = lease.clone();
                vec![self.take(&lease, now)]
            }
            State::Bound { lease, since } => {
                self.state = State::Renewing { lease: lease.clone(), since: *since };
                self.new_exchange(now);
                self.keep(now)
            }
            State::Renewing { lease, since } if now >= *since + lease.rebind_after => {
                self.state = State::Rebinding { lease: lease.clone(), since: *since };
                self.keep(now)
            }
            State::Rebinding { lease, since } if now >= *since + lease.holds => {
                self.lose("nobody renewed the lease", now)
            }
            State::Renewing { .. } | State::Rebinding { .. } => self.keep(now),
        }
    }

    fn reply(&mut self, reply: Reply, now: Instant) -> Vec<Effect> {
        match (&self.state, reply) {
            (State::Selecting, Reply::Offer(lease)) if self.sent > 0 => {
                self.sent = 0;
                let request = self.take(&lease, now);
                self.state = State::Requesting(lease);
                vec![request]
            }
            (State::Requesting(offer), Reply::Ack(lease)) if lease.server == offer.server => self.bind(lease),
            (State::Requesting(offer), Reply::Nak(server)) if server.is_none_or(|s| s == offer.server) => {
                self.search(now)
            }
            (State::Renewing { .. } | State::Rebinding { .. }, Reply::Ack(lease)) => self.bind(lease),
            (State::Renewing { .. } | State::Rebinding { .. }, Reply::Nak(_)) => {
                self.lose("the server took the lease back", now)
            }
            _ => Vec::new(),
        }
    }

    fn bind(&mut self, lease: Lease) -> Vec<Effect> {
        // Which of the requests with this `xid` the server answers is not known, so the first counts (§4.4.1).
        let since = self.asked;
        self.wake = since + lease.renew_after;
        self.state = State::Bound { lease: lease.clone(), since };
        vec![Effect::Bound(lease)]
    }

    fn lose(&mut self, why: &'static str, now: Instant) -> Vec<Effect> {
        let mut effects = vec![Effect::Lost(why)];
        effects.extend(self.search(now));
        effects
    }

    fn search(&mut self, now: Instant) -> Vec<Effect> {
        self.state = State::Selecting;
        self.new_exchange(now);
        vec![self.ask_for_offers(now)]
    }

    fn new_exchange(&mut self, now: Instant) {
        self.xid = self.rng.r#gen();
        self.began = now;
        self.sent = 0;
    }

    fn ask_for_offers(&mut self, now: Instant) -> Effect {
        self.sent_with_backoff(now);
        self.send(Ipv4Addr::BROADCAST, Ask::Discover, now)
    }

    fn take(&mut self, offer: &Lease, now: Instant) -> Effect {
        self.sent_with_backoff(now);
        self.send(Ipv4Addr::BROADCAST, Ask::Take(offer), now)
    }

    /// Asks to keep the lease, and plans the next try at half of the time that is left in this state.
    fn keep(&mut self, now: Instant) -> Vec<Effect> {
        let (to, lease, end) = match &self.state {
            State::Renewing { lease, since } => (lease.server, lease, *since + lease.rebind_after),
            State::Rebinding { lease, since } => (Ipv4Addr::BROADCAST, lease, *since + lease.holds),
            _ => return Vec::new(),
        };
        let left = end.saturating_duration_since(now);
        self.asked = now;
        // With a number of its own, an answer is to this request, and the lease counts from it.
        self.xid = self.rng.r#gen();
        self.wake = end.min(now + (left / 2).max(MIN_RENEW_PAUSE));
        vec![self.send(to, Ask::Keep(lease), now)]
    }

    fn sent_with_backoff(&mut self, now: Instant) {
        let pause = FIRST_RESEND.saturating_mul(1 << self.sent.min(8)).min(LONGEST_RESEND);
        // Machines of one rack wake together; up to a quarter more keeps them from asking together.
        self.wake = now + pause.mul_f64(self.rng.gen_range(1.0..1.25));
        if self.sent == 0 {
            self.asked = now;
        }
        self.sent = self.sent.saturating_add(1);
    }

    fn send(&self, to: Ipv4Addr, ask: Ask<'_>, now: Instant) -> Effect {
        let seconds = now.saturating_duration_since(self.began).as_secs();
        let seconds = u16::try_from(seconds).unwrap_or(u16::MAX);
        Effect::Send { to, bytes: request(ask, self.mac, self.xid, seconds) }
    }
}
