//! Events of agents: each is taken once, acknowledged always.

use ironwright_proto::{
    ids::{Mac, Name},
    wire::Event,
};
use serde_json::{Value, json};

use crate::{audit, error::Error, machines, nodes, runs, sites, store::ReadTxn, tx::Tx};

/// Largest JSON of one event, in bytes.
pub const MAX_EVENT_JSON: usize = 16 << 10;
/// Events of one node that are kept in a minute; further ones are acknowledged and dropped.
pub const EVENTS_PER_NODE_AND_MINUTE: u32 = 600;

/// Takes an event into the store, unless it was taken before.
pub(crate) fn take(tx: &mut Tx<'_>, node: &str, event: &Event) -> Result<(), Error> {
    let Some(mut record) = nodes::get(tx.txn, node)? else { return Ok(()) };
    if event.seq <= record.event_seq {
        return Ok(());
    }
    record.event_seq = event.seq;
    nodes::put(tx, &record)?;

    let particulars = if event.json.len() <= MAX_EVENT_JSON {
        serde_json::from_str(&event.json).ok().filter(Value::is_object)
    } else {
        None
    };
    let Some(particulars) = particulars else {
        let detail = json!({"kind": audit::clip(&event.kind), "bytes": event.json.len()});
        return audit::append(tx, node, "event.malformed", node, detail);
    };
    let detail = |particulars| json!({"at_ms": event.unix_ms, "event": particulars});
    match event.kind.as_str() {
        "boot.fetched" => {
            let mac = particulars["mac"].as_str().and_then(|mac| mac.parse::<Mac>().ok());
            audit::append(tx, node, "boot.fetched", &subject(mac), detail(particulars))?;
            fetched(tx, &record, mac)
        }
        "boot.discovered" => {
            let mac = particulars["mac"].as_str().and_then(|mac| mac.parse::<Mac>().ok());
            audit::append(tx, node, "boot.discovered", &subject(mac), detail(particulars))
        }
        "log" => audit::append(tx, node, "node.log", node, detail(particulars)),
        // Of a newer agent.
        other => audit::append(tx, node, "event.other", &audit::clip(other), detail(particulars)),
    }
}

fn subject(mac: Option<Mac>) -> String {
    mac.map_or_else(|| "unknown".to_owned(), |mac| mac.to_string())
}

/// A machine has fetched its boot script, and with it the token: its entry is filled up again.
fn fetched(tx: &mut Tx<'_>, sender: &nodes::Record, mac: Option<Mac>) -> Result<(), Error> {
    let Some(machine) = mac.map(|mac| machines::by_mac(tx.txn, mac)).transpose()?.flatten() else {
        return Ok(());
    };
    // Written in the name of the site, so only by the holder of its lease.
    if !speaks_for_site_of(tx.txn, sender, machine.site.as_ref(), tx.now_ms)? {
        return Ok(());
    }
    match runs::of_machine(tx.txn, &machine.id)? {
        Some(run) => runs::token_fetched(tx, &run),
        None => Ok(()),
    }
}

fn speaks_for_site_of(
    txn: &dyn ReadTxn,
    sender: &nodes::Record,
    site: Option<&Name>,
    now_ms: i64,
) -> Result<bool, Error> {
    let Some(site) = sites::serving(txn, site)? else { return Ok(false) };
    Ok(sender.node.site.as_ref() == Some(&site.name) && sites::holds(&site, &sender.node.id, now_ms))
}
