//! Bootable disks: an EFI system partition with kernel and initramfs, started by systemd-boot under UEFI
//! and by syslinux under BIOS, and maybe a partition with a root file system.
//!
//! ```text
//! LBA 0      protective MBR, with syslinux' gptmbr.bin (starts the partition that is marked "legacy boot")
//! LBA 1      GPT (UEFI 2.10, section 5.3)
//! 1 MiB      EFI system partition, FAT32, 64 MiB
//! 65 MiB     root or data partition
//! last MiB   backup GPT
//! ```

use std::{
    fs::{self, File},
    io::{ErrorKind, Read},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::{disk::SECTOR, process};

/// Offset of the EFI system partition.
pub const ESP_OFFSET: u64 = 1 << 20;
/// Size of the EFI system partition.
pub const ESP_BYTES: u64 = 64 << 20;
/// Room for the backup GPT.
const TAIL_BYTES: u64 = 1 << 20;
/// Holes are found in steps of this size.
const HOLE_BYTES: usize = 64 << 10;

const SYSTEMD_BOOT: &str = "/usr/lib/systemd/boot/efi/systemd-bootx64.efi";
const GPT_BOOT_CODE: &str = "/usr/lib/SYSLINUX/gptmbr.bin";
/// Boot code ends where the MBR's disk signature begins (UEFI 2.10, section 5.2.1).
const BOOT_CODE_MAX: usize = 440;

const ESP_TYPE: &str = "C12A7328-F81F-11D2-BA4B-00A0C93EC93B";
/// "Root partition (x86-64)" of the Discoverable Partitions Specification.
pub(super) const ROOT_TYPE: &str = "4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709";
/// "Linux filesystem data".
pub(super) const DATA_TYPE: &str = "0FC63DAF-8483-4772-8E79-3D69D8477DE4";
const DISK_ID: &str = "6972F1A0-0000-4000-8000-000000000000";
const ESP_ID: &str = "6972F1A0-0000-4000-8000-000000000001";
const SECOND_ID: &str = "6972F1A0-0000-4000-8000-000000000002";

/// What a boot loader starts.
pub(super) struct Boot<'a> {
    pub(super) kernel: &'a Path,
    pub(super) initrd: &'a Path,
    pub(super) command_line: &'a str,
}

/// A second partition.
pub(super) struct Partition<'a> {
    pub(super) kind: &'static str,
    pub(super) name: &'static str,
    pub(super) content: &'a Path,
}

/// Makes an EFI system partition as `esp.img` in `dir`.
pub(super) fn make_esp(dir: &Path, boot: &Boot<'_>) -> Result<PathBuf> {
    let esp = dir.join("esp.img");
    File::create(&esp).and_then(|file| file.set_len(ESP_BYTES)).context("making the system partition")?;
    let mut mkfs = process::command("mkfs.fat");
    mkfs.args(["--invariant", "-F", "32", "-n", "ESP", "-h"])
        .arg((ESP_OFFSET / SECTOR).to_string())
        .arg(&esp);
    process::run(&mut mkfs)?;

    let line = boot.command_line;
    let entry = format!("title Linux\nlinux /linux/vmlinuz\ninitrd /linux/initrd.img\noptions {line}\n");
    let syslinux = format!(
        "DEFAULT linux\nPROMPT 0\nLABEL linux\n LINUX /linux/vmlinuz\n INITRD /linux/initrd.img\n APPEND {line}\n"
    );
    let mut mmd = process::command("mmd");
    mmd.arg("-i").arg(&esp).args(["::/EFI", "::/EFI/BOOT", "::/loader", "::/loader/entries", "::/linux"]);
    process::run(&mut mmd)?;
    // Where removable media have their loader, which needs no boot variable (UEFI 2.10, section 3.5.1.1).
    copy_in(&esp, Path::new(SYSTEMD_BOOT), "EFI/BOOT/BOOTX64.EFI")?;
    copy_in(&esp, boot.kernel, "linux/vmlinuz")?;
    copy_in(&esp, boot.initrd, "linux/initrd.img")?;
    for (name, text) in [
        ("loader/loader.conf", "timeout 0\n"),
        ("loader/entries/linux.conf", entry.as_str()),
        ("syslinux.cfg", syslinux.as_str()),
    ] {
        let file = dir.join("text");
        fs::write(&file, text).context("writing a boot loader's configuration")?;
        copy_in(&esp, &file, name)?;
        fs::remove_file(&file).context("removing a temporary file")?;
    }
    process::run(process::command("syslinux").arg("--install").arg(&esp))?;
    Ok(esp)
}

