//! What a machine is made of, and the QEMU arguments for it.

use std::path::Path;

use super::Accelerator;

pub(super) const OVMF_CODE: &str = "/usr/share/OVMF/OVMF_CODE_4M.fd";
pub(super) const OVMF_VARS: &str = "/usr/share/OVMF/OVMF_VARS_4M.fd";
/// QEMU's name for the disk.
pub(super) const DRIVE: &str = "disk0";
/// Default of [`MachineSpec::disk_bytes`]: twice what an image needs by default.
const DISK_BYTES: u64 = 8 << 30;

/// What runs before the boot loader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Firmware {
    /// SeaBIOS.
    Bios,
    /// OVMF.
    Uefi,
}

/// How the disk is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskBus {
    /// An NVMe controller.
    Nvme,
    /// virtio-blk.
    Virtio,
}

/// The network card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NicModel {
    /// virtio-net. Under UEFI without an option ROM: the firmware's own PXE is used.
    Virtio,
    /// Intel 82540EM with iPXE as its option ROM.
    E1000,
}

/// What a machine is made of.
#[derive(Debug, Clone)]
pub struct MachineSpec {
    /// Name of the machine, and its id in control.
    pub name: String,
    /// What runs before the boot loader.
    pub firmware: Firmware,
    /// How the disk is attached.
    pub disk: DiskBus,
    /// The network card.
    pub nic: NicModel,
    /// Address of the network card.
    pub mac: String,
    /// Network boot is switched on in the firmware. It then comes first in the boot order.
    pub network_boot: bool,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Size of the disk. It is sparse on the host.
    pub disk_bytes: u64,
}

/// Where a machine's wires end on the host.
pub(super) struct Wiring<'a> {
    pub(super) dir: &'a Path,
    pub(super) tap: &'a str,
    pub(super) tpm_socket: Option<&'a Path>,
    pub(super) qmp_socket: &'a Path,
    pub(super) accelerator: Accelerator,
}

impl MachineSpec {
    /// UEFI, NVMe, virtio-net without option ROM.
    pub fn uefi_nvme(name: &str) -> Self {
        Self::new(name, Firmware::Uefi, DiskBus::Nvme)
    }

    /// BIOS, virtio-blk, virtio-net with iPXE as its option ROM.
    pub fn bios_virtio(name: &str) -> Self {
        Self::new(name, Firmware::Bios, DiskBus::Virtio)
    }

    fn new(name: &str, firmware: Firmware, disk: DiskBus) -> Self {
        Self {
            name: name.to_owned(),
            firmware,
            disk,
            nic: NicModel::Virtio,
            mac: "52:54:00:77:01:01".to_owned(),
            network_boot: true,
            memory_mib: 512,
            disk_bytes: DISK_BYTES,
        }
    }

    /// The same with so much memory.
    #[must_use]
    pub fn memory_mib(self, memory_mib: u32) -> Self {
        Self { memory_mib, ..self }
    }

    /// The same with another network card.
    #[must_use]
    pub fn nic(self, nic: NicModel) -> Self {
        Self { nic, ..self }
    }

    /// The same with network boot switched off in the firmware.
    #[must_use]
    pub fn without_network_boot(self) -> Self {
        Self { network_boot: false, ..self }
    }

    /// QEMU's arguments. The network comes first in the boot order, then the disk.
    pub(super) fn arguments(&self, wiring: &Wiring<'_>) -> Vec<String> {
        let mut args = Arguments::default();
        args.flag("-nodefaults");
        // Without graphics SeaBIOS and its option ROMs speak on the serial port.
        args.add("-machine", "q35,graphics=off");
        args.add("-display", "none");
        args.add("-accel", wiring.accelerator.argument());
        args.add("-cpu", wiring.accelerator.cpu());
        args.add("-smp", "2");
        args.add("-m", &format!("{}M", self.memory_mib));
        args.add("-name", &self.name);
        args.add("-smbios", &format!("type=1,manufacturer=Ironwright,product=Rig,serial={}", self.name));
        args.add("-device", "virtio-rng-pci");
        args.add("-chardev", "stdio,id=serial0,signal=off");
        args.add("-serial", "chardev:serial0");
        args.add("-qmp", &format!("unix:{},server=on,wait=off", wiring.qmp_socket.display()));
        self.add_firmware(&mut args, wiring.dir);
        self.add_disk(&mut args, wiring.dir);
        self.add_nic(&mut args, wiring.tap);
        if let Some(socket) = wiring.tpm_socket {
            self.add_tpm(&mut args, socket);
        }
        args.0
    }

