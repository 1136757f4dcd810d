//! The inventory of a machine in JSON, with the field names of [`wire::Inventory`].

use ironwright_proto::wire;
use serde_json::{Value, json};

/// Most disks and NICs, each, that are kept.
const MAX_PARTS: usize = 256;

/// [`wire::Inventory`] in JSON.
pub(crate) fn to_json(inventory: &wire::Inventory) -> Value {
    let disks: Vec<Value> = inventory.disks.iter().take(MAX_PARTS).map(disk).collect();
    let nics: Vec<Value> = inventory.nics.iter().take(MAX_PARTS).map(nic).collect();
    json!({
        "disks": disks,
        "nics": nics,
        "memory_bytes": inventory.memory_bytes,
        "cpus": inventory.cpus,
        "cpu_model": inventory.cpu_model,
        "product_uuid": inventory.product_uuid,
        "serial": inventory.serial,
        "vendor": inventory.vendor,
        "product": inventory.product,
        "firmware": inventory.firmware,
        "tpm": inventory.tpm,
    })
}

fn disk(disk: &wire::Disk) -> Value {
    json!({
        "name": disk.name,
        "path": disk.path,
        "size_bytes": disk.size_bytes,
        "logical_sector_bytes": disk.logical_sector_bytes,
        "physical_sector_bytes": disk.physical_sector_bytes,
        "model": disk.model,
        "serial": disk.serial,
        "wwid": disk.wwid,
        "rotational": disk.rotational,
        "removable": disk.removable,
        "read_only": disk.read_only,
        "transport": disk.transport,
    })
}

fn nic(nic: &wire::Nic) -> Value {
    json!({
        "name": nic.name,
        "mac": nic.mac,
        "up": nic.up,
        "addresses": nic.addresses,
        "driver": nic.driver,
    })
}
