//! The gateways that share a store, and whose task it is to watch a node.
//!
//! ```text
//!             first beat            stands still for 30 s of another one's lived time
//!   (none) ───────────────▶ Alive ─────────────────────────────────────────────────────▶ (gone)
//!                          every 10 s               the other one adopts its nodes
//! ```
//! The gateway that opened a node's newest session watches the node: it alone may find it unreachable. When it dies,
//! another one adopts its nodes and gives each the full time. Beats are numbers, not times, because the clocks of two
//! gateways need not agree. One that was taken for dead ends its sessions when it notices; their agents come back.
//!
//! A control of one process is one gateway alone, and all this comes to one small write every ten seconds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{error::Error, nodes, table::Table, tx::Tx};

/// How often a gateway beats.
const BEAT_EVERY_MS: i64 = 10_000;
/// A gateway whose beat stands still for so long is gone.
const BEAT_LIMIT_MS: i64 = 30_000;
/// Nodes that are adopted in one transaction.
const ADOPT_BATCH: usize = 1000;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Beat(u64);

/// By gateway.
const BEATS: Table<Beat> = Table::new("gateway");

/// What a beat found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Beaten {
    /// Another gateway took this one for dead since its last beat.
    pub(crate) taken_for_dead: bool,
    own: Beat,
    others: BTreeMap<String, Beat>,
}

/// A gateway's own beat, and what it has seen of the others.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    own: Option<Beat>,
    last_ms: Option<i64>,
    /// The newest beat of each other one, and since when it stands, in lived time.
    others: BTreeMap<String, (Beat, i64)>,
}

impl Pulse {
    /// Whether it is time to beat. A clock that was set makes it so, too.
    pub(crate) fn is_due(&self, now_ms: i64) -> bool {
        self.last_ms.is_none_or(|last| (now_ms - last).abs() >= BEAT_EVERY_MS)
    }

    /// The transaction of a beat, to be followed by [`Self::beaten`].
    pub(crate) fn beat(&self, tx: &mut Tx<'_>, me: &str) -> Result<Beaten, Error> {
        let stored = BEATS.get(tx.txn, me)?;
        let own = Beat(stored.map_or(0, |beat| beat.0) + 1);
        BEATS.put(tx.txn, me, &own)?;
        let others = BEATS.scan(tx.txn, "", "", usize::MAX)?.into_iter().filter(|(id, _)| id != me).collect();
        Ok(Beaten { taken_for_dead: self.own.is_some() && stored != self.own, own, others })
    }

    /// Notes a beat that is in the store; gives the gateways that are gone. `lived_ms` is time lived through.
    pub(crate) fn beaten(&mut self, beaten: Beaten, now_ms: i64, lived_ms: i64) -> Vec<Gone> {
        self.last_ms = Some(now_ms);
        self.own = Some(beaten.own);
        self.others.retain(|id, _| beaten.others.contains_key(id));
        let mut gone = Vec::new();
        for (id, beat) in beaten.others {
            let seen = self.others.entry(id.clone()).or_insert((beat, lived_ms));
            if seen.0 != beat {
                *seen = (beat, lived_ms);
            } else if lived_ms - seen.1 >= BEAT_LIMIT_MS {
                gone.push(Gone { id, beat });
            }
        }
        gone
    }
}

/// A gateway that is gone, at its last beat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gone {
    id: String,
    beat: Beat,
}

/// Takes over some of the nodes of a gateway that is gone, with the epochs of their sessions. Gives none once all are
/// taken, and where the gateway beats again after all.
pub(crate) fn adopt(tx: &mut Tx<'_>, gone: &Gone, me: &str) -> Result<Vec<(String, u64)>, Error> {
    if BEATS.get(tx.txn, &gone.id)? != Some(gone.beat) {
        return Ok(Vec::new());
    }
    let mut adopted = Vec::new();
    for node in nodes::held_by(tx.txn, &gone.id, "", ADOPT_BATCH)? {
        let Some(mut record) = nodes::get(tx.txn, &node)? else { continue };
        nodes::hold(tx, &mut record, me)?;
        nodes::put(tx, &record)?;
        adopted.push((node, record.node.session_epoch));
    }
    if adopted.is_empty() {
        BEATS.delete(tx.txn, &gone.id)?;
    }
    Ok(adopted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        store::{MemStore, Store},
        tx::Seed,
    };

    fn beat(store: &MemStore, pulse: &mut Pulse, me: &str, at_ms: i64) -> (bool, Vec<Gone>) {
        let beaten =
            store.write::<_, Error>(|txn| pulse.beat(&mut Tx::new(txn, at_ms, Seed::NONE), me)).unwrap();
        (beaten.taken_for_dead, pulse.beaten(beaten, at_ms, at_ms))
    }

    fn adopt_by(store: &MemStore, gone: &Gone, me: &str) -> Vec<(String, u64)> {
        store.write::<_, Error>(|txn| adopt(&mut Tx::new(txn, 0, Seed::NONE), gone, me)).unwrap()
    }

    #[test]
    fn a_gateway_that_stands_still_is_gone_after_thirty_seconds() {
        let (store, mut a, mut b) = (MemStore::new(), Pulse::default(), Pulse::default());
        beat(&store, &mut a, "a", 0);
        for at in [0, 10_000, 20_000, 29_999] {
            assert_eq!(beat(&store, &mut b, "b", at), (false, vec![]));
        }
        let (_, gone) = beat(&store, &mut b, "b", 30_000);
        assert_eq!(gone, [Gone { id: "a".into(), beat: Beat(1) }]);
    }

    #[test]
    fn one_that_beats_again_before_it_is_adopted_keeps_its_nodes() {
        let (store, mut a) = (MemStore::new(), Pulse::default());
        beat(&store, &mut a, "a", 0);
        beat(&store, &mut a, "a", 10_000);
        assert_eq!(adopt_by(&store, &Gone { id: "a".into(), beat: Beat(1) }, "b"), []);
        assert_eq!(beat(&store, &mut a, "a", 20_000), (false, vec![]));
    }

    #[test]
    fn one_that_was_taken_for_dead_notices_it_once() {
        let (store, mut a) = (MemStore::new(), Pulse::default());
        beat(&store, &mut a, "a", 0);
        assert_eq!(adopt_by(&store, &Gone { id: "a".into(), beat: Beat(1) }, "b"), []);
        assert!(beat(&store, &mut a, "a", 10_000).0);
        assert!(!beat(&store, &mut a, "a", 20_000).0);
    }

    #[test]
    fn a_restart_goes_on_with_the_beat() {
        let (store, mut before, mut after) = (MemStore::new(), Pulse::default(), Pulse::default());
        beat(&store, &mut before, "a", 0);
        for at in [10_000, 20_000, 30_000] {
            assert_eq!(beat(&store, &mut after, "a", at), (false, vec![]));
        }
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_stop_the_beat() {
        let mut pulse = Pulse::default();
        beat(&MemStore::new(), &mut pulse, "a", 100_000);
        assert_eq!([100_001, 110_000, 90_000].map(|now| pulse.is_due(now)), [false, true, true]);
    }
}
