//! Machines that operators enrolled.

use ironwright_proto::{
    api::{Machine, MachineChange, NewMachine},
    ids::{Digest, Mac, Name},
};
use serde_json::{Value, json};

use crate::{
    audit, commands, error::Error, nodes, runs, sites, smbios, specs, store::ReadTxn, table::Table, tx::Tx,
};

const MACHINES: Table<Machine> = Table::new("machine");
/// MAC → machine id: a MAC names one machine.
const BY_MAC: Table<Name> = Table::new("machine-mac");
/// EK fingerprint → machine id: a TPM is in one machine.
const BY_EK: Table<Name> = Table::new("machine-ek");

/// Enrolls a machine.
pub(crate) fn create(tx: &mut Tx<'_>, actor: &str, new: &NewMachine) -> Result<Machine, Error> {
    if MACHINES.get(tx.txn, new.id.as_str())?.is_some() {
        return Err(Error::MachineExists(new.id.clone()));
    }
    take_mac(tx, new.mac, &new.id)?;
    check_uuid(new.product_uuid.as_deref())?;
    let site = sites::resolve(tx.txn, new.site.as_ref())?;
    let machine = Machine {
        id: new.id.clone(),
        mac: new.mac,
        product_uuid: new.product_uuid.clone(),
        site: site.map(|site| site.name),
        allow_no_tpm: new.allow_no_tpm,
        ek_fingerprint: None,
        node_id: None,
        inventory: None,
        created_ms: tx.now_ms,
    };
    MACHINES.put(tx.txn, machine.id.as_str(), &machine)?;
    let detail = json!({"mac": machine.mac, "site": machine.site, "allow_no_tpm": machine.allow_no_tpm});
    audit::append(tx, actor, "machine.added", machine.id.as_str(), detail)?;
    Ok(machine)
}

/// Changes what an operator said of a machine. Where an open run goes by it, it has to end first.
pub(crate) fn change(
    tx: &mut Tx<'_>,
    actor: &str,
    id: &str,
    change: &MachineChange,
) -> Result<Machine, Error> {
    let before = need(tx.txn, id)?;
    let mut machine = before.clone();
    if change.mac.is_some() || change.site.is_some() || change.forget_tpm {
        check_idle(tx.txn, &machine)?;
    }
    if let Some(mac) = change.mac.filter(|mac| *mac != before.mac) {
        take_mac(tx, mac, &machine.id)?;
        BY_MAC.delete(tx.txn, &before.mac.to_string())?;
        machine.mac = mac;
    }
    if change.product_uuid.is_some() {
        check_uuid(change.product_uuid.as_deref())?;
        machine.product_uuid.clone_from(&change.product_uuid);
    }
    if change.site.is_some() {
        machine.site = sites::resolve(tx.txn, change.site.as_ref())?.map(|site| site.name);
    }
    machine.allow_no_tpm = change.allow_no_tpm.unwrap_or(before.allow_no_tpm);
    if change.forget_tpm
        && let Some(ek) = machine.ek_fingerprint.take()
    {
        BY_EK.delete(tx.txn, &ek.hex())?;
    }
    if machine != before {
        MACHINES.put(tx.txn, id, &machine)?;
        let shown = |of: &Machine| {
            json!({
                "mac": of.mac, "site": of.site, "product_uuid": of.product_uuid, "allow_no_tpm": of.allow_no_tpm,
                "ek": of.ek_fingerprint,
            })
        };
        let detail = json!({"before": shown(&before), "after": shown(&machine)});
        audit::append(tx, actor, "machine.changed", id, detail)?;
    }
    Ok(machine)
}

/// Removes a machine that no run has, and its node with all that is open for it. Gives what it was.
pub(crate) fn remove(tx: &mut Tx<'_>, actor: &str, id: &str) -> Result<Machine, Error> {
    let machine = need(tx.txn, id)?;
    check_idle(tx.txn, &machine)?;
    MACHINES.delete(tx.txn, id)?;
    BY_MAC.delete(tx.txn, &machine.mac.to_string())?;
    if let Some(ek) = machine.ek_fingerprint {
        BY_EK.delete(tx.txn, &ek.hex())?;
    }
    if let Some(node) = &machine.node_id {
        commands::forget(tx, node)?;
        specs::forget(tx, node)?;
        nodes::remove(tx, node)?;
    }
    let detail = json!({"mac": machine.mac, "ek": machine.ek_fingerprint, "node": machine.node_id});
    audit::append(tx, actor, "machine.removed", id, detail)?;
    Ok(machine)
}

/// Refuses a machine that a run has, or cleans up after.
fn check_idle(txn: &dyn ReadTxn, machine: &Machine) -> Result<(), Error> {
    match runs::of_machine(txn, &machine.id)? {
        Some(run) => Err(Error::MachineBusy { machine: machine.id.clone(), run }),
        None => Ok(()),
    }
}

fn take_mac(tx: &mut Tx<'_>, mac: Mac, id: &Name) -> Result<(), Error> {
    match BY_MAC.get(tx.txn, &mac.to_string())? {
        Some(machine) => Err(Error::MacTaken { mac, machine: machine.to_string() }),
        None => BY_MAC.put(tx.txn, &mac.to_string(), id),
    }
}

fn check_uuid(uuid: Option<&str>) -> Result<(), Error> {
    if uuid.is_some_and(|uuid| smbios::parse(uuid).is_none()) {
        return Err(Error::bad("product_uuid", "expected a UUID that is neither all zeros nor all ones"));
    }
    Ok(())
}

pub(crate) fn all(txn: &dyn ReadTxn) -> Result<Vec<Machine>, Error> {
    MACHINES.all(txn)
}

pub(crate) fn get(txn: &dyn ReadTxn, id: &str) -> Result<Option<Machine>, Error> {
    MACHINES.get(txn, id)
}

pub(crate) fn need(txn: &dyn ReadTxn, id: &str) -> Result<Machine, Error> {
    get(txn, id)?.ok_or_else(|| Error::UnknownMachine(audit::clip(id)))
}

pub(crate) fn by_mac(txn: &dyn ReadTxn, mac: Mac) -> Result<Option<Machine>, Error> {
    match BY_MAC.get(txn, &mac.to_string())? {
        Some(id) => get(txn, id.as_str()),
        None => Ok(None),
    }
}

/// The machine that a TPM is bound to.
pub(crate) fn by_ek(txn: &dyn ReadTxn, ek: &Digest) -> Result<Option<Name>, Error> {
    BY_EK.get(txn, &ek.hex())
}

/// Notes the node of a machine, and binds a TPM to it that was not bound yet. Only a person
/// undoes a binding.
pub(crate) fn bind(tx: &mut Tx<'_>, id: &Name, node: &str, ek: Option<Digest>) -> Result<(), Error> {
    let mut machine = need(tx.txn, id.as_str())?;
    machine.node_id = Some(node.to_owned());
    if let Some(ek) = ek.filter(|_| machine.ek_fingerprint.is_none()) {
        machine.ek_fingerprint = Some(ek);
        BY_EK.put(tx.txn, &ek.hex(), id)?;
        audit::append(tx, node, "machine.tpm_bound", id.as_str(), json!({"ek": ek}))?;
    }
    MACHINES.put(tx.txn, id.as_str(), &machine)
}

/// Keeps the newest inventory.
pub(crate) fn set_inventory(tx: &mut Tx<'_>, id: &Name, inventory: Value) -> Result<(), Error> {
    let mut machine = need(tx.txn, id.as_str())?;
    machine.inventory = Some(inventory);
    MACHINES.put(tx.txn, id.as_str(), &machine)
}
