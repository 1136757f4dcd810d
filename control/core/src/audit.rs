//! The audit log: every change, in the transaction that makes it, chained by hashes.
//!
//! An entry's hash covers the hash before it and all its fields, each with its length in front so that no two
//! entries have the same bytes. Whoever keeps one hash can later tell whether anything up to it was altered.

use ironwright_proto::api::AuditEvent;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{
    error::Error,
    store::{ReadTxn, Store, WriteTxn},
    table::{Table, order},
    tx::Tx,
};

/// How many entries one request gets at most.
pub const MAX_EVENTS: usize = 1000;
/// Longest text from outside that an entry keeps, in characters.
const MAX_TEXT: usize = 500;

const EVENTS: Table<AuditEvent> = Table::new("audit");
const HEAD: Table<Head> = Table::new("audit-head");

/// The newest entry, so that appending reads one key.
#[derive(Serialize, Deserialize)]
struct Head {
    seq: u64,
    hash: String,
}

/// Where the chain does not hold.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// An entry was changed, removed or put in between.
    #[error("the audit log is broken at entry {seq}: {why}")]
    Broken {
        /// Number of the entry.
        seq: u64,
        /// What does not hold.
        why: &'static str,
    },
    /// The log could not be read.
    #[error(transparent)]
    Read(#[from] Error),
}

fn hash(event: &AuditEvent) -> String {
    let detail = event.detail.to_string();
    let texts = [&event.prev_hash, &event.actor, &event.action, &event.subject, &detail];
    let mut hasher = Sha256::new();
    hasher.update(event.seq.to_be_bytes());
    hasher.update(event.at_ms.to_be_bytes());
    for text in texts {
        hasher.update((text.len() as u64).to_be_bytes());
        hasher.update(text.as_bytes());
    }
    hex::encode(hasher.finalize())
}

fn key(seq: u64) -> String {
    order(i64::try_from(seq).unwrap_or(i64::MAX))
}

/// Cuts a text from outside so that the log cannot be filled with it.
pub(crate) fn clip(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}

/// Appends an entry to the log.
pub(crate) fn append(
    tx: &mut Tx<'_>,
    actor: &str,
    action: &str,
    subject: &str,
    detail: Value,
) -> Result<(), Error> {
    append_at(tx.txn, tx.now_ms, actor, action, subject, detail)
}

fn append_at(
    txn: &mut dyn WriteTxn,
    at_ms: i64,
    actor: &str,
    action: &str,
    subject: &str,
    detail: Value,
) -> Result<(), Error> {
    let head = HEAD.get(txn, "")?.unwrap_or_else(|| Head { seq: 0, hash: "0".repeat(64) });
    let mut event = AuditEvent {
        seq: head.seq + 1,
        at_ms,
        actor: clip(actor),
        action: action.to_owned(),
        subject: clip(subject),
        detail,
        prev_hash: head.hash,
        hash: String::new(),
    };
    event.hash = hash(&event);
    EVENTS.put(txn, &key(event.seq), &event)?;
    HEAD.put(txn, "", &Head { seq: event.seq, hash: event.hash })
}

/// At most `limit` (and [`MAX_EVENTS`]) entries with a number above `after`.
pub(crate) fn after(txn: &dyn ReadTxn, after: u64, limit: usize) -> Result<Vec<AuditEvent>, Error> {
    let found = EVENTS.scan(txn, "", &key(after), limit.min(MAX_EVENTS))?;
    Ok(found.into_iter().map(|(_, event)| event).collect())
}

/// Follows the whole chain; gives the number of entries.
pub fn verify(store: &impl Store) -> Result<u64, VerifyError> {
    let (mut seq, mut prev_hash) = (0, "0".repeat(64));
    loop {
        let events = store.read(|txn| after(txn, seq, MAX_EVENTS))?;
        if events.is_empty() {
            break;
        }
        for event in events {
            let broken = |why| VerifyError::Broken { seq: seq + 1, why };
            if event.seq != seq + 1 {
                return Err(broken("it is missing"));
            }
            if event.prev_hash != prev_hash {
                return Err(broken("it does not follow the entry before it"));
            }
            if event.hash != hash(&event) {
                return Err(broken("its content does not have its hash"));
            }
            (seq, prev_hash) = (event.seq, event.hash);
        }
    }
    let head = store.read(|txn| HEAD.get(txn, ""))?;
    if head.is_some_and(|head| head.seq != seq || head.hash != prev_hash) {
        return Err(VerifyError::Broken { seq: seq + 1, why: "the end of the log is missing" });
    }
    Ok(seq)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::store::MemStore;

    fn log_of(count: i64) -> MemStore {
        let store = MemStore::new();
        for at in 1..=count {
            store
                .write::<_, Error>(|txn| append_at(txn, at, "admin", "site.added", "lab", json!({"n": at})))
                .unwrap();
        }
        store
    }

    fn alter(store: &MemStore, seq: u64, change: impl Fn(&mut AuditEvent)) {
        store
            .write::<_, Error>(|txn| {
                let mut event = EVENTS.get(txn, &key(seq))?.unwrap();
                change(&mut event);
                EVENTS.put(txn, &key(seq), &event)
            })
            .unwrap();
    }

    #[test]
    fn the_first_hash_is_what_another_implementation_computes() {
        // hashlib.sha256(struct.pack(">QQ", 1, 1) + b"".join(struct.pack(">Q", len(t)) + t for t in
        //   [b"0"*64, b"admin", b"site.added", b"lab", b'{"n":1}'])).hexdigest()
        let store = log_of(1);
        let events = store.read(|txn| after(txn, 0, 10)).unwrap();
        assert_eq!(events[0].hash, EXPECTED_FIRST_HASH);
    }

    const EXPECTED_FIRST_HASH: &str = "03ccb4ec91c139690a6866bbbd30fd8265e0110b9d8db10e13816518ac95a847";

    #[test]
    fn a_whole_log_verifies_also_over_several_pages() {
        assert_eq!(verify(&log_of(0)).unwrap(), 0);
        assert_eq!(verify(&log_of(2 * 1000 + 1)).unwrap(), 2001);
    }

    #[test]
    fn every_kind_of_alteration_is_found_where_it_is() {
        let at = |store: &MemStore| match verify(store) {
            Err(VerifyError::Broken { seq, .. }) => seq,
            other => panic!("{other:?}"),
        };
        let changed = log_of(5);
        alter(&changed, 3, |event| event.detail = json!({"n": 4}));
        assert_eq!(at(&changed), 3);
        let rehashed = log_of(5);
        alter(&rehashed, 3, |event| {
            event.actor = "nobody".into();
            event.hash = hash(event);
        });
        assert_eq!(at(&rehashed), 4);
        for gone in [1, 3, 5] {
            let removed = log_of(5);
            removed.write::<_, Error>(|txn| EVENTS.delete(txn, &key(gone))).unwrap();
            assert_eq!(at(&removed), gone);
        }
    }

    #[test]
    fn pages_follow_each_other() {
        let store = log_of(5);
        let page = |from, limit| -> Vec<u64> {
            store.read(|txn| after(txn, from, limit)).unwrap().iter().map(|event| event.seq).collect()
        };
        assert_eq!(page(0, 2), [1, 2]);
        assert_eq!(page(2, 10), [3, 4, 5]);
        assert_eq!(page(5, 10), [0; 0]);
    }
}
