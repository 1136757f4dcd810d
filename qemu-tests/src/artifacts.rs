//! What a cluster needs besides the programs: a kernel, an initramfs for it, the agent bundle.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};

use crate::{
    cache::{self, Recipe},
    process,
};

/// Debian's package that depends on the newest kernel for virtual machines.
pub const CLOUD_KERNEL: &str = "linux-image-cloud-amd64";
/// Debian's package that depends on the newest kernel with all drivers.
pub const FULL_KERNEL: &str = "linux-image-amd64";

/// The built programs and what was made with them.
#[derive(Debug, Clone)]
pub struct Artifacts {
    /// The `ironwright` program.
    pub ironwright: PathBuf,
    /// A kernel.
    pub kernel: Kernel,
    /// An initramfs for it, with the drivers of virtual machines.
    pub ramdisk: PathBuf,
    /// The agent bundle.
    pub bundle: PathBuf,
}

/// A kernel, unpacked from its Debian package.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// The bootable image.
    pub vmlinuz: PathBuf,
    /// `lib/modules/VERSION`.
    pub modules: PathBuf,
}

/// Which kernel modules go into an initramfs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drivers {
    /// Those of virtual machines.
    Vm,
    /// All for networks and disks.
    Full,
}

impl Artifacts {
    /// Finds the programs, and makes the rest unless the cache has it.
    pub fn prepare() -> Result<Self> {
        let ironwright = program("ironwright")?;
        let kernel = Kernel::fetch(CLOUD_KERNEL)?;
        let ramdisk = ramdisk(&kernel, Drivers::Vm)?;
        let bundle = bundle(&ironwright)?;
        Ok(Self { ironwright, kernel, ramdisk, bundle })
    }
}

impl Kernel {
    /// Downloads and unpacks the kernel that a package of the running Debian release depends on, without
    /// installing it.
    pub fn fetch(meta_package: &str) -> Result<Self> {
        let package = versioned_kernel_package(meta_package)?;
        let policy = process::run(process::command("apt-cache").args(["policy", &package]))?;
        let recipe = Recipe::default().text(&package).text(candidate(&policy).unwrap_or_default());
        let folder = cache::get(meta_package, &recipe, |dir| {
            process::run(process::command("apt-get").args(["download", &package]).current_dir(dir))?;
            let deb = only_file(dir, |name| {
                Path::new(name).extension().is_some_and(|extension| extension == "deb")
            })?;
            process::run(process::command("dpkg-deb").arg("--extract").arg(&deb).arg(dir))?;
            fs::remove_file(&deb).context("removing the package")
        })?;
        Ok(Self {
            vmlinuz: only_file(&folder.join("boot"), |name| name.starts_with("vmlinuz-"))?,
            modules: only_file(&folder.join("lib/modules"), |_| true)?,
        })
    }
}

/// Builds an initramfs, or finds it in the cache.
pub fn ramdisk(kernel: &Kernel, drivers: Drivers) -> Result<PathBuf> {
    let (ironwright, init) = (program("ironwright")?, program("ironwright-ramdisk")?);
    let word = match drivers {
        Drivers::Vm => "vm",
        Drivers::Full => "full",
    };
    let recipe = Recipe::default().file(&ironwright)?.file(&init)?.file(&kernel.vmlinuz)?.text(word);
    let folder = cache::get(&format!("ramdisk-{word}"), &recipe, |dir| {
        let mut build = process::command(&ironwright);
        build.args(["ramdisk", "build", "--drivers", word]);
        build.arg("--kernel").arg(&kernel.vmlinuz);
        build.arg("--modules").arg(&kernel.modules);
        build.arg("--init").arg(&init);
        build.arg("--output").arg(dir.join("ramdisk.img"));
        process::run(&mut build).map(drop)
    })?;
    Ok(folder.join("ramdisk.img"))
}

fn bundle(ironwright: &Path) -> Result<PathBuf> {
    let folder = cache::get("bundle", &Recipe::default().file(ironwright)?, |dir| {
        let mut build = process::command(ironwright);
        build.args(["bundle", "build", "--output"]).arg(dir.join("agent.tar.gz"));
        process::run(&mut build).map(drop)
    })?;
    Ok(folder.join("agent.tar.gz"))
}

/// A program that was built together with this one.
pub fn program(name: &str) -> Result<PathBuf> {
    let path = build_folder()?.join(name);
    ensure!(path.exists(), "{} is not there; build it first, or use `cargo xtask test`", path.display());
    Ok(path)
}

/// Cargo's target folder.
pub fn target_folder() -> Result<PathBuf> {
    let build = build_folder()?;
    Ok(build.parent().context("the build folder has no parent")?.to_owned())
}

/// Where cargo puts programs: the folder of this one, or its parent for a test program in `deps`.
fn build_folder() -> Result<PathBuf> {
    let me = env::current_exe().context("finding this program's file")?;
    let folder = me.parent().context("this program has no folder")?;
    let is_test = folder.file_name().is_some_and(|name| name == "deps");
    let folder = if is_test { folder.parent().context("deps has no parent")? } else { folder };
    Ok(folder.to_owned())
}

fn versioned_kernel_package(meta_package: &str) -> Result<String> {
    let depends = process::run(process::command("apt-cache").args(["depends", meta_package]))?;
    dependency(&depends).map(str::to_owned).with_context(|| {
        format!("apt knows no {meta_package}; is this Debian, and did `apt-get update` run?")
    })
}

/// The kernel package in the output of `apt-cache depends`.
fn dependency(depends: &str) -> Option<&str> {
    let names = depends.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    names.map(str::trim).find(|name| name.starts_with("linux-image-"))
}

/// The version that `apt-cache policy` would install.
fn candidate(policy: &str) -> Option<&str> {
    policy.lines().find_map(|line| line.trim().strip_prefix("Candidate: "))
}

fn only_file(folder: &Path, wanted: impl Fn(&str) -> bool) -> Result<PathBuf> {
    let mut found = None;
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let entry = entry?;
        if wanted(&entry.file_name().to_string_lossy()) && found.replace(entry.path()).is_some() {
            bail!("{} has more than one", folder.display());
        }
    }
    found.with_context(|| format!("{} has none", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apts_words_are_read() {
        let depends = "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-57-cloud-amd64\n  Suggests: x\n";
        assert_eq!(dependency(depends), Some("linux-image-6.1.0-57-cloud-amd64"));
        assert_eq!(dependency("linux-image-cloud-amd64\n"), None);
        let policy = "linux-image:\n  Installed: (none)\n  Candidate: 6.1.192-3\n  Version table:\n";
        assert_eq!(candidate(policy), Some("6.1.192-3"));
    }
}
