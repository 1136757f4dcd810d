//! Kernel modules: which files a set of drivers needs, and which of them a device wants.
//!
//! What a module needs and which devices it drives stands in its own `.modinfo` section, so a freshly unpacked
//! kernel package works without `depmod` having run.

mod glob;
mod index;
mod info;
mod sets;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

pub use glob::matches;
pub use index::Index;
use info::Info;
pub use sets::DriverSet;

/// Most modules of one kernel; Debian's has about 4000.
const MAX_MODULES: usize = 20_000;

/// Deepest folder under `/lib/modules/<version>`.
const MAX_DEPTH: usize = 16;

/// Why modules could not be gathered.
#[derive(Debug, thiserror::Error)]
pub enum ModulesError {
    /// A file or folder.
    #[error("reading {path}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// Not a kernel module.
    #[error("{path} is no kernel module: {why}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A compression that is not supported.
    #[error("the module {0} is compressed with xz or gzip; unpack it first")]
    Compressed(PathBuf),
    /// No such module.
    #[error("the kernel in {dir} has no module {name}")]
    Unknown {
        /// Folder of the modules.
        dir: PathBuf,
        /// As asked for.
        name: String,
    },
    /// Far more modules than any kernel has.
    #[error("{0} has more than {MAX_MODULES} modules")]
    TooMany(PathBuf),
}

/// A module that goes into the initramfs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// With `_` for `-`.
    pub name: String,
    /// Path below the folder of the modules: `kernel/drivers/net/virtio_net.ko`, without a compression's suffix.
    pub path: String,
    /// The file's uncompressed bytes.
    pub bytes: Vec<u8>,
    /// Names of the modules to load before.
    pub needs: Vec<String>,
    /// Patterns of the devices it drives, and other names it has.
    pub aliases: Vec<String>,
}

/// Modules, each after those it needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Closure {
    /// In load order.
    pub modules: Vec<Module>,
    /// Drivers of the set that this kernel does not have, neither as file nor built in.
    pub missing: Vec<String>,
}

/// Gathers the modules of a driver set and those named in `extra`, with all that they need, from a folder like
/// `/lib/modules/6.1.0-13-amd64`. A driver of the set that the kernel does not have is reported; one in `extra`
/// is an error. What is built into the kernel needs no file.
pub fn closure(dir: &Path, set: DriverSet, extra: &[String]) -> Result<Closure, ModulesError> {
    let tree = Tree::read(dir)?;
    let mut gathering = Gathering { tree: &tree, done: BTreeSet::new(), closure: Closure::default() };
    for name in extra {
        if !gathering.add(&normal(name))? {
            return Err(ModulesError::Unknown { dir: dir.to_owned(), name: name.clone() });
        }
    }
    for name in set.names() {
        if !gathering.add(&normal(name))? {
            gathering.closure.missing.push((*name).to_owned());
        }
    }
    for (name, file) in &tree.files {
        if set.has_file(&file.path) {
            gathering.add(name)?;
        }
    }
    Ok(gathering.closure)
}

/// Module names are told apart with `_` and `-` being the same.
fn normal(name: &str) -> String {
    name.replace('-', "_")
}

struct ModuleFile {
    full: PathBuf,
    path: String,
}

/// What is in the folder.
struct Tree {
    files: BTreeMap<String, ModuleFile>,
    built_in: BTreeSet<String>,
}

impl Tree {
    fn read(dir: &Path) -> Result<Self, ModulesError> {
        let mut files = BTreeMap::new();
        walk(dir, dir, MAX_DEPTH, &mut files)?;
        let list = dir.join("modules.builtin");
        let text = match fs::read_to_string(&list) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
            Err(source) => return Err(ModulesError::Io { path: list, source }),
        };
        let built_in = text.lines().filter_map(|line| Some(name_of(line)?.0)).collect();
        Ok(Self { files, built_in })
    }
}

