//! Named sets of drivers.

use std::str::FromStr;

/// Which machines an initramfs is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriverSet {
    /// Virtual machines: virtio, and the devices that QEMU, Hyper-V and VMware imitate.
    Vm,
    /// Real machines: all wired network, storage, USB host and TPM drivers, and those of `Vm`.
    Full,
}

/// Buses, disks, network cards, TPMs and EFI variables of virtual machines.
const VM: &[&str] = &[
    "virtio_pci",
    "virtio_mmio",
    "virtio_net",
    "virtio_blk",
    "virtio_scsi",
    "virtio-rng",
    "nvme",
    "ahci",
    "ata_piix",
    "ata_generic",
    "sd_mod",
    "e1000",
    "e1000e",
    "vmxnet3",
    "vmw_pvscsi",
    "mptspi",
    "hv_vmbus",
    "hv_netvsc",
    "hv_storvsc",
    "pci-hyperv",
    "tpm_tis",
    "tpm_crb",
    "efivarfs",
];

/// Drivers of real machines that lie in none of the folders.
const REAL: &[&str] = &["vmd", "efi_pstore"];

/// Folders whose modules real machines may need.
const FOLDERS: &[&str] = &[
    "kernel/drivers/ata/",
    "kernel/drivers/char/hw_random/",
    "kernel/drivers/char/tpm/",
    "kernel/drivers/message/fusion/",
    "kernel/drivers/mmc/",
    "kernel/drivers/net/ethernet/",
    "kernel/drivers/net/phy/",
    "kernel/drivers/net/usb/",
    "kernel/drivers/nvme/host/",
    "kernel/drivers/scsi/",
    "kernel/drivers/usb/core/",
    "kernel/drivers/usb/host/",
    "kernel/drivers/usb/storage/",
];

/// What in those folders no deploy needs: test devices, tapes, mobile modems, other hosts' bus adapters.
const NOT_NEEDED: &[&str] = &[
    "kernel/drivers/net/usb/cdc-phonet",
    "kernel/drivers/net/usb/hso",
    "kernel/drivers/net/usb/qmi_wwan",
    "kernel/drivers/net/usb/sierra_net",
    "kernel/drivers/scsi/ch.",
    "kernel/drivers/scsi/osst",
    "kernel/drivers/scsi/pcmcia/",
    "kernel/drivers/scsi/scsi_debug",
    "kernel/drivers/scsi/sr_mod",
    "kernel/drivers/scsi/st.",
    "kernel/drivers/net/ethernet/8390/",
    "kernel/drivers/usb/host/sl811",
];

impl DriverSet {
    /// Modules wanted by name.
    pub(super) fn names(self) -> impl Iterator<Item = &'static &'static str> {
        let real: &[_] = if self == Self::Full { REAL } else { &[] };
        VM.iter().chain(real)
    }

    /// Whether the set wants this file, by its path below the folder of the modules.
    pub(super) fn has_file(self, path: &str) -> bool {
        let in_any = |list: &[&str]| list.iter().any(|prefix| path.starts_with(prefix));
        self == Self::Full && in_any(FOLDERS) && !in_any(NOT_NEEDED)
    }

    /// The word used on the command line: `vm` or `full`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Vm => "vm",
            Self::Full => "full",
        }
    }
}

/// Not the name of a driver set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no driver set (vm, full)")]
pub struct UnknownSet(String);

impl FromStr for DriverSet {
    type Err = UnknownSet;

    fn from_str(text: &str) -> Result<Self, UnknownSet> {
        let known = [Self::Vm, Self::Full].into_iter().find(|set| set.as_str() == text);
        known.ok_or_else(|| UnknownSet(text.chars().take(32).collect()))
    }
}
