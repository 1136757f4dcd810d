//! A store in memory, for tests and simulations.

use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{Pair, ReadTxn, Store, StoreError, WriteTxn, check_size};

#[derive(Debug, Default)]
struct Inner {
    map: BTreeMap<Vec<u8>, Vec<u8>>,
    version: u64,
}

/// A store in memory. Clones share their content, as processes share a database.
#[derive(Debug, Clone, Default)]
pub struct MemStore(Arc<Mutex<Inner>>);

impl MemStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panicking transaction rolls back when it is dropped, so the map is sound also after poisoning.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MemStore {
    fn read<R, E: From<StoreError>>(&self, f: impl FnOnce(&dyn ReadTxn) -> Result<R, E>) -> Result<R, E> {
        f(&self.lock().map)
    }

    fn write<R, E: From<StoreError>>(
        &self,
        mut f: impl FnMut(&mut dyn WriteTxn) -> Result<R, E>,
    ) -> Result<R, E> {
        let mut inner = self.lock();
        let mut txn = MemTxn { map: &mut inner.map, undo: Vec::new() };
        let result = f(&mut txn)?;
        let changed = !std::mem::take(&mut txn.undo).is_empty();
        drop(txn);
        inner.version += u64::from(changed);
        Ok(result)
    }

    fn version(&self) -> u64 {
        self.lock().version
    }
}

impl ReadTxn for BTreeMap<Vec<u8>, Vec<u8>> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(BTreeMap::get(self, key).cloned())
    }

    fn range(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>, StoreError> {
        if from >= to {
            return Ok(Vec::new());
        }
        let bounds = (Bound::Included(from), Bound::Excluded(to));
        let pairs = BTreeMap::range::<[u8], _>(self, bounds).take(limit);
        Ok(pairs.map(|(key, value)| (key.clone(), value.clone())).collect())
    }
}

/// Writes in place and remembers what was there before, newest last; undone on drop unless committed.
struct MemTxn<'a> {
    map: &'a mut BTreeMap<Vec<u8>, Vec<u8>>,
    undo: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Drop for MemTxn<'_> {
    fn drop(&mut self) {
        while let Some((key, before)) = self.undo.pop() {
            match before {
                Some(value) => self.map.insert(key, value),
                None => self.map.remove(&key),
            };
        }
    }
}

impl ReadTxn for MemTxn<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        ReadTxn::get(self.map, key)
    }

    fn range(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>, StoreError> {
        ReadTxn::range(self.map, from, to, limit)
    }
}

impl WriteTxn for MemTxn<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        check_size(key, value)?;
        let before = self.map.insert(key.to_vec(), value.to_vec());
        self.undo.push((key.to_vec(), before));
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<(), StoreError> {
        if let Some(before) = self.map.remove(key) {
            self.undo.push((key.to_vec(), Some(before)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_store_conforms() {
        super::super::conformance(MemStore::new);
    }

    #[test]
    fn a_panic_in_a_transaction_undoes_it() {
        let store = MemStore::new();
        let twin = store.clone();
        let outcome = std::thread::spawn(move || {
            twin.write::<(), StoreError>(|txn| {
                txn.put(b"k", b"v")?;
                panic!("on purpose");
            })
        })
        .join();
        assert!(outcome.is_err());
        assert_eq!(store.read(|txn| txn.get(b"k")).unwrap(), None);
    }
}
