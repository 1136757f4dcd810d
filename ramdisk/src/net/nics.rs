//! The interfaces of this machine, as `/sys/class/net` lists them.

use std::{fs, path::Path};

use ironwright_proto::ids::Mac;

/// Interfaces looked at; a machine has fewer.
const MAX_INTERFACES: usize = 256;
/// `ARPHRD_ETHER`.
const ETHERNET: &str = "1";

/// An Ethernet interface that is a device of its own: no loopback, bridge, bond or VLAN.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nic {
    /// The kernel's name of it.
    pub name: String,
    /// The kernel's number of it.
    pub index: u32,
    /// Its address.
    pub mac: Mac,
}

/// Lists the interfaces under `root` (normally `/sys/class/net`) by name. What cannot be read is left out:
/// an interface may vanish while it is looked at.
pub fn list(root: &Path) -> Vec<Nic> {
    let Ok(entries) = fs::read_dir(root) else { return Vec::new() };
    let mut nics: Vec<Nic> =
        entries.flatten().take(MAX_INTERFACES).filter_map(|entry| read(&entry.path())).collect();
    nics.sort();
    nics
}

/// Finds the interface of this address.
pub fn find(root: &Path, mac: Mac) -> Option<Nic> {
    list(root).into_iter().find(|nic| nic.mac == mac)
}

/// Whether the interface has a link partner. Only known while it is up.
pub fn has_carrier(root: &Path, nic: &Nic) -> bool {
    fs::read_to_string(root.join(&nic.name).join("carrier")).is_ok_and(|text| text.trim() == "1")
}

fn read(folder: &Path) -> Option<Nic> {
    let text = |file: &str| fs::read_to_string(folder.join(file)).ok();
    if text("type")?.trim() != ETHERNET || !folder.join("device").exists() {
        return None;
    }
    Some(Nic {
        name: folder.file_name()?.to_str()?.to_owned(),
        index: text("ifindex")?.trim().parse().ok()?,
        mac: text("address")?.trim().parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(root: &Path, name: &str, kind: &str, mac: &str, device: bool) {
        let folder = root.join(name);
        fs::create_dir_all(&folder).unwrap();
        for (file, text) in [("type", kind), ("ifindex", "3"), ("address", mac), ("carrier", "1")] {
            fs::write(folder.join(file), format!("{text}\n")).unwrap();
        }
        if device {
            fs::create_dir(folder.join("device")).unwrap();
        }
    }

    #[test]
    fn only_ethernet_devices_are_listed() {
        let root = tempfile::tempdir().unwrap();
        add(root.path(), "lo", "772", "00:00:00:00:00:00", false);
        add(root.path(), "br0", "1", "52:54:00:00:00:01", false);
        add(root.path(), "ib0", "32", "80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:00:0f:91", true);
        add(root.path(), "eth1", "1", "52:54:00:00:00:02", true);
        add(root.path(), "eth0", "1", "52:54:00:00:00:01", true);
        let names: Vec<String> = list(root.path()).into_iter().map(|nic| nic.name).collect();
        assert_eq!(names, ["eth0", "eth1"]);
        let nic = find(root.path(), Mac([0x52, 0x54, 0, 0, 0, 2])).unwrap();
        assert_eq!((nic.name.as_str(), nic.index), ("eth1", 3));
        assert!(has_carrier(root.path(), &nic));
        assert_eq!(find(root.path(), Mac([0x52, 0x54, 0, 0, 0, 3])), None);
    }
}
