//! Admin tokens: who may use the API.

use rand::{CryptoRng, RngCore};
use serde::{Deserialize, Serialize};
use serde_json::json;
use subtle::ConstantTimeEq;

use crate::{
    audit,
    error::Error,
    secret,
    store::{ReadTxn, Store},
    table::Table,
    tx::{Seed, Tx},
};

/// How many admin tokens there may be.
pub const MAX_ADMIN_TOKENS: usize = 64;
/// Prefix of admin tokens, so that leaked ones are recognised.
const PREFIX: &str = "iwa_";

#[derive(Serialize, Deserialize)]
struct AdminToken {
    name: String,
    #[serde(with = "hex::serde")]
    sha256: [u8; 32],
    created_ms: i64,
}

const ADMINS: Table<AdminToken> = Table::new("admin");

/// Makes an admin token for a person, `iwa_…`. Only its hash is stored, so this is the only time it is seen.
pub fn add_token(
    store: &impl Store,
    name: &str,
    now_ms: i64,
    rng: &mut (impl RngCore + CryptoRng),
) -> Result<String, Error> {
    if name.is_empty() || name.len() > 63 || !name.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(Error::bad("name", "expected 1 to 63 printable characters without spaces"));
    }
    let token = secret::new_token(PREFIX, rng);
    let sha256 = secret::hash(&token);
    store.write(|txn| {
        let mut tx = Tx::new(txn, now_ms, Seed::NONE);
        if ADMINS.all(tx.txn)?.len() >= MAX_ADMIN_TOKENS {
            return Err(Error::bad("name", format!("there are {MAX_ADMIN_TOKENS} admin tokens already")));
        }
        let record = AdminToken { name: name.to_owned(), sha256, created_ms: now_ms };
        ADMINS.put(tx.txn, &hex::encode(sha256), &record)?;
        audit::append(&mut tx, "control", "admin_token.added", name, json!({}))
    })?;
    Ok(token)
}

/// The person whose token this is. Compares with every stored hash in constant time.
pub(crate) fn authenticate(txn: &dyn ReadTxn, token: &str) -> Result<Option<String>, Error> {
    let presented = secret::hash(token);
    let mut found = None;
    for admin in ADMINS.all(txn)? {
        if bool::from(admin.sha256.ct_eq(&presented)) {
            found = Some(admin.name);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::StdRng};

    use super::*;
    use crate::store::MemStore;

    #[test]
    fn a_token_opens_its_name_only_and_is_not_stored() {
        let store = MemStore::new();
        let mut rng = StdRng::seed_from_u64(1);
        let alice = add_token(&store, "alice", 0, &mut rng).unwrap();
        let bob = add_token(&store, "bob", 0, &mut rng).unwrap();
        assert!(alice.starts_with("iwa_") && alice.len() >= 4 + 43, "256 bits: {alice}");
        let who = |token: &str| store.read(|txn| authenticate(txn, token)).unwrap();
        assert_eq!(who(&alice).as_deref(), Some("alice"));
        assert_eq!(who(&bob).as_deref(), Some("bob"));
        assert_eq!(who(&alice[..alice.len() - 1]), None);
        assert_eq!(who(""), None);
        let everything = store.read::<_, Error>(|txn| Ok(txn.range(b"", b"\xff", 100)?)).unwrap();
        let stored =
            format!("{:?}", everything.iter().map(|(_, v)| String::from_utf8_lossy(v)).collect::<Vec<_>>());
        assert!(!stored.contains(&alice[4..]));
    }

    #[test]
    fn their_number_is_limited() {
        let store = MemStore::new();
        let mut rng = StdRng::seed_from_u64(1);
        for n in 0..MAX_ADMIN_TOKENS {
            add_token(&store, &format!("a{n}"), 0, &mut rng).unwrap();
        }
        assert!(matches!(add_token(&store, "more", 0, &mut rng), Err(Error::BadRequest { .. })));
    }
}
