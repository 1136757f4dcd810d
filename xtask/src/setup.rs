//! The Debian packages that the project needs.

use std::process::Command;

use anyhow::{Context, Result, bail};
use ironwright_qemu_tests::process::{self, Output};

/// Everything that is not in Debian's essential set.
const PACKAGES: &[&str] = &[
    // To build: a linker and C compiler for crates with C in them, and the TPM library.
    "gcc",
    "libc6-dev",
    "libtss2-dev",
    "pkg-config",
    // Emulated machines: firmware, option ROMs, TPMs, networks.
    "iproute2",
    "ipxe",
    "ipxe-qemu",
    "ovmf",
    "qemu-system-x86",
    "seabios",
    "swtpm",
    "swtpm-tools",
    "uidmap",
    // Disk images.
    "ca-certificates",
    "debian-archive-keyring",
    "dosfstools",
    "e2fsprogs",
    "fdisk",
    "mmdebstrap",
    "mtools",
    "syslinux",
    "syslinux-common",
    "systemd-boot-efi",
    "zstd",
    // Tests compare with independent tools.
    "cpio",
    "gdisk",
    "parted",
    "python3",
    "python3-yaml",
    "tpm2-tools",
];

/// Installs what is missing; without root, fails with the line that installs it.
pub(crate) fn run() -> Result<()> {
    let missing = missing()?;
    if missing.is_empty() {
        println!("setup: all {} packages are installed", PACKAGES.len());
        return Ok(());
    }
    let install = install_words(&missing);
    if !is_root()? {
        bail!(
            "packages are missing; install them with\n\n    sudo apt-get update && sudo apt-get {}\n",
            install.join(" ")
        );
    }
    println!("setup: installing {}", missing.join(" "));
    apt_get(&["update"])?;
    apt_get(&install)
}

/// `dpkg-query` also knows packages that are gone but for their configuration, so the state counts.
fn missing() -> Result<Vec<&'static str>> {
    let mut query = process::command("dpkg-query");
    query.args(["--show", "--showformat", "${db:Status-Status} ${Package}\n"]).args(PACKAGES);
    // It fails where it does not know a package at all; what it says of the others still holds.
    let Output { stdout, .. } =
        process::output(&mut query, &[]).context("asking dpkg (is this Debian or Ubuntu?)")?;
    Ok(not_installed(&stdout))
}

fn not_installed(states: &str) -> Vec<&'static str> {
    let installed: Vec<_> = states.lines().filter_map(|line| line.strip_prefix("installed ")).collect();
    PACKAGES.iter().copied().filter(|package| !installed.contains(package)).collect()
}

fn install_words<'a>(packages: &[&'a str]) -> Vec<&'a str> {
    [&["install", "--yes", "--no-install-recommends"][..], packages].concat()
}

fn apt_get(words: &[&str]) -> Result<()> {
    let status = Command::new("apt-get")
        .args(words)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .status()
        .context("starting apt-get")?;
    if !status.success() {
        bail!("apt-get {} failed ({status})", words[0]);
    }
    Ok(())
}

fn is_root() -> Result<bool> {
    Ok(process::run(process::command("id").arg("--user"))?.trim() == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_installed_packages_are_not_missing() {
        let installed = PACKAGES[2..].iter().map(|package| format!("installed {package}"));
        let gone = format!("config-files {}", PACKAGES[1]);
        let states = installed.chain([gone]).collect::<Vec<_>>().join("\n");
        assert_eq!(not_installed(&states), PACKAGES[..2]);
    }

    #[test]
    fn the_apt_line_is_whole() {
        assert_eq!(install_words(&["a", "b"]).join(" "), "install --yes --no-install-recommends a b");
    }
}
