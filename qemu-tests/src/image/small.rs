//! A small image: a kernel and our initramfs, which is the whole operating system. Quick to deploy and boot.

use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::disk::{Boot, DATA_TYPE, Partition, assemble, compress, make_esp};
use crate::{
    artifacts::Artifacts,
    cache::{self, Recipe},
};

const COMMAND_LINE: &str = "console=ttyS0 panic=10 iw.role=node";

/// Files of a small image.
#[derive(Debug, Clone)]
pub struct SmallImage {
    /// The image.
    pub raw: PathBuf,
    /// The same, compressed by zstd.
    pub zstd: PathBuf,
    /// Its EFI system partition: what is at [`super::ESP_OFFSET`].
    pub esp: PathBuf,
}

/// The small image.
pub fn small(artifacts: &Artifacts) -> Result<SmallImage> {
    small_with_ballast(artifacts, 0, 0)
}

/// The small image with a second partition of `partition_mib`, whose first `ballast_mib` neither compress nor
/// are zero. For deploys that are to take a while, or to be large.
pub fn small_with_ballast(artifacts: &Artifacts, ballast_mib: u32, partition_mib: u32) -> Result<SmallImage> {
    let recipe = Recipe::default()
        .file(&artifacts.kernel.vmlinuz)?
        .file(&artifacts.ramdisk)?
        .text(COMMAND_LINE)
        .text(include_str!("disk.rs"));
    let folder = cache::get(&format!("small-{ballast_mib}-{partition_mib}"), &recipe, |dir| {
        build(dir, artifacts, ballast_mib, partition_mib)
    })?;
    let file = |name: &str| folder.join(name);
    Ok(SmallImage { raw: file("disk.raw"), zstd: file("disk.raw.zst"), esp: file("esp.img") })
}

fn build(dir: &Path, artifacts: &Artifacts, ballast_mib: u32, partition_mib: u32) -> Result<()> {
    let boot =
        Boot { kernel: &artifacts.kernel.vmlinuz, initrd: &artifacts.ramdisk, command_line: COMMAND_LINE };
    let esp = make_esp(dir, &boot)?;
    let ballast = dir.join("ballast");
    let raw = if partition_mib == 0 {
        assemble(dir, &esp, None)?
    } else {
        write_ballast(&ballast, ballast_mib, partition_mib)?;
        let raw =
            assemble(dir, &esp, Some(&Partition { kind: DATA_TYPE, name: "ballast", content: &ballast }))?;
        fs::remove_file(&ballast).context("removing a temporary file")?;
        raw
    };
    compress(&raw).map(drop)
}

/// Bytes of a linear feedback shift register (xorshift64, Marsaglia 2003): the same in every build.
fn write_ballast(path: &Path, mib: u32, whole_mib: u32) -> Result<()> {
    let file = File::create(path).with_context(|| format!("making {}", path.display()))?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let mut word: u64 = 0x2545_f491_4f6c_dd1d;
    for _ in 0..u64::from(mib) * ((1 << 20) / 8) {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        out.write_all(&word.to_le_bytes()).context("writing ballast")?;
    }
    let file = out.into_inner().context("writing ballast")?;
    file.set_len(u64::from(whole_mib.max(mib)) << 20).context("sizing the ballast")
}
