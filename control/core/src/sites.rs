//! Sites and their leases.
//!
//! A site's lease is the right to serve network boot there:
//!
//! ```text
//!            acquire (epoch + 1)                  30 s without renewal
//!   free ──────────────────────────▶ held by N ────────────────────────▶ lapsed
//!                                      ▲  │ renew by N: same epoch        │    │
//!                                      └──┴────────────── renew by N ─────┘    │ acquire by M (epoch + 1)
//!                                                                              ▼
//!                                                                          held by M
//! ```
//! Whoever writes in the name of a site checks in the same transaction that it still holds the lease ([`holds`]).

use ironwright_proto::{
    api::{NewSite, Site, SiteCreated},
    ids::Name,
    wire,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    audit,
    error::Error,
    join::token::{self, For, TokenKey},
    store::ReadTxn,
    table::Table,
    tx::Tx,
};

/// How long a lease holds after a renewal.
const LEASE_TTL_MS: u32 = 30_000;
/// How long a site's join token is good for.
const SITE_TOKEN_TTL_MS: i64 = 24 * 3600 * 1000;
/// Longest base URL that a site may say it is reached at, in bytes.
const MAX_ADDRESS: usize = 256;

#[derive(Serialize, Deserialize)]
struct Record {
    site: Site,
    token: Option<TokenKey>,
}

const SITES: Table<Record> = Table::new("site");

/// Creates a site, or replaces the join token of an existing one.
pub(crate) fn create(tx: &mut Tx<'_>, actor: &str, new: &NewSite) -> Result<SiteCreated, Error> {
    let key = new.name.as_str();
    let old = SITES.get(tx.txn, key)?;
    let action = if old.is_some() { "site.token_replaced" } else { "site.added" };
    if let Some(token) = old.as_ref().and_then(|record| record.token.as_ref()) {
        token::revoke(tx, token)?;
    }
    let site = old.map_or_else(
        || Site { name: new.name.clone(), lease_epoch: 0, holder: None, lease_until_ms: 0, address: None },
        |record| record.site,
    );
    let (join_token, token_key) = token::mint(tx, For::Site(new.name.clone()), SITE_TOKEN_TTL_MS)?;
    SITES.put(tx.txn, key, &Record { site: site.clone(), token: Some(token_key) })?;
    audit::append(tx, actor, action, key, json!({}))?;
    Ok(SiteCreated { site, join_token })
}

pub(crate) fn all(txn: &dyn ReadTxn) -> Result<Vec<Site>, Error> {
    Ok(SITES.all(txn)?.into_iter().map(|record| record.site).collect())
}

pub(crate) fn get(txn: &dyn ReadTxn, name: &str) -> Result<Option<Site>, Error> {
    Ok(SITES.get(txn, name)?.map(|record| record.site))
}

/// The site that serves a machine: the named one, or the only one there is.
pub(crate) fn serving(txn: &dyn ReadTxn, name: Option<&Name>) -> Result<Option<Site>, Error> {
    match name {
        Some(name) => get(txn, name.as_str()),
        None => Ok(Some(all(txn)?).filter(|sites| sites.len() == 1).and_then(|mut sites| sites.pop())),
    }
}

/// The site that an operator names, or the only one there is.
pub(crate) fn resolve(txn: &dyn ReadTxn, name: Option<&Name>) -> Result<Option<Site>, Error> {
    if let Some(name) = name {
        let site = get(txn, name.as_str())?;
        return site.map(Some).ok_or_else(|| Error::UnknownSite(name.to_string()));
    }
    let mut sites = all(txn)?;
    match sites.len() {
        0 | 1 => Ok(sites.pop()),
        count => {
            Err(Error::bad("site", format!("there are {count} sites; name the one that serves the machine")))
        }
    }
}

/// Whether `node` holds the site's lease now.
pub(crate) fn holds(site: &Site, node: &str, now_ms: i64) -> bool {
    site.holder.as_deref() == Some(node) && now_ms < site.lease_until_ms
}

