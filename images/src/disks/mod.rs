//! Which disk an image goes to (field report I7).

pub mod sysfs;

use std::path::PathBuf;

/// Without a hint no disk below this is taken, in bytes: smaller ones are boot keys and card readers.
pub const MIN_SIZE: u64 = 4 << 30;

/// Kernel names of devices that no image is ever written to.
const NEVER: &[&str] = &["ram", "loop", "zram", "fd", "sr", "nbd", "dm-", "md", "mtdblock"];

/// A whole disk as the kernel shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Disk {
    /// Kernel name: `nvme0n1`.
    pub name: String,
    /// Device node.
    pub path: PathBuf,
    /// In bytes; 0 for an empty drive.
    pub size: u64,
    /// In bytes.
    pub logical_sector: u32,
    /// In bytes.
    pub physical_sector: u32,
    /// As the disk says, trimmed.
    pub model: String,
    /// As the disk says, trimmed.
    pub serial: String,
    /// World wide id: `eui.…`, `naa.…`.
    pub wwid: String,
    /// Has platters.
    pub rotational: bool,
    /// Its medium can be taken out; also virtual media of a BMC.
    pub removable: bool,
    /// Cannot be written.
    pub read_only: bool,
    /// `nvme`, `virtio`, `sata`, `usb`, …; empty where unknown.
    pub transport: String,
}

/// What the operator knows about the disk. Every given field must match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hint {
    /// Kernel name.
    pub name: Option<String>,
    /// Serial number.
    pub serial: Option<String>,
    /// World wide id.
    pub wwid: Option<String>,
    /// Least size in bytes.
    pub min_size: Option<u64>,
}

/// Why no disk was chosen. Lists name disks as `name (bytes)`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChooseError {
    /// No disk can be written at all.
    #[error("the machine has no disk that could be written; it has: {seen}")]
    NoDisk {
        /// Everything the kernel shows.
        seen: String,
    },
    /// No disk is what the hint says.
    #[error("no disk fits the hint; the machine has: {seen}")]
    NoMatch {
        /// Everything the kernel shows.
        seen: String,
    },
    /// The hint names something that is never written.
    #[error("the disk {name} cannot be used: it is {why}")]
    Unusable {
        /// Kernel name.
        name: String,
        /// `empty`, `read-only` or `no disk`.
        why: &'static str,
    },
    /// All disks are too small.
    #[error("no disk has the needed {needed} bytes; the machine has: {seen}")]
    TooSmall {
        /// In bytes.
        needed: u64,
        /// Those that were considered.
        seen: String,
    },
    /// Several disks fit equally well.
    #[error("several disks fit equally well, so one must be named by a hint: {seen}")]
    Ambiguous {
        /// Those that fit.
        seen: String,
    },
}

impl Disk {
    /// Why the disk is never written, whoever asks.
    fn unusable(&self) -> Option<&'static str> {
        if NEVER.iter().any(|prefix| self.name.starts_with(prefix)) {
            Some("no disk")
        } else if self.size == 0 {
            Some("empty")
        } else if self.read_only {
            Some("read-only")
        } else {
            None
        }
    }
}

impl Hint {
    /// Whether the hint says which disk, and not only how large.
    fn is_specific(&self) -> bool {
        self.name.is_some() || self.serial.is_some() || self.wwid.is_some()
    }

    fn matches(&self, disk: &Disk) -> bool {
        let same = |want: &Option<String>, have: &str| want.as_ref().is_none_or(|want| want == have);
        same(&self.name, &disk.name)
            && same(&self.serial, &disk.serial)
            && same(&self.wwid, &disk.wwid)
            && self.min_size.is_none_or(|least| disk.size >= least)
    }
}

/// Chooses the disk for an image of `needed` bytes. A hint that names a disk decides. Else it is the smallest
/// fixed disk that holds the image and has at least the hint's size, or [`MIN_SIZE`]; where two such disks have
/// the same size, none.
pub fn choose<'a>(disks: &'a [Disk], hint: &Hint, needed: u64) -> Result<&'a Disk, ChooseError> {
    if hint.is_specific() { choose_named(disks, hint, needed) } else { choose_smallest(disks, hint, needed) }
}

fn choose_named<'a>(disks: &'a [Disk], hint: &Hint, needed: u64) -> Result<&'a Disk, ChooseError> {
    let matching: Vec<&Disk> = disks.iter().filter(|disk| hint.matches(disk)).collect();
    let usable: Vec<&Disk> = matching.iter().copied().filter(|disk| disk.unusable().is_none()).collect();
    match (usable.as_slice(), matching.first()) {
        ([], None) => Err(ChooseError::NoMatch { seen: list(disks) }),
        ([], Some(disk)) => {
            Err(ChooseError::Unusable { name: disk.name.clone(), why: disk.unusable().unwrap_or("no disk") })
        }
        ([disk], _) if disk.size < needed => {
            Err(ChooseError::TooSmall { needed, seen: list(usable.iter().copied()) })
        }
        ([disk], _) => Ok(disk),
        (several, _) => Err(ChooseError::Ambiguous { seen: list(several.iter().copied()) }),
    }
}

