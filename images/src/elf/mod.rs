//! Which shared objects a program needs, found the way glibc's `ld.so` finds them: by DT_NEEDED, in the
//! folders of DT_RPATH, DT_RUNPATH, `/etc/ld.so.conf` and the defaults, in this order (ld.so(8)).

mod file;
mod ldconf;

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    path::{Path, PathBuf},
};

use file::Dynamic;

/// Folders that glibc looks into when nothing else says where; Debian's and the generic ones.
const DEFAULT_DIRS: &[&str] = &[
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
];

/// Most shared objects of one program.
const MAX_OBJECTS: usize = 512;

/// Why the objects could not be listed.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// A file could not be opened.
    #[error("opening {path}")]
    Open {
        /// The file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// Not a 64-bit ELF file, or a damaged one.
    #[error("{path} is no usable 64-bit ELF file: {why}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Nowhere to be found.
    #[error("the shared object {name}, needed by {by}, is not on this system")]
    Missing {
        /// As in DT_NEEDED.
        name: String,
        /// Who needs it.
        by: String,
    },
    /// Two programs with different loaders cannot share objects.
    #[error("{path} wants the loader {wants}, another program {other}")]
    Loaders {
        /// The program.
        path: PathBuf,
        /// Its loader.
        wants: PathBuf,
        /// The other's.
        other: PathBuf,
    },
    /// More objects than any program has.
    #[error("more than {MAX_OBJECTS} shared objects are needed")]
    TooMany,
}

/// What programs need to run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Closure {
    /// The loader (PT_INTERP); `None` where all programs are static.
    pub loader: Option<PathBuf>,
    /// Where each shared object was found, by its name in DT_NEEDED. Without the loader.
    pub libraries: BTreeMap<String, PathBuf>,
}

impl Closure {
    /// A folder that the C library looks into by default: the one it lies in itself.
    pub fn default_dir(&self) -> PathBuf {
        let libc = self.libraries.get("libc.so.6").and_then(|path| path.parent());
        libc.unwrap_or(Path::new("/lib")).to_owned()
    }
}

/// An object whose needs are still to be looked up.
struct Pending {
    path: PathBuf,
    /// DT_RPATH of the objects that brought this one in; they count where it has no DT_RUNPATH.
    inherited: Vec<PathBuf>,
}

/// Everything that `programs` need, and the objects in `extra` with all that those need: names that programs
/// open at run time without saying so in their headers.
pub fn closure(programs: &[&Path], extra: &[&str]) -> Result<Closure, ElfError> {
    let configured = ldconf::dirs(Path::new("/etc/ld.so.conf"));
    let mut closure = Closure::default();
    let mut queue = VecDeque::new();
    let mut machine = None;
    for &path in programs {
        let dynamic = Dynamic::read(path)?;
        set_loader(&mut closure, path, dynamic.loader.clone())?;
        machine.get_or_insert(dynamic.machine);
        queue.push_back(Pending { path: path.to_owned(), inherited: Vec::new() });
    }
    let machine = machine.unwrap_or_default();
    for &name in extra {
        let path = search(name, &configured, machine);
        let path = path.ok_or_else(|| ElfError::Missing { name: name.into(), by: "the caller".into() })?;
        closure.libraries.insert(name.to_owned(), path.clone());
        queue.push_back(Pending { path, inherited: Vec::new() });
    }
    while let Some(object) = queue.pop_front() {
        let dynamic = Dynamic::read(&object.path)?;
        let mut rpath = dynamic.rpath.clone();
        rpath.extend(object.inherited);
        for name in &dynamic.needed {
            if is_loader(&closure, name) || closure.libraries.contains_key(name) {
                continue;
            }
            let own = if dynamic.runpath.is_empty() { &rpath } else { &dynamic.runpath };
            let dirs: Vec<PathBuf> = own.iter().chain(&configured).cloned().collect();
            let by = object.path.display().to_string();
            let path =
                search(name, &dirs, machine).ok_or_else(|| ElfError::Missing { name: name.clone(), by })?;
            closure.libraries.insert(name.clone(), path.clone());
            queue.push_back(Pending { path, inherited: rpath.clone() });
        }
        if closure.libraries.len() > MAX_OBJECTS {
            return Err(ElfError::TooMany);
        }
    }
    Ok(closure)
}

fn set_loader(closure: &mut Closure, path: &Path, loader: Option<PathBuf>) -> Result<(), ElfError> {
    match (&closure.loader, loader) {
        (Some(other), Some(wants)) if *other != wants => {
            Err(ElfError::Loaders { path: path.to_owned(), wants, other: other.clone() })
        }
        (None, Some(wants)) => {
            closure.loader = Some(wants);
            Ok(())
        }
        _ => Ok(()),
    }
}

fn is_loader(closure: &Closure, name: &str) -> bool {
    closure.loader.as_deref().and_then(Path::file_name).is_some_and(|loader| loader == name)
}

/// The first file of this name that is made for the same machine.
fn search(name: &str, dirs: &[PathBuf], machine: u16) -> Option<PathBuf> {
    let defaults = DEFAULT_DIRS.iter().map(Path::new);
    let mut candidates = dirs.iter().map(PathBuf::as_path).chain(defaults).map(|dir| dir.join(name));
    candidates.find(|path| path.is_file() && Dynamic::read(path).is_ok_and(|d| d.machine == machine))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_program_needs_its_c_library_and_loader() {
        let this = std::env::current_exe().unwrap();
        let closure = closure(&[&this], &[]).unwrap();
        assert!(closure.libraries.contains_key("libc.so.6"), "{closure:?}");
        assert!(closure.loader.is_some());
        assert!(closure.libraries.values().all(|path| path.is_file()));
    }

    #[test]
    fn what_is_missing_or_malformed_is_named() {
        let this = std::env::current_exe().unwrap();
        let error = closure(&[&this], &["libnone-such.so.0"]).unwrap_err();
        assert!(matches!(error, ElfError::Missing { name, .. } if name == "libnone-such.so.0"));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("script");
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        assert!(matches!(closure(&[&path], &[]), Err(ElfError::Malformed { .. })));
        assert!(matches!(closure(&[Path::new("/nonexistent")], &[]), Err(ElfError::Open { .. })));
    }
}
