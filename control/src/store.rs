//! The embedded store: one redb file, with group commit.
//!
//! By itself every write is durable when it returns. The driver, which applies many inputs in one go, brackets them:
//!
//! ```text
//! defer() ── write ── write ── write ── … ── sync() ── effects and answers go out
//!            each its own transaction,       one fsync for all
//!            visible to the next
//! ```
//!
//! A failing transaction harms no other, since each is one of redb's; nothing is seen outside before it is
//! durable, since the driver lets nothing out before [`RedbStore::sync`] has returned.

use std::{
    panic::catch_unwind,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use ironwright_control_core::store::{Pair, ReadTxn, Store, StoreError, WriteTxn, check_size};
use redb::{Database, Durability, ReadableDatabase, ReadableTable, Table, TableDefinition};

use crate::files;

/// Everything is in one table: the store is one ordered map.
const PAIRS: TableDefinition<&[u8], &[u8]> = TableDefinition::new("pairs");

/// Memory for cached pages. What control keeps in memory anyway needs no cache below it.
const CACHE_BYTES: usize = 64 << 20;

/// A redb file. Clones share it.
#[derive(Clone)]
pub(crate) struct RedbStore(Arc<Inner>);

struct Inner {
    db: Database,
    version: AtomicU64,
    deferred: AtomicBool,
    /// Commits that are not durable yet.
    unsynced: AtomicU64,
}

impl RedbStore {
    /// Makes a new, empty store that only its owner can read. The file must not exist.
    pub(crate) fn create(path: &Path) -> Result<Self, StoreError> {
        let failed = "creating the store's file";
        // An empty file of our mode; redb then finds it and fills it.
        files::write_new(path, b"").map_err(|e| StoreError::backend(failed, e))?;
        let db = Database::builder()
            .set_cache_size(CACHE_BYTES)
            .create(path)
            .map_err(|e| StoreError::backend(failed, e))?;
        let txn = db.begin_write().map_err(|e| StoreError::backend(failed, e))?;
        txn.open_table(PAIRS).map_err(|e| StoreError::backend(failed, e))?;
        txn.commit().map_err(|e| StoreError::backend(failed, e))?;
        Ok(Self::with(db))
    }

    /// Opens a store; only one process can have it open. What is not one of ours is refused, never filled: an empty
    /// store would forget every machine and admin without a word.
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        let open = || {
            let db = Database::builder()
                .set_cache_size(CACHE_BYTES)
                .open(path)
                .map_err(|e| StoreError::backend("opening the store's file", e))?;
            let failed = "finding the table of the store's file";
            let txn = db.begin_read().map_err(|e| StoreError::backend(failed, e))?;
            txn.open_table(PAIRS).map_err(|e| StoreError::backend(failed, e))?;
            Ok(Self::with(db))
        };
        // redb panics on pages that are no pages of its own.
        catch_unwind(open).unwrap_or_else(|_| {
            Err(StoreError::backend("opening the store's file", "the file is damaged; restore a copy of it"))
        })
    }

    fn with(db: Database) -> Self {
        Self(Arc::new(Inner {
            db,
            version: AtomicU64::new(0),
            deferred: AtomicBool::new(false),
            unsynced: AtomicU64::new(0),
        }))
    }

    /// From now until [`Self::sync`], commits are ordered and atomic, yet not durable.
    pub(crate) fn defer(&self) {
        self.0.deferred.store(true, Ordering::SeqCst);
    }

    /// Makes every commit so far durable. After an error nothing may be let out: the process has to end, and its
    /// successor finds the last durable state.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        self.0.deferred.store(false, Ordering::SeqCst);
        if self.0.unsynced.swap(0, Ordering::SeqCst) == 0 {
            return Ok(());
        }
        let failed = "syncing the store to its disk";
        let mut txn = self.0.db.begin_write().map_err(|e| StoreError::backend(failed, e))?;
        txn.set_durability(Durability::Immediate).map_err(|e| StoreError::backend(failed, e))?;
        txn.commit().map_err(|e| StoreError::backend(failed, e))
    }
}