    fn add_firmware(&self, args: &mut Arguments, dir: &Path) {
        if self.firmware == Firmware::Uefi {
            args.add("-drive", &format!("if=pflash,format=raw,readonly=on,file={OVMF_CODE}"));
            args.add("-drive", &format!("if=pflash,format=raw,file={}/vars.fd", dir.display()));
            // Nothing serves IPv6 here; OVMF would try it for a minute before it goes on to the disk.
            args.add("-fw_cfg", "name=opt/org.tianocore/IPv6PXESupport,string=n");
            args.add("-fw_cfg", "name=opt/org.tianocore/IPv6Support,string=n");
        }
    }

    fn add_disk(&self, args: &mut Arguments, dir: &Path) {
        let file = format!("{}/disk.img", dir.display());
        args.add(
            "-drive",
            &format!("if=none,id={DRIVE},format=raw,discard=unmap,detect-zeroes=unmap,file={file}"),
        );
        let device = match self.disk {
            DiskBus::Nvme => "nvme",
            DiskBus::Virtio => "virtio-blk-pci",
        };
        args.add("-device", &format!("{device},drive={DRIVE},serial={}-disk,bootindex=2", self.name));
    }

    fn add_nic(&self, args: &mut Arguments, tap: &str) {
        args.add("-netdev", &format!("tap,id=net0,ifname={tap},script=no,downscript=no"));
        let model = match (self.nic, self.firmware) {
            (NicModel::Virtio, Firmware::Uefi) => "virtio-net-pci,romfile=",
            (NicModel::Virtio, Firmware::Bios) => "virtio-net-pci",
            (NicModel::E1000, _) => "e1000",
        };
        let boot = if self.network_boot { "bootindex=1" } else { "rombar=0" };
        args.add("-device", &format!("{model},netdev=net0,mac={},{boot}", self.mac));
    }

    fn add_tpm(&self, args: &mut Arguments, socket: &Path) {
        args.add("-chardev", &format!("socket,id=tpm0,path={}", socket.display()));
        args.add("-tpmdev", "emulator,id=tpm0,chardev=tpm0");
        let model = match self.firmware {
            Firmware::Uefi => "tpm-crb",
            Firmware::Bios => "tpm-tis",
        };
        args.add("-device", &format!("{model},tpmdev=tpm0"));
    }
}

#[derive(Default)]
struct Arguments(Vec<String>);

impl Arguments {
    fn flag(&mut self, name: &str) {
        self.0.push(name.to_owned());
    }

    fn add(&mut self, name: &str, value: &str) {
        self.0.extend([name.to_owned(), value.to_owned()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(spec: &MachineSpec) -> String {
        let wiring = Wiring {
            dir: Path::new("/m"),
            tap: "tap3",
            tpm_socket: Some(Path::new("/t/ctrl")),
            qmp_socket: Path::new("/m/qmp"),
            accelerator: Accelerator::Tcg,
        };
        spec.arguments(&wiring).join(" ")
    }

    #[test]
    fn uefi_boots_its_own_pxe_first_then_nvme() {
        let line = line(&MachineSpec::uefi_nvme("web-1"));
        for part in [
            "-drive if=pflash,format=raw,file=/m/vars.fd",
            "-device virtio-net-pci,romfile=,netdev=net0,mac=52:54:00:77:01:01,bootindex=1",
            "-device nvme,drive=disk0,serial=web-1-disk,bootindex=2",
            "-device tpm-crb,tpmdev=tpm0",
            "ifname=tap3",
        ] {
            assert!(line.contains(part), "{part} in {line}");
        }
    }

    #[test]
    fn bios_has_option_rom_and_tis() {
        let line = line(&MachineSpec::bios_virtio("web-1"));
        assert!(line.contains("-device virtio-net-pci,netdev=net0"), "{line}");
        assert!(line.contains("-device tpm-tis,tpmdev=tpm0"), "{line}");
        assert!(!line.contains("pflash"), "{line}");
    }
}
