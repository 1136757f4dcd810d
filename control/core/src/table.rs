//! Typed tables in the store: JSON values under `<table>/<key>`, in the order of their keys.

use std::marker::PhantomData;

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    error::Error,
    store::{ReadTxn, WriteTxn},
};

/// How many records one list of the API has at most.
pub(crate) const MAX_LIST: usize = 10_000;

/// A table of `T`. Keys are text; numbers in them are written with [`order`].
pub(crate) struct Table<T> {
    name: &'static str,
    values: PhantomData<fn() -> T>,
}

/// A time or sequence number such that text order is number order.
pub(crate) fn order(number: i64) -> String {
    format!("{:016x}", number.max(0))
}

impl<T: Serialize + DeserializeOwned> Table<T> {
    pub(crate) const fn new(name: &'static str) -> Self {
        Self { name, values: PhantomData }
    }

    fn key(&self, key: &str) -> Vec<u8> {
        format!("{}/{key}", self.name).into_bytes()
    }

    fn decode(&self, key: &str, bytes: &[u8]) -> Result<T, Error> {
        serde_json::from_slice(bytes)
            .map_err(|source| Error::Corrupt { key: format!("{}/{key}", self.name), source })
    }

    pub(crate) fn get(&self, txn: &dyn ReadTxn, key: &str) -> Result<Option<T>, Error> {
        txn.get(&self.key(key))?.map(|bytes| self.decode(key, &bytes)).transpose()
    }

    pub(crate) fn put(&self, txn: &mut dyn WriteTxn, key: &str, value: &T) -> Result<(), Error> {
        let bytes = serde_json::to_vec(value)
            .map_err(|source| Error::Corrupt { key: format!("{}/{key}", self.name), source })?;
        Ok(txn.put(&self.key(key), &bytes)?)
    }

    pub(crate) fn delete(&self, txn: &mut dyn WriteTxn, key: &str) -> Result<(), Error> {
        Ok(txn.delete(&self.key(key))?)
    }

    /// Records whose key begins with `prefix` and comes after `prefix` + `after`, with the rest of their keys.
    pub(crate) fn scan(
        &self,
        txn: &dyn ReadTxn,
        prefix: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<(String, T)>, Error> {
        let base = self.key(prefix);
        let mut from = [&base, after.as_bytes()].concat();
        if !after.is_empty() {
            from.push(0);
        }
        // Keys are UTF-8, which has no byte 0xff.
        let to = [&base[..], &[0xff]].concat();
        let mut found = Vec::new();
        for (key, value) in txn.range(&from, &to, limit)? {
            let rest = String::from_utf8_lossy(&key[base.len()..]).into_owned();
            found.push((rest.clone(), self.decode(&rest, &value)?));
        }
        Ok(found)
    }

    /// All records, up to [`MAX_LIST`].
    pub(crate) fn all(&self, txn: &dyn ReadTxn) -> Result<Vec<T>, Error> {
        Ok(self.scan(txn, "", "", MAX_LIST)?.into_iter().map(|(_, value)| value).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{MemStore, Store};

    const NUMBERS: Table<u32> = Table::new("n");

    #[test]
    fn a_table_sees_only_its_own_keys_in_order() {
        let store = MemStore::new();
        store
            .write::<_, Error>(|txn| {
                for (index, key) in ["b/2", "a/1", "b/10", "b/1"].into_iter().enumerate() {
                    NUMBERS.put(txn, key, &u32::try_from(index).unwrap())?;
                }
                Table::<u32>::new("n2").put(txn, "b/1", &9)?;
                Table::<u32>::new("m").put(txn, "b/1", &9)
            })
            .unwrap();
        let scan = |prefix: &str, after: &str, limit| {
            store.read::<_, Error>(|txn| NUMBERS.scan(txn, prefix, after, limit)).unwrap()
        };
        assert_eq!(scan("", "", 9).len(), 4);
        assert_eq!(scan("b/", "", 9), [("1".into(), 3), ("10".into(), 2), ("2".into(), 0)]);
        assert_eq!(scan("b/", "1", 1), [("10".into(), 2)]);
    }

    #[test]
    fn numbers_sort_as_numbers() {
        assert!(order(9) < order(10) && order(255) < order(256) && order(-5) == order(0));
        assert!(order(i64::MAX) > order(1_764_600_000_000));
    }

    #[test]
    fn a_record_that_cannot_be_read_is_named() {
        let store = MemStore::new();
        store.write::<_, Error>(|txn| Ok(txn.put(b"n/x", b"{")?)).unwrap();
        let error = store.read(|txn| NUMBERS.get(txn, "x")).unwrap_err();
        assert!(error.to_string().contains("`n/x`"), "{error}");
    }
}
