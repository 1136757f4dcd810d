//! Open sessions, in memory: who is connected, and who has been silent for how long.
//!
//! ```text
//!             Hello                    20 s silent                   20 s more
//!   (none) ──────────▶ Open ─────────────────────▶ Open, pinged ────────────────▶ (closed)
//!                       ▲                               │
//!                       └────────── any frame ──────────┘
//! ```
//! Apart from it, a node that was heard of once is watched: 40 s without any frame in any session make it
//! unreachable. A lost connection alone does not. After a restart of control everybody gets the full 40 s.
//! Silence is counted in time that control has lived through (see [`Lived`]), not in time of day.

use std::collections::BTreeMap;

use ironwright_proto::kinds::Role;

use super::lived::Lived;
use crate::output::SessionRef;

/// How often agents send a heartbeat.
pub const HEARTBEAT_INTERVAL_MS: u32 = 10_000;
/// A session silent for so long is pinged.
pub const PING_AFTER_MS: i64 = 20_000;
/// A session silent for so long is closed, and a node silent for so long is unreachable.
pub const SILENCE_LIMIT_MS: i64 = 40_000;

/// An open session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Live {
    pub(crate) epoch: u64,
    pub(crate) role: Role,
    pub(crate) boot_id: String,
    /// The site, for a site agent.
    pub(crate) site: Option<String>,
    /// Generation of the spec that was sent in this session.
    pub(crate) spec_sent: u64,
    /// In [`Lived`] time.
    last_frame_ms: i64,
    pinged: bool,
}

/// All open sessions, and the nodes that are watched.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    open: BTreeMap<String, Live>,
    heard: BTreeMap<String, Heard>,
    lived: Lived,
}

/// When a node was heard last.
#[derive(Debug, Clone, Copy)]
struct Heard {
    /// Epoch of its newest session that this gateway knows of.
    epoch: u64,
    /// In [`Lived`] time.
    at_ms: i64,
}

/// What silence means now.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Silence {
    pub(crate) ping: Vec<SessionRef>,
    pub(crate) close: Vec<SessionRef>,
    /// With the epoch of the newest session that is known here.
    pub(crate) unreachable: Vec<(String, u64)>,
}

impl Sessions {
    /// Begins to watch a node whose newest session was opened before this process was started, or by a gateway that
    /// is gone.
    pub(crate) fn watch(&mut self, node: &str, epoch: u64, now_ms: i64) {
        let at_ms = self.lived.at(now_ms);
        self.heard.insert(node.to_owned(), Heard { epoch, at_ms });
    }

    /// Time lived through; it only goes on with [`Self::silence`].
    pub(crate) fn lived_ms(&mut self, now_ms: i64) -> i64 {
        self.lived.at(now_ms)
    }

    /// Ends all sessions.
    pub(crate) fn end_all(&mut self) -> Vec<SessionRef> {
        std::mem::take(&mut self.open)
            .into_iter()
            .map(|(node, live)| SessionRef { node, epoch: live.epoch })
            .collect()
    }

    /// Opens a session; gives the older one of the node, which is fenced.
    pub(crate) fn open(
        &mut self,
        node: &str,
        epoch: u64,
        role: Role,
        boot_id: &str,
        site: Option<String>,
        now_ms: i64,
    ) -> Option<SessionRef> {
        let now = self.lived.at(now_ms);
        self.heard.insert(node.to_owned(), Heard { epoch, at_ms: now });
        let boot_id = boot_id.to_owned();
        let live = Live { epoch, role, boot_id, site, spec_sent: 0, last_frame_ms: now, pinged: false };
        let older = self.open.insert(node.to_owned(), live);
        older.map(|older| SessionRef { node: node.to_owned(), epoch: older.epoch })
    }

    /// The session of a node, if it is still the one of this epoch.
    pub(crate) fn current(&self, node: &str, epoch: u64) -> Option<&Live> {
        self.open.get(node).filter(|live| live.epoch == epoch)
    }

    /// The open session of a node.
    pub(crate) fn of(&self, node: &str) -> Option<&Live> {
        self.open.get(node)
    }

    /// Whether a spec is not sent yet in the node's session, which is noted.
    pub(crate) fn send_spec(&mut self, node: &str, generation: u64) -> bool {
        let live = self.open.get_mut(node).filter(|live| live.spec_sent < generation);
        live.map(|live| live.spec_sent = generation).is_some()
    }

    /// Notes that a frame came.
    pub(crate) fn heard(&mut self, node: &str, now_ms: i64) {
        if let Some(live) = self.open.get_mut(node) {
            let now = self.lived.at(now_ms);
            live.last_frame_ms = now;
            live.pinged = false;
            self.heard.insert(node.to_owned(), Heard { epoch: live.epoch, at_ms: now });
        }
    }

