//! Which devices this machine has, as the module aliases that their buses give them.

use std::{collections::BTreeSet, fs, path::Path};

/// Devices looked at; the largest machines have some thousands.
const MAX_DEVICES: usize = 65_536;

/// All aliases under `buses` (normally `/sys/bus`), each `<bus>/devices/<device>/modalias`.
///
/// Devices come and go while this looks, so what cannot be read is left out.
pub fn aliases(buses: &Path) -> BTreeSet<String> {
    let folder = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    folder(buses)
        .flat_map(|bus| folder(&bus.path().join("devices")))
        .take(MAX_DEVICES)
        .filter_map(|device| fs::read_to_string(device.path().join("modalias")).ok())
        .map(|alias| alias.trim().to_owned())
        .filter(|alias| !alias.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_alias_of_each_bus_is_found_once() {
        let root = tempfile::tempdir().unwrap();
        for (bus, device, alias) in [
            ("pci", "0000:00:03.0", Some("pci:v00001AF4d00001000")),
            ("pci", "0000:00:04.0", Some("pci:v00001AF4d00001000")),
            ("virtio", "virtio0", Some("virtio:d00000001v00001AF4")),
            ("cpu", "cpu0", None),
            ("serial", "port0", Some("\n")),
        ] {
            let folder = root.path().join(bus).join("devices").join(device);
            fs::create_dir_all(&folder).unwrap();
            if let Some(alias) = alias {
                fs::write(folder.join("modalias"), format!("{alias}\n")).unwrap();
            }
        }
        let found: Vec<String> = aliases(root.path()).into_iter().collect();
        assert_eq!(found, ["pci:v00001AF4d00001000", "virtio:d00000001v00001AF4"]);
        assert!(aliases(&root.path().join("none")).is_empty());
    }
}
