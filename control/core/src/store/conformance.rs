//! What every implementation of [`Store`] has to do, as checks that its tests call.

use super::{MAX_KEY_BYTES, MAX_VALUE_BYTES, Pair, Store, StoreError};

/// Panics where a store made by `make` (empty each time) breaks the contract.
pub fn conformance<S: Store>(make: impl Fn() -> S) {
    keeps_what_was_put(&make());
    reads_own_writes(&make());
    undoes_failed_writes(&make());
    ranges_are_ordered_half_open_and_limited(&make());
    version_counts_changes(&make());
    refuses_oversized_pairs(&make());
}

fn put(store: &impl Store, key: &[u8], value: &[u8]) {
    store.write::<_, StoreError>(|txn| txn.put(key, value)).expect("a put of a small pair commits");
}

fn get(store: &impl Store, key: &[u8]) -> Option<Vec<u8>> {
    store.read::<_, StoreError>(|txn| txn.get(key)).expect("a read works")
}

fn range(store: &impl Store, from: &[u8], to: &[u8], limit: usize) -> Vec<Vec<u8>> {
    let pairs: Vec<Pair> =
        store.read::<_, StoreError>(|txn| txn.range(from, to, limit)).expect("a range read works");
    pairs.into_iter().map(|(key, _)| key).collect()
}

fn keeps_what_was_put(store: &impl Store) {
    assert_eq!(get(store, b"a"), None);
    put(store, b"a", b"1");
    put(store, b"a", b"2");
    put(store, b"empty", b"");
    put(store, b"\x00\xff", b"binary");
    assert_eq!(get(store, b"a").as_deref(), Some(&b"2"[..]));
    assert_eq!(get(store, b"empty").as_deref(), Some(&b""[..]));
    assert_eq!(get(store, b"\x00\xff").as_deref(), Some(&b"binary"[..]));
    store.write::<_, StoreError>(|txn| txn.delete(b"a")).expect("a delete commits");
    store.write::<_, StoreError>(|txn| txn.delete(b"never there")).expect("deleting nothing commits");
    assert_eq!(get(store, b"a"), None);
}

fn reads_own_writes(store: &impl Store) {
    put(store, b"b", b"old");
    put(store, b"c", b"old");
    store
        .write::<_, StoreError>(|txn| {
            txn.put(b"a", b"new")?;
            txn.put(b"b", b"new")?;
            txn.delete(b"c")?;
            assert_eq!(txn.get(b"b")?.as_deref(), Some(&b"new"[..]));
            assert_eq!(txn.get(b"c")?, None);
            let keys: Vec<_> = txn.range(b"a", b"z", 10)?.into_iter().map(|(key, _)| key).collect();
            assert_eq!(keys, [b"a", b"b"]);
            Ok(())
        })
        .expect("the transaction commits");
}

fn undoes_failed_writes(store: &impl Store) {
    put(store, b"kept", b"1");
    let failed = store.write::<(), StoreError>(|txn| {
        txn.put(b"kept", b"2")?;
        txn.put(b"kept", b"3")?;
        txn.put(b"new", b"1")?;
        txn.delete(b"kept")?;
        Err(StoreError::KeyTooLong(0))
    });
    assert!(matches!(failed, Err(StoreError::KeyTooLong(0))), "the closure's own error comes back");
    assert_eq!(get(store, b"kept").as_deref(), Some(&b"1"[..]));
    assert_eq!(get(store, b"new"), None);
}

fn ranges_are_ordered_half_open_and_limited(store: &impl Store) {
    for key in [&b"m/2"[..], b"m/10", b"m/1", b"n/1", b"l", b"m0"] {
        put(store, key, b"");
    }
    assert_eq!(range(store, b"m/", b"m0", 10), [&b"m/1"[..], b"m/10", b"m/2"]);
    assert_eq!(range(store, b"m/10", b"m/2", 10), [&b"m/10"[..]]);
    assert_eq!(range(store, b"m/", b"m0", 2), [&b"m/1"[..], b"m/10"]);
    assert_eq!(range(store, b"m/", b"m0", 0), [&b""[..]; 0]);
    assert_eq!(range(store, b"z", b"a", 10), [&b""[..]; 0], "a range that ends before it begins is empty");
    assert_eq!(range(store, b"a", b"a", 10), [&b""[..]; 0]);
}

fn version_counts_changes(store: &impl Store) {
    let start = store.version();
    put(store, b"a", b"1");
    let after_put = store.version();
    assert!(after_put > start);
    get(store, b"a");
    store.write::<_, StoreError>(|txn| txn.get(b"a").map(drop)).expect("an empty transaction commits");
    let _ = store.write::<(), StoreError>(|txn| {
        txn.put(b"b", b"1")?;
        Err(StoreError::KeyTooLong(0))
    });
    assert_eq!(store.version(), after_put, "neither reads nor failed writes count");
    store.write::<_, StoreError>(|txn| txn.delete(b"a")).expect("a delete commits");
    assert!(store.version() > after_put);
}

fn refuses_oversized_pairs(store: &impl Store) {
    let long = store.write::<_, StoreError>(|txn| txn.put(&vec![b'k'; MAX_KEY_BYTES + 1], b""));
    assert!(matches!(long, Err(StoreError::KeyTooLong(_))));
    let large = store.write::<_, StoreError>(|txn| txn.put(b"k", &vec![0; MAX_VALUE_BYTES + 1]));
    assert!(matches!(large, Err(StoreError::ValueTooLarge(_))));
    put(store, &[b'k'; MAX_KEY_BYTES], &vec![0; MAX_VALUE_BYTES]);
    assert_eq!(get(store, &[b'k'; MAX_KEY_BYTES]).map(|v| v.len()), Some(MAX_VALUE_BYTES));
}
