//! Reads the disks from `/sys/block`.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use super::Disk;

/// Most block devices that are looked at.
const MAX_DISKS: usize = 4096;

/// Longest attribute, in bytes: one page is sysfs's own limit.
const MAX_ATTRIBUTE: u64 = 4096;

/// Linux counts sizes in these, whatever the disk's sectors are.
const SIZE_UNIT: u64 = 512;

/// All block devices that are no partitions, by name; `sys` is where sysfs is mounted. Attributes that a
/// device does not have stay empty.
pub fn read(sys: &Path) -> io::Result<Vec<Disk>> {
    let mut disks = Vec::new();
    for entry in fs::read_dir(sys.join("block"))?.take(MAX_DISKS) {
        let dir = entry?.path();
        // Paths of a multipath NVMe disk; the disk itself is another entry.
        if !flag(&dir, "hidden") {
            disks.extend(disk(&dir));
        }
    }
    disks.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(disks)
}

fn disk(dir: &Path) -> Option<Disk> {
    // Sysfs writes `!` for a `/` in a device's name.
    let name = dir.file_name()?.to_str()?.replace('!', "/");
    let first_of = |names: &[&str]| names.iter().map(|n| text(dir, n)).find(|t| !t.is_empty());
    let serial = first_of(&["serial", "device/serial"]).or_else(|| vpd_serial(dir));
    Some(Disk {
        path: PathBuf::from("/dev").join(&name),
        size: number(dir, "size").saturating_mul(SIZE_UNIT),
        logical_sector: sector(dir, "queue/logical_block_size"),
        physical_sector: sector(dir, "queue/physical_block_size"),
        model: text(dir, "device/model"),
        serial: serial.unwrap_or_default(),
        wwid: first_of(&["wwid", "device/wwid"]).unwrap_or_default(),
        rotational: flag(dir, "queue/rotational"),
        removable: flag(dir, "removable"),
        read_only: flag(dir, "ro"),
        transport: transport(dir, &name),
        name,
    })
}

/// The serial number of a SCSI or SATA disk: page 80h of its vital product data (SPC-4 7.8.13), behind a
/// header of 4 bytes.
fn vpd_serial(dir: &Path) -> Option<String> {
    let page = bytes(dir, "device/vpd_pg80");
    let serial = String::from_utf8_lossy(page.get(4..)?).trim_matches(['\0', ' ']).to_owned();
    (!serial.is_empty()).then_some(serial)
}

/// The bus, from the path of the device in the device tree.
fn transport(dir: &Path, name: &str) -> String {
    let path = fs::canonicalize(dir).unwrap_or_default();
    let has = |prefix: &str| {
        let mut parts = path.iter().filter_map(|part| part.to_str());
        parts.any(|part| {
            part.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        })
    };
    let known = [("usb", "usb"), ("virtio", "virtio"), ("ata", "sata"), ("mmc", "mmc")];
    let found = known.into_iter().find(|(prefix, _)| has(prefix)).map(|(_, word)| word);
    let nvme = name.starts_with("nvme").then_some("nvme");
    let scsi = name.starts_with("sd").then_some("scsi");
    nvme.or(found).or(scsi).unwrap_or_default().to_owned()
}

fn bytes(dir: &Path, name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(dir.join(name)) {
        // An attribute that cannot be read is as good as absent.
        let _ = file.take(MAX_ATTRIBUTE).read_to_end(&mut bytes);
    }
    bytes
}

fn text(dir: &Path, name: &str) -> String {
    String::from_utf8_lossy(&bytes(dir, name)).trim().to_owned()
}

fn number(dir: &Path, name: &str) -> u64 {
    text(dir, name).parse().unwrap_or(0)
}

fn sector(dir: &Path, name: &str) -> u32 {
    text(dir, name).parse().unwrap_or(512)
}

fn flag(dir: &Path, name: &str) -> bool {
    number(dir, name) == 1
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn lay_out(sys: &Path, device: &str, attributes: &[(&str, &[u8])]) {
        let dir = sys.join("devices").join(device);
        for (name, content) in attributes {
            let path = dir.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        fs::create_dir_all(sys.join("block")).unwrap();
        symlink(&dir, sys.join("block").join(dir.file_name().unwrap())).unwrap();
    }

    #[test]
    fn attributes_are_read_as_the_kernel_lays_them_out() {
        let sys = tempfile::tempdir().unwrap();
        let sata: &[(&str, &[u8])] = &[
            ("size", b"16777216\n"),
            ("ro", b"0\n"),
            ("removable", b"0\n"),
            ("queue/logical_block_size", b"512\n"),
            ("queue/physical_block_size", b"4096\n"),
            ("queue/rotational", b"1\n"),
            ("device/model", b"QEMU HARDDISK   \n"),
            ("device/wwid", b"naa.5000c500a1b2c3d4\n"),
            ("device/vpd_pg80", b"\0\x80\0\x08  QM0001"),
        ];
        lay_out(sys.path(), "pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0/block/sda", sata);
        let nvme: &[(&str, &[u8])] = &[
            ("size", b"4294967296\n"),
            ("wwid", b"eui.0025385b11111111\n"),
            ("queue/logical_block_size", b"4096\n"),
            ("device/serial", b"S4EVNX0M\n"),
        ];
        lay_out(sys.path(), "pci0000:00/0000:00:04.0/nvme/nvme0/nvme0n1", nvme);
        lay_out(sys.path(), "pci0000:00/0000:00:04.0/nvme/nvme0/nvme0c0n1", &[("hidden", b"1\n")]);
        let virtio: &[(&str, &[u8])] = &[("size", b"8\n"), ("serial", b"root-1"), ("ro", b"1\n")];
        lay_out(sys.path(), "pci0000:00/0000:00:05.0/virtio2/block/vda", virtio);

        let disks = read(sys.path()).unwrap();
        assert_eq!(disks.iter().map(|d| d.name.as_str()).collect::<Vec<_>>(), ["nvme0n1", "sda", "vda"]);
        let [nvme, sda, vda] = disks.try_into().unwrap();
        assert_eq!((nvme.size, nvme.logical_sector), (2 << 40, 4096));
        assert_eq!((nvme.serial.as_str(), nvme.transport.as_str()), ("S4EVNX0M", "nvme"));
        let expected = Disk {
            name: "sda".into(),
            path: "/dev/sda".into(),
            size: 8 << 30,
            logical_sector: 512,
            physical_sector: 4096,
            model: "QEMU HARDDISK".into(),
            serial: "QM0001".into(),
            wwid: "naa.5000c500a1b2c3d4".into(),
            rotational: true,
            removable: false,
            read_only: false,
            transport: "sata".into(),
        };
        assert_eq!(sda, expected);
        assert_eq!((vda.serial.as_str(), vda.transport.as_str(), vda.read_only), ("root-1", "virtio", true));
    }

    #[test]
    fn a_missing_sysfs_is_an_error() {
        assert!(read(Path::new("/nonexistent")).is_err());
    }
}