impl Store for RedbStore {
    fn read<R, E: From<StoreError>>(&self, f: impl FnOnce(&dyn ReadTxn) -> Result<R, E>) -> Result<R, E> {
        let failed = "beginning a read";
        let txn = self.0.db.begin_read().map_err(|e| StoreError::backend(failed, e))?;
        let table = txn.open_table(PAIRS).map_err(|e| StoreError::backend(failed, e))?;
        f(&Reading(table))
    }

    fn write<R, E: From<StoreError>>(
        &self,
        mut f: impl FnMut(&mut dyn WriteTxn) -> Result<R, E>,
    ) -> Result<R, E> {
        let inner = &self.0;
        let failed = "beginning a transaction";
        let mut txn = inner.db.begin_write().map_err(|e| StoreError::backend(failed, e))?;
        let deferred = inner.deferred.load(Ordering::SeqCst);
        let durability = if deferred { Durability::None } else { Durability::Immediate };
        txn.set_durability(durability).map_err(|e| StoreError::backend(failed, e))?;
        let mut writing = Writing {
            table: txn.open_table(PAIRS).map_err(|e| StoreError::backend(failed, e))?,
            changed: false,
        };
        // Dropping an uncommitted transaction undoes it, also when `f` panics.
        let result = f(&mut writing)?;
        let changed = writing.changed;
        drop(writing);
        if changed {
            txn.commit().map_err(|e| StoreError::backend("committing a transaction", e))?;
            inner.unsynced.fetch_add(u64::from(deferred), Ordering::SeqCst);
            inner.version.fetch_add(1, Ordering::SeqCst);
        }
        Ok(result)
    }

    fn version(&self) -> u64 {
        self.0.version.load(Ordering::SeqCst)
    }
}

/// A read transaction.
struct Reading(redb::ReadOnlyTable<&'static [u8], &'static [u8]>);

impl ReadTxn for Reading {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        get(&self.0, key)
    }

    fn range(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>, StoreError> {
        range(&self.0, from, to, limit)
    }
}

/// A write transaction.
struct Writing<'t> {
    table: Table<'t, &'static [u8], &'static [u8]>,
    changed: bool,
}

impl ReadTxn for Writing<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        get(&self.table, key)
    }

    fn range(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>, StoreError> {
        range(&self.table, from, to, limit)
    }
}

impl WriteTxn for Writing<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        check_size(key, value)?;
        self.table.insert(key, value).map_err(|e| StoreError::backend("writing a key", e))?;
        self.changed = true;
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), StoreError> {
        let removed = self.table.remove(key).map_err(|e| StoreError::backend("deleting a key", e))?;
        self.changed |= removed.is_some();
        Ok(())
    }
}

type Bytes = &'static [u8];

fn get(table: &impl ReadableTable<Bytes, Bytes>, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
    let value = table.get(key).map_err(|e| StoreError::backend("reading a key", e))?;
    Ok(value.map(|value| value.value().to_vec()))
}