fn copy_in(esp: &Path, from: &Path, to: &str) -> Result<()> {
    let mut mcopy = process::command("mcopy");
    mcopy.arg("-i").arg(esp).arg(from).arg(format!("::/{to}"));
    process::run(&mut mcopy).map(drop)
}

/// Puts the partitions together as `disk.raw` in `dir`.
pub(super) fn assemble(dir: &Path, esp: &Path, second: Option<&Partition<'_>>) -> Result<PathBuf> {
    let path = dir.join("disk.raw");
    let second_offset = ESP_OFFSET + ESP_BYTES;
    let second_bytes = match second {
        Some(partition) => fs::metadata(partition.content).context("looking at the root partition")?.len(),
        None => 0,
    };
    let disk = File::create(&path).with_context(|| format!("making {}", path.display()))?;
    disk.set_len(second_offset + second_bytes + TAIL_BYTES).context("sizing the image")?;

    let mut table = vec![
        "label: gpt".to_owned(),
        format!("label-id: {DISK_ID}"),
        partition_line(ESP_OFFSET, ESP_BYTES, ESP_TYPE, ESP_ID, "ESP") + ", attrs=LegacyBIOSBootable",
    ];
    if let Some(Partition { kind, name, .. }) = second {
        table.push(partition_line(second_offset, second_bytes, kind, SECOND_ID, name));
    }
    let mut sfdisk = process::command("sfdisk");
    sfdisk.args(["--quiet", "--no-reread", "--no-tell-kernel"]).arg(&path);
    process::run_with_input(&mut sfdisk, table.join("\n").as_bytes())?;

    let boot_code = fs::read(GPT_BOOT_CODE).context("reading syslinux' boot code")?;
    disk.write_all_at(&boot_code[..boot_code.len().min(BOOT_CODE_MAX)], 0)
        .context("writing the boot code")?;
    copy_sparse(esp, &disk, ESP_OFFSET)?;
    if let Some(partition) = second {
        copy_sparse(partition.content, &disk, second_offset)?;
    }
    Ok(path)
}

/// A partition in the language of sfdisk.
fn partition_line(offset: u64, bytes: u64, kind: &str, id: &str, name: &str) -> String {
    format!("start={}, size={}, type={kind}, uuid={id}, name={name}", offset / SECTOR, bytes / SECTOR)
}

/// Copies a file into a blank disk; what is zero stays a hole.
fn copy_sparse(from: &Path, disk: &File, mut offset: u64) -> Result<()> {
    let mut source = File::open(from).with_context(|| format!("opening {}", from.display()))?;
    let mut chunk = vec![0; HOLE_BYTES];
    loop {
        let n = match source.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(n) => n,
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(e) => return Err(e).with_context(|| format!("reading {}", from.display())),
        };
        if chunk[..n].iter().any(|byte| *byte != 0) {
            disk.write_all_at(&chunk[..n], offset).context("writing the image")?;
        }
        offset += n as u64;
    }
}

/// Compresses a disk image; `disk.raw` becomes `disk.raw.zst` beside it.
pub(super) fn compress(raw: &Path) -> Result<PathBuf> {
    process::run(process::command("zstd").args(["--quiet", "-T0", "-3"]).arg(raw))?;
    Ok(raw.with_extension("raw.zst"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Disk;

    #[test]
    fn a_disk_is_what_its_table_says() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let (kernel, initrd) = (file("k", "kernel"), file("i", "initrd"));
        let content = file("c", &"x".repeat(1 << 20));
        let esp =
            make_esp(dir.path(), &Boot { kernel: &kernel, initrd: &initrd, command_line: "quiet" }).unwrap();
        let second = Partition { kind: ROOT_TYPE, name: "root", content: &content };
        let raw = assemble(dir.path(), &esp, Some(&second)).unwrap();

        let table = process::run(process::command("sfdisk").arg("--dump").arg(&raw)).unwrap();
        assert!(table.contains("start=        2048, size=      131072"), "{table}");
        assert!(table.contains("start=      133120, size=        2048"), "{table}");
        assert!(table.contains("LegacyBIOSBootable"), "{table}");
        let disk = Disk::open(&raw).unwrap();
        assert!(disk.has_backup_gpt().unwrap());
        assert!(disk.has_file_at(ESP_OFFSET, &esp).unwrap());
        assert_eq!(disk.read(510, 2).unwrap(), [0x55, 0xaa]);
        let mut mtype = process::command("mtype");
        mtype.arg("-i").arg(&esp).arg("::/syslinux.cfg");
        assert!(process::run(&mut mtype).unwrap().contains("APPEND quiet"));
    }
}
