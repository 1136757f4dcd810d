//! The kernel's file systems.

use std::{fs, io, path::Path};

use nix::{
    errno::Errno,
    mount::{MsFlags, mount},
};

/// A file system that this process needs could not be had.
#[derive(Debug, thiserror::Error)]
#[error("mounting {kind} on {target}")]
pub struct MountError {
    /// Type of the file system.
    pub kind: &'static str,
    /// Where it belongs.
    pub target: &'static str,
    /// The kernel's word.
    #[source]
    pub source: io::Error,
}

struct Mount {
    kind: &'static str,
    target: &'static str,
    flags: MsFlags,
    data: Option<&'static str>,
    needed: bool,
}

const QUIET: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NOEXEC).union(MsFlags::MS_NODEV);

const fn needed(
    kind: &'static str,
    target: &'static str,
    flags: MsFlags,
    data: Option<&'static str>,
) -> Mount {
    Mount { kind, target, flags, data, needed: true }
}

const fn optional(kind: &'static str, target: &'static str) -> Mount {
    Mount { kind, target, flags: QUIET, data: None, needed: false }
}

const MOUNTS: [Mount; 6] = [
    needed("devtmpfs", "/dev", MsFlags::MS_NOSUID, None),
    needed("proc", "/proc", QUIET, None),
    needed("sysfs", "/sys", QUIET, None),
    needed("tmpfs", "/run", MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV), Some("mode=0755,size=64m")),
    // The TPM's event log; a join without it proves less, but is a join.
    optional("securityfs", "/sys/kernel/security"),
    optional("efivarfs", "/sys/firmware/efi/efivars"),
];

/// Mounts them all. The optional ones may be missing from this kernel or machine.
pub fn all() -> Result<(), MountError> {
    for entry in MOUNTS {
        let result = one(&entry);
        if entry.needed {
            result.map_err(|source| MountError { kind: entry.kind, target: entry.target, source })?;
        }
    }
    Ok(())
}

fn one(entry: &Mount) -> io::Result<()> {
    if !Path::new(entry.target).is_dir() {
        fs::create_dir_all(entry.target)?;
    }
    match mount(Some(entry.kind), entry.target, Some(entry.kind), entry.flags, entry.data) {
        // Already there: mounted by the kernel itself.
        Ok(()) | Err(Errno::EBUSY) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