fn choose_smallest<'a>(disks: &'a [Disk], hint: &Hint, needed: u64) -> Result<&'a Disk, ChooseError> {
    let usable = |disk: &&Disk| disk.unusable().is_none() && !disk.removable;
    let fixed: Vec<&Disk> = disks.iter().filter(usable).collect();
    if fixed.is_empty() {
        return Err(ChooseError::NoDisk { seen: list(disks) });
    }
    let least = needed.max(hint.min_size.unwrap_or(MIN_SIZE));
    let mut fitting: Vec<&Disk> = fixed.iter().copied().filter(|disk| disk.size >= least).collect();
    fitting.sort_by_key(|disk| disk.size);
    match fitting.as_slice() {
        [] => Err(ChooseError::TooSmall { needed: least, seen: list(fixed) }),
        [first, second, ..] if first.size == second.size => {
            let equal = fitting.iter().copied().filter(|disk| disk.size == first.size);
            Err(ChooseError::Ambiguous { seen: list(equal) })
        }
        [first, ..] => Ok(first),
    }
}

fn list<'a>(disks: impl IntoIterator<Item = &'a Disk>) -> String {
    let each = disks.into_iter().map(|disk| format!("{} ({})", disk.name, disk.size));
    let text = each.collect::<Vec<_>>().join(", ");
    if text.is_empty() { "nothing".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn disk(name: &str, size: u64) -> Disk {
        Disk { name: name.into(), path: format!("/dev/{name}").into(), size, ..Disk::default() }
    }

    /// The machine of field report I7.
    fn i7_machine() -> Vec<Disk> {
        vec![
            disk("sda", 0),
            Disk { read_only: true, ..disk("sdb", 6 * GIB) },
            disk("zram0", 5 * GIB),
            disk("fd0", 1_474_560),
            Disk { removable: true, ..disk("sr0", 5 * GIB) },
            Disk { removable: true, ..disk("sdf", 5 * GIB) },
            disk("sdc", 3 * GIB),
            Disk { serial: "S8".into(), wwid: "naa.8".into(), ..disk("sdd", 8 * GIB) },
            disk("nvme0n1", 2048 * GIB),
        ]
    }

    fn named(name: &str) -> Hint {
        Hint { name: Some(name.into()), ..Hint::default() }
    }

    #[test]
    fn i7_smallest_fitting_fixed_disk_of_at_least_4_gib() {
        let disks = i7_machine();
        assert_eq!(choose(&disks, &Hint::default(), GIB).unwrap().name, "sdd");
        assert_eq!(choose(&disks, &Hint::default(), 9 * GIB).unwrap().name, "nvme0n1");
    }

    #[test]
    fn i7_a_hint_comes_first() {
        let disks = i7_machine();
        assert_eq!(choose(&disks, &named("nvme0n1"), GIB).unwrap().name, "nvme0n1");
        assert_eq!(choose(&disks, &named("sdc"), GIB).unwrap().name, "sdc", "below 4 GiB, but named");
        assert_eq!(choose(&disks, &named("sdf"), GIB).unwrap().name, "sdf", "removable, but named");
        let serial = Hint { serial: Some("S8".into()), wwid: Some("naa.8".into()), ..Hint::default() };
        assert_eq!(choose(&disks, &serial, GIB).unwrap().name, "sdd");
        let size = Hint { min_size: Some(2 * GIB), ..Hint::default() };
        assert_eq!(choose(&disks, &size, GIB).unwrap().name, "sdc");
    }

    #[test]
    fn i7_some_devices_are_never_taken_even_when_named() {
        let disks = i7_machine();
        for (name, why) in [
            ("sda", "empty"),
            ("sdb", "read-only"),
            ("zram0", "no disk"),
            ("fd0", "no disk"),
            ("sr0", "no disk"),
        ] {
            let error = choose(&disks, &named(name), 0).unwrap_err();
            assert_eq!(error, ChooseError::Unusable { name: name.into(), why });
        }
    }

    #[test]
    fn two_equal_disks_and_no_hint_are_ambiguous() {
        let disks = [disk("sda", 8 * GIB), disk("sdb", 8 * GIB), disk("sdc", 16 * GIB)];
        let error = choose(&disks, &Hint::default(), GIB).unwrap_err();
        assert_eq!(error, ChooseError::Ambiguous { seen: "sda (8589934592), sdb (8589934592)".into() });
        assert_eq!(choose(&disks, &named("sdb"), GIB).unwrap().name, "sdb");
    }

    #[test]
    fn no_fitting_disk_is_said() {
        let small = [disk("sda", 8 * GIB)];
        assert!(
            matches!(choose(&small, &Hint::default(), 9 * GIB), Err(ChooseError::TooSmall { needed, .. }) if needed == 9 * GIB)
        );
        assert!(matches!(choose(&small, &named("sda"), 9 * GIB), Err(ChooseError::TooSmall { .. })));
        assert!(matches!(choose(&small, &named("sdb"), 0), Err(ChooseError::NoMatch { .. })));
        assert_eq!(choose(&[], &Hint::default(), 0), Err(ChooseError::NoDisk { seen: "nothing".into() }));
    }
}
