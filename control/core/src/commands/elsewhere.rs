//! Commands whose node has its session at another gateway than the one that made or stopped them.
//!
//! Each gateway looks, about once a second and only where the store has changed, for what is meant for its own nodes.

use super::{CALLED_BACK, WAITING};
use crate::{
    error::Error,
    store::ReadTxn,
    table::MAX_LIST,
    tx::{Effects, Tx},
};

/// What waits for nodes that are `here`.
pub(crate) fn waiting(txn: &dyn ReadTxn, here: impl Fn(&str) -> bool) -> Result<Effects, Error> {
    let mut effects = Effects::default();
    for (key, ()) in WAITING.scan(txn, "", "", MAX_LIST)? {
        if let Some((node, _)) = key.split_once('/').filter(|(node, _)| here(node)) {
            effects.dispatch.insert(node.to_owned());
        }
    }
    for (key, ()) in CALLED_BACK.scan(txn, "", "", MAX_LIST)? {
        if let Some((node, id)) = key.split_once('/').filter(|(node, _)| here(node)) {
            effects.cancel.insert((node.to_owned(), id.to_owned()));
        }
    }
    Ok(effects)
}

/// Leaves a call back for the gateway that has the node.
pub(crate) fn leave_call_back(tx: &mut Tx<'_>, node: &str, id: &str) -> Result<(), Error> {
    CALLED_BACK.put(tx.txn, &format!("{node}/{id}"), &())
}

/// The call back was sent.
pub(crate) fn called_back(tx: &mut Tx<'_>, node: &str, id: &str) -> Result<(), Error> {
    CALLED_BACK.delete(tx.txn, &format!("{node}/{id}"))
}
