//! `disk.erase`: the disk that an image will go to carries nothing any more.

use ironwright_agent::{CommandError, fail};
use ironwright_images::erase::erase;
use ironwright_proto::wire::{DiskEraseArgs, DiskEraseResult};

use super::{Machine, disks};
use crate::console::{chain, say};

/// Runs the order. Blocks.
pub fn run(machine: &Machine, args: &DiskEraseArgs) -> Result<DiskEraseResult, CommandError> {
    let hint = args.hint.clone().unwrap_or_default();
    let (disk, mut file) = disks::open(machine, &hint, args.image_size_bytes)?;
    say("erase", format_args!("{} ({} bytes, {})", disk.path.display(), disk.size, disk.model));
    machine.set_zeroed(None);
    let erased = erase(&mut file).map_err(|error| fail("erase_failed", chain(&error)))?;
    if erased.target_is_zero {
        machine.set_zeroed(Some(disk.path.clone()));
    }
    Ok(DiskEraseResult {
        path: disk.path.display().to_string(),
        size_bytes: disk.size,
        method: erased.method.as_str().to_owned(),
        serial: disk.serial.clone(),
        wwid: disk.wwid.clone(),
    })
}
