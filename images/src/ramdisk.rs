//! The initramfs of the provisioning ramdisk: PID 1 with its shared objects, kernel modules, and nothing else.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::{
    elf::{self, ElfError},
    initramfs::{BuildError, Builder, Content},
    modules::{self, DriverSet, ModulesError},
};

/// zstd level: beyond it a tenth less space costs six times the time.
pub const DEFAULT_LEVEL: i32 = 12;

/// Folders that PID 1 mounts something on, or writes to.
const FOLDERS: &[&str] = &["/dev", "/etc", "/proc", "/root", "/run", "/sys", "/tmp", "/var"];

/// What goes into the ramdisk.
#[derive(Debug, Clone)]
pub struct RamdiskSpec {
    /// The program that becomes `/init`.
    pub init: PathBuf,
    /// Folder like `/lib/modules/6.1.0-13-amd64`; its name is the kernel's version.
    pub modules_dir: PathBuf,
    /// Which drivers.
    pub drivers: DriverSet,
    /// More modules by name; each must exist.
    pub extra_modules: Vec<String>,
    /// Shared objects that the program opens at run time.
    pub extra_libraries: Vec<String>,
    /// zstd level, 1 to 19.
    pub level: i32,
}

/// What a ramdisk consists of; sizes in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RamdiskReport {
    /// Kernel version that the modules are for.
    pub kernel: String,
    /// Before compression.
    pub unpacked: u64,
    /// The file.
    pub compressed: u64,
    /// Kernel modules in it.
    pub modules: usize,
    /// Their size.
    pub module_bytes: u64,
    /// Shared objects in it, the loader included.
    pub libraries: usize,
    /// Drivers of the set that this kernel does not have.
    pub missing: Vec<String>,
}

/// Why there is no ramdisk.
#[derive(Debug, thiserror::Error)]
pub enum RamdiskError {
    /// The folder's name is the version.
    #[error("{0} is not a folder of kernel modules named by the kernel's version")]
    ModulesDir(PathBuf),
    /// The program's shared objects.
    #[error("listing the shared objects of the ramdisk's program")]
    Elf(#[from] ElfError),
    /// The kernel modules.
    #[error("gathering the ramdisk's kernel modules")]
    Modules(#[from] ModulesError),
    /// The archive.
    #[error(transparent)]
    Build(#[from] BuildError),
}

/// Writes the ramdisk to `out`. The same input files give the same bytes.
pub fn build(spec: &RamdiskSpec, out: impl Write) -> Result<RamdiskReport, RamdiskError> {
    let version = spec.modules_dir.file_name().and_then(|name| name.to_str());
    let kernel = version.ok_or_else(|| RamdiskError::ModulesDir(spec.modules_dir.clone()))?.to_owned();
    let mut builder = Builder::new();
    add_skeleton(&mut builder)?;
    let libraries = add_program(&mut builder, spec)?;
    let closure = modules::closure(&spec.modules_dir, spec.drivers, &spec.extra_modules)?;
    let module_bytes = closure.modules.iter().map(|module| module.bytes.len() as u64).sum();
    let (modules, missing) = (closure.modules.len(), closure.missing.clone());
    add_modules(&mut builder, &kernel, closure)?;
    let mut out = Counting { inner: out, count: 0 };
    let unpacked = builder.write_zstd(&mut out, spec.level)?;
    let compressed = out.count;
    Ok(RamdiskReport { kernel, unpacked, compressed, modules, module_bytes, libraries, missing })
}

fn add_skeleton(builder: &mut Builder) -> Result<(), BuildError> {
    for folder in FOLDERS {
        builder.add_dir(folder, 0o755)?;
    }
    // The kernel opens the console for PID 1 before anything is mounted; devices.txt: 5:1 and 1:3.
    builder.add_char_device("/dev/console", 0o600, 5, 1)?;
    builder.add_char_device("/dev/null", 0o666, 1, 3)
}

/// Adds `/init`, its loader where it asks for it, and all shared objects in the one folder where the loader
/// looks without any configuration. Returns their number.
fn add_program(builder: &mut Builder, spec: &RamdiskSpec) -> Result<usize, RamdiskError> {
    let extra: Vec<&str> = spec.extra_libraries.iter().map(String::as_str).collect();
    let closure = elf::closure(&[&spec.init], &extra)?;
    let mut add = |to: &Path, from: &Path| {
        builder.add_file(&to.to_string_lossy(), 0o755, Content::File(from.to_owned()))
    };
    add(Path::new("/init"), &spec.init)?;
    if let Some(loader) = &closure.loader {
        add(loader, loader)?;
    }
    let dir = closure.default_dir();
    for (name, path) in &closure.libraries {
        add(&dir.join(name), path)?;
    }
    Ok(closure.libraries.len() + usize::from(closure.loader.is_some()))
}

fn add_modules(builder: &mut Builder, kernel: &str, closure: modules::Closure) -> Result<(), BuildError> {
    let root = format!("/lib/modules/{kernel}");
    for (name, text) in [("modules.dep", closure.modules_dep()), ("modules.alias", closure.modules_alias())] {
        builder.add_file(&format!("{root}/{name}"), 0o644, Content::Bytes(text.into_bytes()))?;
    }
    for module in closure.modules {
        builder.add_file(&format!("{root}/{}", module.path), 0o644, Content::Bytes(module.bytes))?;
    }
    Ok(())
}

/// Counts what is written through it.
struct Counting<W> {
    inner: W,
    count: u64,
}

impl<W: Write> Write for Counting<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(buf)?;
        self.count += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