/// Gives or renews the lease for `node`; epoch 0 while another node holds it. The flag says that the holder has
/// changed.
pub(crate) fn lease(tx: &mut Tx<'_>, name: &str, node: &str) -> Result<(wire::Lease, bool), Error> {
    let not_held = (wire::Lease { site: name.to_owned(), epoch: 0, ttl_ms: 0 }, false);
    let Some(mut record) = SITES.get(tx.txn, name)? else { return Ok(not_held) };
    let site = &mut record.site;
    let taken = site.holder.as_deref() != Some(node);
    if taken {
        if site.holder.is_some() && tx.now_ms < site.lease_until_ms {
            return Ok(not_held);
        }
        let before = site.holder.replace(node.to_owned());
        site.lease_epoch += 1;
        site.address = None;
        let detail = json!({"epoch": site.lease_epoch, "before": before});
        audit::append(tx, node, "site.lease_taken", name, detail)?;
    }
    // Time as others see it never goes back, not even when control's clock does.
    site.lease_until_ms = site.lease_until_ms.max(tx.now_ms + i64::from(LEASE_TTL_MS));
    let epoch = site.lease_epoch;
    SITES.put(tx.txn, name, &record)?;
    Ok((wire::Lease { site: name.to_owned(), epoch, ttl_ms: LEASE_TTL_MS }, taken))
}

/// Notes where the holder of the lease serves boot HTTP.
pub(crate) fn set_address(tx: &mut Tx<'_>, name: &str, node: &str, address: &str) -> Result<(), Error> {
    let Some(mut record) = SITES.get(tx.txn, name)? else { return Ok(()) };
    let usable = address.len() <= MAX_ADDRESS && address.starts_with("http://");
    if usable && holds(&record.site, node, tx.now_ms) && record.site.address.as_deref() != Some(address) {
        record.site.address = Some(address.to_owned());
        SITES.put(tx.txn, name, &record)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        store::{MemStore, Store},
        tx::Seed,
    };

    fn at<R>(store: &MemStore, now_ms: i64, f: impl Fn(&mut Tx<'_>) -> Result<R, Error>) -> R {
        store.write(|txn| f(&mut Tx::new(txn, now_ms, Seed::NONE))).unwrap()
    }

    fn store_with_site() -> MemStore {
        let store = MemStore::new();
        at(&store, 0, |tx| create(tx, "admin", &NewSite { name: "lab".parse().unwrap() }));
        store
    }

    #[test]
    fn a_lease_has_one_holder_and_its_epoch_grows_when_the_holder_changes() {
        let store = store_with_site();
        let epoch = |now, node: &str| at(&store, now, |tx| lease(tx, "lab", node)).0.epoch;
        assert_eq!(epoch(0, "a"), 1);
        assert_eq!(epoch(1_000, "b"), 0, "held by a");
        assert_eq!(epoch(20_000, "a"), 1, "renewed until 50 000");
        assert_eq!(epoch(49_999, "b"), 0);
        assert_eq!(epoch(50_000, "b"), 2, "lapsed");
        assert_eq!(epoch(50_001, "a"), 0);
        assert_eq!(epoch(200_000, "b"), 2, "lapsed, and nobody else took it");
    }

    #[test]
    fn holding_needs_name_and_time() {
        let store = store_with_site();
        at(&store, 0, |tx| lease(tx, "lab", "a"));
        let site = store.read(|txn| get(txn, "lab")).unwrap().unwrap();
        assert!(holds(&site, "a", 29_999));
        assert!(!holds(&site, "a", 30_000));
        assert!(!holds(&site, "b", 0));
    }

    #[test]
    fn an_address_is_taken_from_the_holder_only() {
        let store = store_with_site();
        at(&store, 0, |tx| lease(tx, "lab", "a"));
        at(&store, 0, |tx| set_address(tx, "lab", "b", "http://10.0.0.9:8080"));
        at(&store, 0, |tx| set_address(tx, "lab", "a", "gopher://x"));
        assert_eq!(store.read(|txn| get(txn, "lab")).unwrap().unwrap().address, None);
        at(&store, 0, |tx| set_address(tx, "lab", "a", "http://10.0.0.1:8080"));
        let site = store.read(|txn| get(txn, "lab")).unwrap().unwrap();
        assert_eq!(site.address.as_deref(), Some("http://10.0.0.1:8080"));
    }
}
