//! A Debian image: what a person would deploy. cloud-init, OpenSSH, a login prompt on the serial console.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::disk::{Boot, Partition, ROOT_TYPE, assemble, compress, make_esp};
use crate::{
    cache::{self, Recipe},
    process::{self, as_root},
};

const RELEASE: &str = "bookworm";
const ROOT_MIB: u64 = 900;
const COMMAND_LINE: &str = "root=LABEL=root ro console=tty0 console=ttyS0";

const PACKAGES: &[&str] = &[
    "ca-certificates",
    "cloud-guest-utils",
    "cloud-init",
    "dbus",
    "e2fsprogs",
    "fdisk",
    "initramfs-tools",
    "iproute2",
    "kmod",
    "linux-image-cloud-amd64",
    "openssh-server",
    "python3",
    "sudo",
    "systemd-sysv",
    "udev",
    "zstd",
];

/// A cloud image has no manual pages or translations either.
const LEFT_OUT: &[&str] = &["/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*"];

/// What the initramfs needs to find its root: the disks of virtual machines.
const INITRAMFS_MODULES: &str = "virtio_pci\nvirtio_blk\nvirtio_scsi\nnvme\nahci\nsd_mod\next4\n";
const INITRAMFS_CONFIG: &str = "MODULES=list\nCOMPRESS=zstd\n";

/// Files that make the packages a system: path and content.
const FILES: &[(&str, &str)] = &[
    // Empty: made on first boot, so that two machines with this image differ.
    ("etc/machine-id", ""),
    ("etc/fstab", "LABEL=root / ext4 defaults,errors=remount-ro 0 1\n"),
    (
        "etc/cloud/cloud.cfg.d/90_image.cfg",
        "# The seed partition is the only data source: nobody waits for metadata servers.\n\
         datasource_list: [ NoCloud ]\n\
         locale: C.UTF-8\n\
         ssh_genkeytypes: [ ed25519 ]\n",
    ),
];

/// Of the build machine, or to be made by cloud-init.
const REMOVED: &[&str] = &["etc/hostname", "etc/resolv.conf"];

const ENABLED: &[&str] = &["systemd-networkd.service"];

/// Housekeeping that a machine of the rig does not live long enough to need.
const MASKED: &[&str] = &[
    "apt-daily-upgrade.timer",
    "apt-daily.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
];

/// Files of a Debian image.
#[derive(Debug, Clone)]
pub struct DebianImage {
    /// The image, compressed by zstd.
    pub file: PathBuf,
    /// The initramfs that Debian's initramfs-tools made for it.
    pub initrd: PathBuf,
}

/// The Debian image. The first build downloads about 150 MB of packages.
pub fn debian() -> Result<DebianImage> {
    // The recipe is this file and the layout.
    let recipe = Recipe::default().text(include_str!("debian.rs")).text(include_str!("disk.rs"));
    let folder = cache::get("debian", &recipe, build)?;
    Ok(DebianImage { file: folder.join("disk.raw.zst"), initrd: folder.join("initrd.img") })
}

fn build(dir: &Path) -> Result<()> {
    let tree = dir.join("tree");
    let tar = install_packages(dir)?;
    fs::create_dir(&tree).context("making the root folder")?;
    // Devices are the kernel's business, and only root may make them.
    let mut untar = as_root("tar");
    untar.args(["--extract", "--exclude=./dev/*"]).arg("--file").arg(&tar).arg("--directory").arg(&tree);
    process::run(&mut untar)?;
    fs::remove_file(&tar).context("removing the packages")?;
    make_system(&tree)?;

    let root = dir.join("root.ext4");
    let mut mke2fs = as_root("mke2fs");
    mke2fs.args(["-q", "-t", "ext4", "-L", "root", "-d"]).arg(&tree).arg(&root).arg(format!("{ROOT_MIB}M"));
    process::run(&mut mke2fs)?;
    // The names without version are links that every kernel package makes.
    let (kernel, initrd) = (tree.join("vmlinuz"), tree.join("initrd.img"));
    let initrd = resolve(&tree, &initrd)?;
    fs::copy(&initrd, dir.join("initrd.img")).context("keeping the initramfs")?;
    let boot = Boot { kernel: &resolve(&tree, &kernel)?, initrd: &initrd, command_line: COMMAND_LINE };
    let esp = make_esp(dir, &boot)?;
    process::run(as_root("rm").args(["--recursive", "--force"]).arg(&tree))?;
    let raw = assemble(dir, &esp, Some(&Partition { kind: ROOT_TYPE, name: "root", content: &root }))?;
    fs::remove_file(&root).context("removing the root partition")?;
    compress(&raw)?;
    fs::remove_file(&esp).context("removing the system partition")?;
    fs::remove_file(&raw).context("removing the raw image")
}

