//! The disks of this machine: as an inventory lists them, and the one that an order means.

use std::{
    thread,
    time::{Duration, Instant},
};

use ironwright_agent::{CommandError, fail};
use ironwright_images::{
    disks::{ChooseError, Disk, Hint, choose, sysfs},
    target::{DiskFile, OpenError},
};
use ironwright_proto::wire;

use super::Machine;
use crate::{console::chain, machine::Roots};

/// How often is looked for disks that are not there yet.
const POLL: Duration = Duration::from_millis(250);

/// All disks, for the inventory.
pub fn list(roots: &Roots) -> Vec<wire::Disk> {
    read(roots).into_iter().map(describe).collect()
}

/// Chooses the disk for `needed` bytes and opens it. Where none is there yet, it is waited
/// for. Blocks.
pub fn open(machine: &Machine, hint: &wire::DiskHint, needed: u64) -> Result<(Disk, DiskFile), CommandError> {
    let hint = checked(hint);
    let deadline = Instant::now() + machine.waits.disks;
    loop {
        machine.settle();
        let disks = read(&machine.roots);
        match choose(&disks, &hint, needed) {
            Ok(disk) => {
                let file =
                    DiskFile::open(&disk.path).map_err(|error| fail(open_code(&error), chain(&error)))?;
                return Ok((disk.clone(), file));
            }
            Err(ChooseError::NoDisk { .. } | ChooseError::NoMatch { .. }) if Instant::now() < deadline => {
                thread::sleep(POLL);
            }
            Err(error) => return Err(fail(choose_code(&error, needed), error.to_string())),
        }
    }
}

/// The disks with their nodes under the machine's own device folder.
pub(super) fn read(roots: &Roots) -> Vec<Disk> {
    let mut disks = sysfs::read(&roots.sys).unwrap_or_default();
    for disk in &mut disks {
        disk.path = roots.dev.join(&disk.name);
    }
    disks
}

fn describe(disk: Disk) -> wire::Disk {
    wire::Disk {
        name: disk.name,
        path: disk.path.display().to_string(),
        size_bytes: disk.size,
        logical_sector_bytes: disk.logical_sector,
        physical_sector_bytes: disk.physical_sector,
        model: disk.model,
        serial: disk.serial,
        wwid: disk.wwid,
        rotational: disk.rotational,
        removable: disk.removable,
        read_only: disk.read_only,
        transport: disk.transport,
    }
}

fn checked(hint: &wire::DiskHint) -> Hint {
    let text = |text: &String| (!text.is_empty()).then(|| text.clone());
    Hint {
        name: text(&hint.name),
        serial: text(&hint.serial),
        wwid: text(&hint.wwid),
        min_size: (hint.min_size_bytes > 0).then_some(hint.min_size_bytes),
    }
}

fn choose_code(error: &ChooseError, image: u64) -> &'static str {
    match error {
        ChooseError::TooSmall { needed, .. } if *needed <= image => "image_too_large",
        ChooseError::NoDisk { .. } | ChooseError::NoMatch { .. } | ChooseError::TooSmall { .. } => "no_disk",
        ChooseError::Unusable { .. } => "disk_unusable",
        ChooseError::Ambiguous { .. } => "ambiguous_disk",
    }
}

pub(super) fn open_code(error: &OpenError) -> &'static str {
    match error {
        OpenError::Busy(_) => "disk_busy",
        OpenError::NotADisk(_) | OpenError::Geometry { .. } | OpenError::Io { .. } => "disk_unusable",
    }
}
