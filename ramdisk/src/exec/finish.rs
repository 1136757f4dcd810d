//! `boot.finish`: everything is on stable storage, and the deployed disk has a partition table to boot from.

use ironwright_agent::{CommandError, fail};
use ironwright_images::{
    table::Table,
    target::{DiskFile, Target},
};
use ironwright_proto::wire::BootFinishArgs;
use nix::unistd;

use super::disks;
use crate::{console::chain, machine::Roots};

/// Runs the order. Blocks.
pub fn run(roots: &Roots, args: &BootFinishArgs) -> Result<(), CommandError> {
    let disk = disks::read(roots).into_iter().find(|disk| disk.path.as_os_str() == args.path.as_str());
    let disk =
        disk.ok_or_else(|| fail("no_disk", format!("`{}` is not a disk of this machine", args.path)))?;
    unistd::sync();
    let mut file =
        DiskFile::open(&disk.path).map_err(|error| fail(disks::open_code(&error), chain(&error)))?;
    let unreadable = |error: std::io::Error| fail("read_failed", format!("reading {}: {error}", args.path));
    file.sync().map_err(unreadable)?;
    match Table::read(&mut file).map_err(unreadable)? {
        Ok(Table::Gpt(_) | Table::Mbr(_)) => Ok(()),
        Ok(Table::None) => {
            Err(fail("no_partition_table", format!("{} has no partition table to boot from", args.path)))
        }
        Err(error) => Err(fail("no_partition_table", format!("{}: {}", args.path, chain(&error)))),
    }
}
