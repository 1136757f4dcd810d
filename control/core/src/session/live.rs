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

use std::collections::BTreeMap;

use ironwright_proto::kinds::Role;

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
    last_frame_ms: i64,
    pinged: bool,
}

/// All open sessions, and the nodes that are watched.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    open: BTreeMap<String, Live>,
    /// When a frame of a node came last.
    heard: BTreeMap<String, i64>,
}

/// What silence means now.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Silence {
    pub(crate) ping: Vec<SessionRef>,
    pub(crate) close: Vec<SessionRef>,
    pub(crate) unreachable: Vec<String>,
}

impl Sessions {
    /// Begins to watch a node that had a session before control was started.
    pub(crate) fn watch(&mut self, node: &str, now_ms: i64) {
        self.heard.insert(node.to_owned(), now_ms);
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
        self.heard.insert(node.to_owned(), now_ms);
        let boot_id = boot_id.to_owned();
        let live = Live { epoch, role, boot_id, site, last_frame_ms: now_ms, pinged: false };
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

    /// Notes that a frame came.
    pub(crate) fn heard(&mut self, node: &str, now_ms: i64) {
        if let Some(live) = self.open.get_mut(node) {
            live.last_frame_ms = now_ms;
            live.pinged = false;
            self.heard.insert(node.to_owned(), now_ms);
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

    /// Whom to ping, close and give up. Says each only once.
    pub(crate) fn silence(&mut self, now_ms: i64) -> Silence {
        let mut silence = Silence::default();
        for (node, live) in &mut self.open {
            let to = SessionRef { node: node.clone(), epoch: live.epoch };
            let silent_ms = now_ms - live.last_frame_ms;
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
        self.heard.retain(|node, heard_ms| {
            let reachable = now_ms - *heard_ms < SILENCE_LIMIT_MS;
            if !reachable {
                silence.unreachable.push(node.clone());
            }
            reachable
        });
        silence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(sessions: &mut Sessions, epoch: u64, now_ms: i64) -> Option<SessionRef> {
        sessions.open("n", epoch, Role::Node, "boot", None, now_ms)
    }

    #[test]
    fn silence_is_pinged_then_closed_and_any_frame_ends_it() {
        let mut sessions = Sessions::default();
        open(&mut sessions, 1, 0);
        let session = SessionRef { node: "n".into(), epoch: 1 };
        assert_eq!(sessions.silence(19_999), Silence::default());
        assert_eq!(sessions.silence(20_000).ping, std::slice::from_ref(&session));
        assert_eq!(sessions.silence(25_000), Silence::default(), "one ping");
        sessions.heard("n", 30_000);
        assert_eq!(sessions.silence(49_999), Silence::default());
        assert_eq!(sessions.silence(50_000).ping, std::slice::from_ref(&session));
        let end = sessions.silence(70_000);
        assert_eq!((end.close, end.unreachable), (vec![session], vec!["n".to_owned()]));
        assert_eq!(sessions.silence(80_000), Silence::default(), "said once");
    }

    #[test]
    fn a_lost_connection_alone_makes_nobody_unreachable() {
        let mut sessions = Sessions::default();
        open(&mut sessions, 1, 0);
        sessions.closed("n", 1);
        assert!(sessions.of("n").is_none());
        assert_eq!(sessions.silence(39_999).unreachable, [""; 0]);
        open(&mut sessions, 2, 39_999);
        assert_eq!(sessions.silence(79_998).unreachable, [""; 0]);
    }

    #[test]
    fn a_restart_gives_full_grace() {
        let mut sessions = Sessions::default();
        sessions.watch("n", 1_000_000);
        assert_eq!(sessions.silence(1_039_999), Silence::default());
        assert_eq!(sessions.silence(1_040_000).unreachable, ["n"]);
    }

    #[test]
    fn a_newer_session_fences_the_older_one() {
        let mut sessions = Sessions::default();
        assert_eq!(open(&mut sessions, 1, 0), None);
        assert_eq!(open(&mut sessions, 2, 5), Some(SessionRef { node: "n".into(), epoch: 1 }));
        assert!(sessions.current("n", 1).is_none());
        sessions.closed("n", 1);
        assert!(sessions.current("n", 2).is_some(), "the end of the fenced one does not end the newer one");
    }
}
