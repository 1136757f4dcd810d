//! Join tokens: shown once, stored as their hash, used once, for one machine and role or for one site.

use ironwright_proto::{ids::Name, kinds::Role};
use serde::{Deserialize, Serialize};

use super::refusal::{Refusal, RefusalCode};
use crate::{error::Error, secret, store::ReadTxn, table::Table, tx::Tx};

/// Prefix of join tokens.
const PREFIX: &str = "iwj_";

/// Whom a token lets in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum For {
    /// One machine, in one role: who reads the boot token off a kernel command line must not become its node.
    Machine {
        /// Id of the machine.
        id: Name,
        /// `ramdisk` or `node`.
        role: String,
    },
    /// A site agent.
    Site(Name),
}

impl For {
    pub(crate) fn machine(id: &Name, role: Role) -> Self {
        Self::Machine { id: id.clone(), role: role.as_str().to_owned() }
    }
}

#[derive(Serialize, Deserialize)]
struct Token {
    r#for: For,
    expires_ms: i64,
    used: Option<Used>,
}

/// Who used a token.
#[derive(Serialize, Deserialize)]
struct Used {
    at_ms: i64,
    node: String,
}

/// By the hexadecimal hash of the token.
const TOKENS: Table<Token> = Table::new("join-token");

/// The key under which a token is stored; not a secret.
pub(crate) type TokenKey = String;

/// Makes a token; gives it and its key.
pub(crate) fn mint(tx: &mut Tx<'_>, r#for: For, ttl_ms: i64) -> Result<(String, TokenKey), Error> {
    let token = secret::new_token(PREFIX, &mut tx.rng);
    let key = hex::encode(secret::hash(&token));
    TOKENS.put(tx.txn, &key, &Token { r#for, expires_ms: tx.now_ms + ttl_ms, used: None })?;
    Ok((token, key))
}

/// Whom a presented token lets in, and its key.
///
/// The lookup is by hash, so its timing says nothing of the token.
pub(crate) fn check(
    txn: &dyn ReadTxn,
    token: &str,
    now_ms: i64,
) -> Result<Result<(For, TokenKey), Refusal>, Error> {
    if token.is_empty() {
        return Ok(Err(Refusal::new(RefusalCode::TokenMissing, "no join token was sent")));
    }
    let key = hex::encode(secret::hash(token));
    let refused = |code, reason: String| Ok(Err(Refusal::new(code, reason)));
    match TOKENS.get(txn, &key)? {
        None => refused(RefusalCode::TokenUnknown, format!("no token has the hash {key}")),
        Some(Token { used: Some(Used { at_ms, node }), .. }) => {
            refused(RefusalCode::TokenUsed, format!("token {key} was used at {at_ms} by {node}"))
        }
        Some(Token { expires_ms, .. }) if expires_ms <= now_ms => {
            refused(RefusalCode::TokenExpired, format!("token {key} expired at {expires_ms}"))
        }
        Some(token) => Ok(Ok((token.r#for, key))),
    }
}

/// Marks a checked token as used by a node.
pub(crate) fn burn(tx: &mut Tx<'_>, key: &str, node: &str) -> Result<(), Error> {
    if let Some(mut token) = TOKENS.get(tx.txn, key)? {
        token.used.get_or_insert(Used { at_ms: tx.now_ms, node: node.to_owned() });
        TOKENS.put(tx.txn, key, &token)?;
    }
    Ok(())
}

/// The node that used a token.
pub(crate) fn used_by(txn: &dyn ReadTxn, token: &str) -> Result<Option<String>, Error> {
    let token = TOKENS.get(txn, &hex::encode(secret::hash(token)))?;
    Ok(token.and_then(|token| token.used).map(|used| used.node))
}

/// Forgets a token.
pub(crate) fn revoke(tx: &mut Tx<'_>, key: &str) -> Result<(), Error> {
    TOKENS.delete(tx.txn, key)
}
