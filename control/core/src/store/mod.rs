//! The store: an ordered map from bytes to bytes with serializable transactions.
//!
//! Domain code is written against [`Store`] only, so that it runs on [`MemStore`] in tests and simulations, on
//! redb in the control process, and could run on an etcd cluster (compare revisions, retry). Hence:
//!
//! * the closure of [`Store::write`] may be run more than once: it takes time and randomness from outside and has
//!   no effect but on its transaction;
//! * nothing assumes to be the only process: ownership is a lease with an epoch, checked in the transaction;
//! * transactions do not nest.

mod conformance;
mod mem;

pub use conformance::conformance;
pub use mem::MemStore;

/// Longest key a store has to take.
pub const MAX_KEY_BYTES: usize = 512;
/// Largest value a store has to take.
pub const MAX_VALUE_BYTES: usize = 4 << 20;

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// Why a transaction did not happen.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database or the disk below it failed.
    #[error("{doing} in the store failed")]
    Backend {
        /// What was being done: `reading a key`, `committing a transaction`, …
        doing: &'static str,
        /// The database's own error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Over [`MAX_KEY_BYTES`].
    #[error("a key of {0} bytes is longer than the {MAX_KEY_BYTES} bytes that the store takes")]
    KeyTooLong(usize),
    /// Over [`MAX_VALUE_BYTES`].
    #[error("a value of {0} bytes is larger than the {MAX_VALUE_BYTES} bytes that the store takes")]
    ValueTooLarge(usize),
}

impl StoreError {
    /// Wraps an error of the database.
    pub fn backend(doing: &'static str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Backend { doing, source: source.into() }
    }
}

/// Reads of one consistent state.
pub trait ReadTxn {
    /// The value of a key.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;
    /// At most `limit` pairs with `from <= key < to`, in ascending order of their keys.
    fn range(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>, StoreError>;
}

/// Reads and writes of one transaction; reads see the writes before them.
pub trait WriteTxn: ReadTxn {
    /// Sets a key; see [`check_size`] for the limits.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError>;
    /// Removes a key, if it is there.
    fn delete(&mut self, key: &[u8]) -> Result<(), StoreError>;
}

/// An ordered map with serializable transactions. `conformance` is what an implementation has to pass.
pub trait Store {
    /// Runs `f` on one consistent state.
    fn read<R, E: From<StoreError>>(&self, f: impl FnOnce(&dyn ReadTxn) -> Result<R, E>) -> Result<R, E>;
    /// Runs `f` in a transaction that is durable when this returns `Ok`, and did not happen when `f` returns an
    /// error. `f` may be run again when another transaction came between.
    fn write<R, E: From<StoreError>>(&self, f: impl FnMut(&mut dyn WriteTxn) -> Result<R, E>)
    -> Result<R, E>;
    /// Grows with every commit that put or deleted something; equal numbers mean that nothing changed between.
    /// A shell turns it into notifications.
    fn version(&self) -> u64;
}

/// Refuses keys and values that not every store takes.
pub fn check_size(key: &[u8], value: &[u8]) -> Result<(), StoreError> {
    if key.len() > MAX_KEY_BYTES {
        return Err(StoreError::KeyTooLong(key.len()));
    }
    if value.len() > MAX_VALUE_BYTES {
        return Err(StoreError::ValueTooLarge(value.len()));
    }
    Ok(())
}