    /// Forgets a session, unless a newer one has taken its place.
    pub(crate) fn closed(&mut self, node: &str, epoch: u64) {
        if self.current(node, epoch).is_some() {
            self.open.remove(node);
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.open.len()
    }

    /// Whom to ping, close and give up. Says each only once. To be asked at least every two seconds.
    pub(crate) fn silence(&mut self, now_ms: i64) -> Silence {
        let now = self.lived.tick(now_ms);
        let mut silence = Silence::default();
        for (node, live) in &mut self.open {
            let to = SessionRef { node: node.clone(), epoch: live.epoch };
            let silent_ms = now - live.last_frame_ms;
            if silent_ms >= SILENCE_LIMIT_MS {
                silence.close.push(to);
            } else if silent_ms >= PING_AFTER_MS && !live.pinged {
                live.pinged = true;
                silence.ping.push(to);
            }
        }
        for gone in &silence.close {
            self.open.remove(&gone.node);
        }
        self.heard.retain(|node, heard| {
            let reachable = now - heard.at_ms < SILENCE_LIMIT_MS;
            if !reachable {
                silence.unreachable.push((node.clone(), heard.epoch));
            }
            reachable
        });
        silence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sessions, and a clock that ticks every second.
    #[derive(Default)]
    struct Watch {
        sessions: Sessions,
        now_ms: i64,
    }

    impl Watch {
        fn open(&mut self, epoch: u64) -> Option<SessionRef> {
            self.sessions.open("n", epoch, Role::Node, "boot", None, self.now_ms)
        }

        /// Everything that is said until `seconds`.
        fn until(&mut self, seconds: i64) -> Silence {
            let mut all = Silence::default();
            while self.now_ms < seconds * 1000 {
                self.now_ms += 1000;
                let mut said = self.sessions.silence(self.now_ms);
                all.ping.append(&mut said.ping);
                all.close.append(&mut said.close);
                all.unreachable.append(&mut said.unreachable);
            }
            all
        }
    }

    #[test]
    fn silence_is_pinged_then_closed_and_any_frame_ends_it() {
        let mut watch = Watch::default();
        watch.open(1);
        let session = SessionRef { node: "n".into(), epoch: 1 };
        assert_eq!(watch.until(19), Silence::default());
        assert_eq!(watch.until(20).ping, std::slice::from_ref(&session));
        assert_eq!(watch.until(30), Silence::default(), "one ping");
        watch.sessions.heard("n", watch.now_ms);
        assert_eq!(watch.until(49), Silence::default());
        assert_eq!(watch.until(69).ping, std::slice::from_ref(&session));
        let end = watch.until(70);
        assert_eq!((end.close, end.unreachable), (vec![session], vec![("n".to_owned(), 1)]));
        assert_eq!(watch.until(80), Silence::default(), "said once");
    }

    #[test]
    fn a_lost_connection_alone_makes_nobody_unreachable() {
        let mut watch = Watch::default();
        watch.open(1);
        watch.sessions.closed("n", 1);
        assert!(watch.sessions.of("n").is_none());
        assert_eq!(watch.until(39).unreachable, []);
        watch.open(2);
        assert_eq!(watch.until(78).unreachable, []);
    }

    #[test]
    fn a_restart_gives_full_grace() {
        let mut watch = Watch { now_ms: 1_000_000, ..Watch::default() };
        watch.sessions.watch("n", 7, watch.now_ms);
        assert_eq!(watch.until(1039), Silence::default());
        assert_eq!(watch.until(1040).unreachable, [("n".to_owned(), 7)]);
    }

    #[test]
    fn a_clock_that_is_set_makes_nobody_silent() {
        let mut watch = Watch::default();
        watch.open(1);
        assert_eq!(watch.until(10), Silence::default());
        watch.now_ms += 90_000;
        assert_eq!(watch.sessions.silence(watch.now_ms), Silence::default());
        watch.now_ms -= 180_000;
        assert_eq!(watch.sessions.silence(watch.now_ms), Silence::default());
        assert_eq!(watch.until(-55).unreachable, [], "27 s were lived through");
        assert_eq!(watch.until(-41).unreachable, [("n".to_owned(), 1)], "and now 40 s at most");
    }

    #[test]
    fn a_newer_session_fences_the_older_one() {
        let mut watch = Watch::default();
        assert_eq!(watch.open(1), None);
        assert_eq!(watch.open(2), Some(SessionRef { node: "n".into(), epoch: 1 }));
        assert!(watch.sessions.current("n", 1).is_none());
        watch.sessions.closed("n", 1);
        assert!(
            watch.sessions.current("n", 2).is_some(),
            "the end of the fenced one does not end the newer one"
        );
    }
}
