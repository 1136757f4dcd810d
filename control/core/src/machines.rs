//! Machines that operators enrolled.

use ironwright_proto::{
    api::{Machine, NewMachine},
    ids::{Digest, Mac, Name},
};
use serde_json::{Value, json};

use crate::{audit, error::Error, sites, smbios, store::ReadTxn, table::Table, tx::Tx};

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
    if let Some(machine) = BY_MAC.get(tx.txn, &new.mac.to_string())? {
        return Err(Error::MacTaken { mac: new.mac, machine: machine.to_string() });
    }
    if new.product_uuid.as_ref().is_some_and(|uuid| smbios::parse(uuid).is_none()) {
        return Err(Error::bad("product_uuid", "expected a UUID that is neither all zeros nor all ones"));
    }
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
    BY_MAC.put(tx.txn, &machine.mac.to_string(), &machine.id)?;
    let detail = json!({"mac": machine.mac, "site": machine.site, "allow_no_tpm": machine.allow_no_tpm});
    audit::append(tx, actor, "machine.added", machine.id.as_str(), detail)?;
    Ok(machine)
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

/// Notes the node of a machine, and binds a TPM to it that was not bound yet. A binding never changes.
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
