//! `inventory.collect`: what this machine is made of.

use std::path::Path;

use ironwright_proto::wire::{Inventory, Nic};
use nix::ifaddrs::getifaddrs;

use crate::{
    machine::{Dmi, Roots, read_text, text},
    net::nics,
};

/// Addresses reported of one interface.
const MAX_ADDRESSES: usize = 16;

/// Looks at the machine. What cannot be read is left empty: an inventory is better than none.
pub fn collect(roots: &Roots) -> Inventory {
    let dmi = Dmi::read(roots);
    let (cpus, cpu_model) = cpus(&read_text(&roots.proc.join("cpuinfo")).unwrap_or_default());
    let firmware = if roots.sys.join("firmware/efi").is_dir() { "uefi" } else { "bios" };
    Inventory {
        disks: super::disks::list(roots),
        nics: network(&roots.sys.join("class/net")),
        memory_bytes: memory(&read_text(&roots.proc.join("meminfo")).unwrap_or_default()),
        cpus,
        cpu_model,
        product_uuid: dmi.product_uuid,
        serial: dmi.serial,
        vendor: dmi.vendor,
        product: dmi.product,
        firmware: firmware.to_owned(),
        tpm: roots.sys.join("class/tpm/tpm0").exists(),
    }
}

fn network(class: &Path) -> Vec<Nic> {
    let describe = |nic: nics::Nic| {
        let folder = class.join(&nic.name);
        let driver = folder.join("device/driver").read_link().ok();
        let driver = driver.and_then(|link| Some(link.file_name()?.to_str()?.to_owned()));
        Nic {
            mac: nic.mac.to_string(),
            up: text(&folder.join("operstate")) == "up",
            addresses: addresses(&nic.name),
            driver: driver.unwrap_or_default(),
            name: nic.name,
        }
    };
    nics::list(class).into_iter().map(describe).collect()
}

fn addresses(interface: &str) -> Vec<String> {
    let Ok(all) = getifaddrs() else { return Vec::new() };
    all.filter(|entry| entry.interface_name == interface)
        .filter_map(|entry| {
            let address = entry.address?;
            let v4 = address.as_sockaddr_in().map(|a| a.ip().to_string());
            v4.or_else(|| address.as_sockaddr_in6().map(|a| a.ip().to_string()))
        })
        .take(MAX_ADDRESSES)
        .collect()
}

/// Logical processors and the first one's model, from `/proc/cpuinfo`.
fn cpus(cpuinfo: &str) -> (u32, String) {
    let values = |key: &'static str| {
        cpuinfo.lines().filter_map(move |line| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == key).then(|| value.trim().to_owned())
        })
    };
    let count = u32::try_from(values("processor").count()).unwrap_or(u32::MAX);
    (count, values("model name").next().unwrap_or_default())
}

/// Usable memory in bytes, from `/proc/meminfo`, which counts in KiB.
fn memory(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|rest| rest.split_ascii_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    fn write(root: &Path, file: &str, content: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    #[test]
    fn a_machine_is_read_from_its_files() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for (file, content) in [
            ("sys/class/dmi/id/product_uuid", "4c4c4544-0042-4810-8052-b4c04f395931\n"),
            ("sys/class/dmi/id/product_serial", "B0H9Y1\n"),
            ("sys/class/dmi/id/sys_vendor", "QEMU\n"),
            ("sys/class/dmi/id/product_name", "Standard PC\n"),
            ("sys/firmware/efi/fw_platform_size", "64\n"),
            ("sys/class/tpm/tpm0/tpm_version_major", "2\n"),
            ("sys/class/net/iwtest0/type", "1\n"),
            ("sys/class/net/iwtest0/ifindex", "2\n"),
            ("sys/class/net/iwtest0/address", "52:54:00:12:34:56\n"),
            ("sys/class/net/iwtest0/operstate", "up\n"),
            ("sys/class/net/iwtest0/device/vendor", "0x1af4\n"),
            ("proc/meminfo", "MemTotal:         501188 kB\nMemFree:   1 kB\n"),
            (
                "proc/cpuinfo",
                "processor\t: 0\nmodel name\t: QEMU TCG CPU\n\nprocessor\t: 1\nmodel name\t: QEMU TCG CPU\n",
            ),
        ] {
            write(root, file, content);
        }
        symlink("../../bus/virtio/drivers/virtio_net", root.join("sys/class/net/iwtest0/device/driver"))
            .unwrap();
        let found = collect(&Roots::under(root));
        let nic = Nic {
            name: "iwtest0".into(),
            mac: "52:54:00:12:34:56".into(),
            up: true,
            addresses: vec![],
            driver: "virtio_net".into(),
        };
        assert_eq!(found.nics, [nic]);
        assert_eq!((found.memory_bytes, found.cpus), (501_188 * 1024, 2));
        assert_eq!(
            (found.cpu_model.as_str(), found.firmware.as_str(), found.tpm),
            ("QEMU TCG CPU", "uefi", true)
        );
        assert_eq!(found.product_uuid, "4c4c4544-0042-4810-8052-b4c04f395931");
        assert_eq!((found.serial.as_str(), found.vendor.as_str()), ("B0H9Y1", "QEMU"));
    }

    #[test]
    fn an_empty_machine_is_empty_and_bios() {
        let dir = tempfile::tempdir().unwrap();
        let found = collect(&Roots::under(dir.path()));
        assert_eq!(found, Inventory { firmware: "bios".into(), ..Inventory::default() });
    }
}