/// Installs the packages into a new root, and returns it as a tar file.
fn install_packages(dir: &Path) -> Result<PathBuf> {
    let tar = dir.join("root.tar");
    let config = dir.join("config");
    let initramfs = config.join("etc/initramfs-tools");
    fs::create_dir_all(initramfs.join("conf.d")).context("making the initramfs' configuration")?;
    fs::write(initramfs.join("modules"), INITRAMFS_MODULES).context("writing the initramfs' modules")?;
    fs::write(initramfs.join("conf.d/image.conf"), INITRAMFS_CONFIG)
        .context("writing the initramfs' configuration")?;
    let mut mmdebstrap = process::command("mmdebstrap");
    mmdebstrap.args(["--quiet", "--variant=apt", "--architectures=amd64"]);
    mmdebstrap.arg("--aptopt=APT::Install-Recommends \"false\"");
    mmdebstrap.args(apt_proxy()?.map(|proxy| format!("--aptopt=Acquire::http::Proxy \"{proxy}\"")));
    mmdebstrap.args(LEFT_OUT.iter().map(|path| format!("--dpkgopt=path-exclude={path}")));
    mmdebstrap.arg(format!("--include={}", PACKAGES.join(",")));
    // Before the kernel's package makes the initramfs.
    mmdebstrap.arg(format!("--essential-hook=sync-in {} /", config.display()));
    mmdebstrap.arg(RELEASE).arg(&tar);
    process::run(&mut mmdebstrap)?;
    fs::remove_dir_all(&config).context("removing temporary files")?;
    Ok(tar)
}

/// The proxy that this machine's apt uses; mmdebstrap does not read its configuration.
fn apt_proxy() -> Result<Option<String>> {
    let shell =
        process::run(process::command("apt-config").args(["shell", "PROXY", "Acquire::http::Proxy"]))?;
    Ok(shell.trim().strip_prefix("PROXY='").and_then(|rest| rest.strip_suffix('\'')).map(str::to_owned))
}

fn make_system(tree: &Path) -> Result<()> {
    for path in REMOVED {
        let _ = fs::remove_file(tree.join(path));
    }
    for (path, content) in FILES {
        fs::write(tree.join(path), content).with_context(|| format!("writing {path}"))?;
    }
    let units = tree.join("etc/systemd/system");
    let link = |to: &str, at: PathBuf| {
        let _ = fs::remove_file(&at);
        symlink(to, &at).with_context(|| format!("linking {}", at.display()))
    };
    for unit in MASKED {
        link("/dev/null", units.join(unit))?;
    }
    for unit in ENABLED {
        link(&format!("/lib/systemd/system/{unit}"), units.join("multi-user.target.wants").join(unit))?;
    }
    Ok(())
}

/// Where a link in the root's top folder leads, inside that root.
fn resolve(tree: &Path, link: &Path) -> Result<PathBuf> {
    let target = fs::read_link(link).with_context(|| format!("reading {}", link.display()))?;
    Ok(tree.join(target.strip_prefix("/").unwrap_or(&target)))
}