fn walk(
    root: &Path,
    dir: &Path,
    depth: usize,
    files: &mut BTreeMap<String, ModuleFile>,
) -> Result<(), ModulesError> {
    let failed = |source| ModulesError::Io { path: dir.to_owned(), source };
    for entry in fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let full = entry.path();
        // Links lead to the kernel's source tree.
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() && depth > 0 {
            walk(root, &full, depth - 1, files)?;
        } else if kind.is_file()
            && let Some(relative) = full.strip_prefix(root).ok().and_then(Path::to_str)
            && let Some((name, path)) = name_of(relative)
        {
            files.insert(name, ModuleFile { path, full: full.clone() });
            if files.len() > MAX_MODULES {
                return Err(ModulesError::TooMany(root.to_owned()));
            }
        }
    }
    Ok(())
}

/// The module's name and its path without a compression's suffix; `None` for other files.
fn name_of(path: &str) -> Option<(String, String)> {
    let end = path.rfind(".ko")? + ".ko".len();
    let plain = matches!(&path[end..], "" | ".zst" | ".xz" | ".gz").then_some(&path[..end])?;
    let file = plain.rsplit('/').next()?.strip_suffix(".ko")?;
    Some((normal(file), plain.to_owned()))
}

struct Gathering<'a> {
    tree: &'a Tree,
    done: BTreeSet<String>,
    closure: Closure,
}

impl Gathering<'_> {
    /// Adds a module after those that it needs; false where the kernel does not have it.
    fn add(&mut self, name: &str) -> Result<bool, ModulesError> {
        if self.tree.built_in.contains(name) || self.done.contains(name) {
            return Ok(true);
        }
        let Some(file) = self.tree.files.get(name) else { return Ok(false) };
        // Marked before its needs, so that a circle, which no kernel loads, ends.
        self.done.insert(name.to_owned());
        let (bytes, info) = info::read(&file.full)?;
        let Info { depends, soft, aliases } = info;
        let mut needs = Vec::new();
        for need in depends {
            if !self.add(&need)? {
                return Err(ModulesError::Unknown { dir: file.full.clone(), name: need });
            }
            needs.push(need);
        }
        // "Soft" needs are names or aliases that may be absent.
        for need in soft {
            if self.add(&need)? {
                needs.push(need);
            }
        }
        needs.retain(|need| !self.tree.built_in.contains(need));
        self.closure.modules.push(Module {
            name: name.to_owned(),
            path: file.path.clone(),
            bytes,
            needs,
            aliases,
        });
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_from_paths_with_or_without_compression() {
        let name = |path| name_of(path).map(|(name, _)| name);
        assert_eq!(name("kernel/drivers/net/virtio-net.ko").as_deref(), Some("virtio_net"));
        assert_eq!(name_of("a/x.ko.zst"), Some(("x".into(), "a/x.ko".into())));
        assert_eq!(name("modules.order"), None);
        assert_eq!(name("a/x.ko.sig"), None);
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let error = closure(Path::new("/nonexistent"), DriverSet::Vm, &[]).unwrap_err();
        assert!(matches!(error, ModulesError::Io { path, .. } if path == Path::new("/nonexistent")));
    }

    #[test]
    fn a_file_that_is_no_module_is_named_and_unknown_extras_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("nvme.ko"), "text").unwrap();
        fs::write(dir.path().join("modules.builtin"), "kernel/drivers/virtio/virtio-pci.ko\n").unwrap();
        let result = |extra: &str| closure(dir.path(), DriverSet::Vm, &[extra.to_owned()]);
        assert!(matches!(result("nvme"), Err(ModulesError::Malformed { .. })));
        assert!(
            matches!(result("none-such"), Err(ModulesError::Unknown { name, .. }) if name == "none-such")
        );
        fs::remove_file(dir.path().join("nvme.ko")).unwrap();
        let closure = result("virtio_pci").unwrap();
        assert!(closure.modules.is_empty() && !closure.missing.contains(&"virtio_pci".to_owned()));
        assert!(closure.missing.contains(&"nvme".to_owned()));
    }
}
