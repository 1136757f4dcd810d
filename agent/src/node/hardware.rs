//! What the kernel says of the machine, for the join claim. Control checks it; nothing here has to be true.

use std::{fs, path::Path};

use ironwright_proto::ids::Mac;

/// Firmware texts are short; more is cut.
const MAX_TEXT: usize = 128;

/// The address of the first network interface that is hardware, by name.
pub(super) fn first_mac() -> Option<String> {
    first_mac_in(Path::new("/sys/class/net"))
}

fn first_mac_in(interfaces: &Path) -> Option<String> {
    let entries = fs::read_dir(interfaces).ok()?;
    let mut hardware: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|interface| interface.join("device").exists())
        .collect();
    hardware.sort();
    let address = |interface: &std::path::PathBuf| {
        fs::read_to_string(interface.join("address")).ok()?.trim().parse::<Mac>().ok()
    };
    hardware.iter().find_map(address).map(|mac| mac.to_string())
}

/// A text of the firmware (SMBIOS), as `/sys/class/dmi/id` has it; empty where there is none.
pub(super) fn firmware_text(name: &str) -> String {
    let text = fs::read_to_string(Path::new("/sys/class/dmi/id").join(name)).unwrap_or_default();
    text.trim().chars().take(MAX_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_hardware_interface_counts() {
        let dir = tempfile::tempdir().unwrap();
        for (name, device, address) in [
            ("eth1", true, "52:54:00:00:00:02"),
            ("eth0", true, "52:54:00:00:00:01"),
            ("docker0", false, "52:54:00:00:00:03"),
            ("bond0", true, "not a mac"),
        ] {
            let interface = dir.path().join(name);
            fs::create_dir(&interface).unwrap();
            fs::write(interface.join("address"), format!("{address}\n")).unwrap();
            if device {
                fs::create_dir(interface.join("device")).unwrap();
            }
        }
        assert_eq!(first_mac_in(dir.path()).as_deref(), Some("52:54:00:00:00:01"));
        assert_eq!(first_mac_in(&dir.path().join("none")), None);
    }
}