fn range(
    table: &impl ReadableTable<Bytes, Bytes>,
    from: &[u8],
    to: &[u8],
    limit: usize,
) -> Result<Vec<Pair>, StoreError> {
    let failed = |e: redb::StorageError| StoreError::backend("reading a range of keys", e);
    if from >= to {
        return Ok(Vec::new());
    }
    let mut pairs = Vec::new();
    for entry in table.range(from..to).map_err(failed)?.take(limit) {
        let (key, value) = entry.map_err(failed)?;
        pairs.push((key.value().to_vec(), value.value().to_vec()));
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader},
        process::{Command, Stdio},
    };

    use ironwright_control_core::store::conformance;

    use super::*;

    fn put(store: &RedbStore, key: &[u8]) -> Result<(), StoreError> {
        store.write(|txn| txn.put(key, b"1"))
    }

    fn has(store: &RedbStore, key: &[u8]) -> bool {
        store.read::<_, StoreError>(|txn| txn.get(key)).unwrap().is_some()
    }

    #[test]
    fn the_redb_store_conforms() {
        let dir = tempfile::tempdir().unwrap();
        let next = AtomicU64::new(0);
        conformance(|| {
            let number = next.fetch_add(1, Ordering::SeqCst);
            RedbStore::create(&dir.path().join(format!("{number}.redb"))).unwrap()
        });
    }

    #[test]
    fn deferred_transactions_see_each_other_and_a_failing_one_harms_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.redb");
        let store = RedbStore::create(&path).unwrap();
        store.defer();
        put(&store, b"a").unwrap();
        let failed = store.write::<(), StoreError>(|txn| {
            assert!(txn.get(b"a")?.is_some());
            txn.put(b"b", b"1")?;
            Err(StoreError::KeyTooLong(0))
        });
        assert!(failed.is_err());
        put(&store, b"c").unwrap();
        store.sync().unwrap();
        drop(store);
        let store = RedbStore::open(&path).unwrap();
        assert_eq!([has(&store, b"a"), has(&store, b"b"), has(&store, b"c")], [true, false, true]);
    }

    /// Names the store that [`writer_process`] shall write to.
    const WRITER_STORE: &str = "IRONWRIGHT_TEST_WRITER_STORE";
    const SYNCED: &str = "synced ";

    fn pair_keys(number: u64) -> [Vec<u8>; 2] {
        ["a", "b"].map(|half| format!("{half}/{number:08}").into_bytes())
    }

    /// Not a test of its own: the process that [`what_was_synced_survives_sigkill`] starts from this binary.
    #[test]
    fn writer_process() {
        let Some(path) = std::env::var_os(WRITER_STORE) else { return };
        let store = RedbStore::open(Path::new(&path)).unwrap();
        for batch in 0.. {
            store.defer();
            for number in batch * 10..(batch + 1) * 10 {
                let [a, b] = pair_keys(number);
                store
                    .write::<_, StoreError>(|txn| {
                        txn.put(&a, &[7; 1000])?;
                        txn.put(&b, &[7; 1000])
                    })
                    .unwrap();
            }
            store.sync().unwrap();
            println!("\n{SYNCED}{}", batch * 10 + 9);
        }
    }

    #[test]
    fn what_was_synced_survives_sigkill() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.redb");
        drop(RedbStore::create(&path).unwrap());
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "store::tests::writer_process", "--nocapture"])
            .env(WRITER_STORE, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut synced = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .map_while(Result::ok)
            .filter_map(|line| line.strip_prefix(SYNCED).map(|number| number.parse::<u64>().unwrap()));
        synced.find(|number| *number >= 500).expect("the writer writes");
        child.kill().unwrap();
        child.wait().unwrap();
        // What it still told before it died counts as well.
        let last = synced.last().unwrap_or(500);

        let store = RedbStore::open(&path).unwrap();
        for number in 0..last + 20 {
            let [a, b] = pair_keys(number).map(|key| has(&store, &key));
            assert_eq!(a, b, "transaction {number} is whole or not there");
            assert!(a || number > last, "transaction {number} was told to be durable");
        }
    }

    #[test]
    fn what_is_no_store_of_ours_is_refused_and_not_filled() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.redb");
        for bytes in [vec![], b"not a database".to_vec(), vec![0; 1 << 20]] {
            std::fs::write(&path, &bytes).unwrap();
            assert!(RedbStore::open(&path).is_err(), "{} bytes", bytes.len());
            assert_eq!(std::fs::read(&path).unwrap(), bytes);
        }
        std::fs::remove_file(&path).unwrap();
        assert!(RedbStore::open(&path).is_err());
        assert!(!path.exists());
        put(&RedbStore::create(&path).unwrap(), b"a").unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.iter_mut().skip(4096).step_by(97).for_each(|byte| *byte ^= 0xff);
        std::fs::write(&path, &bytes).unwrap();
        assert!(RedbStore::open(&path).is_err(), "damaged behind its header");
        std::fs::remove_file(&path).unwrap();
        assert!(!path.exists());
        drop(Database::create(&path).unwrap());
        assert!(RedbStore::open(&path).is_err(), "a database without our table");
    }

    #[test]
    fn a_store_is_open_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.redb");
        let _store = RedbStore::create(&path).unwrap();
        assert!(RedbStore::open(&path).is_err());
        assert!(RedbStore::create(&path).is_err());
    }
}
