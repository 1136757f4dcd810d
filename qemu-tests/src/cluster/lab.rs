//! The folder of one cluster.

use std::{
    cell::Cell,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

/// How many lines of each log are printed when something failed.
const LOG_LINES: usize = 15;

/// A folder with everything that a cluster and its machines write. Removed only where all went well, so that a
/// failure can be looked at.
#[derive(Debug)]
pub(super) struct Lab {
    path: PathBuf,
    passed: Cell<bool>,
}

impl Lab {
    pub(super) fn new(name: &str) -> Result<Self> {
        // Short, because sockets in it have at most 107 bytes of path.
        let dir = tempfile::Builder::new().prefix(&format!("iw-{name:.20}-")).tempdir();
        Ok(Self { path: dir.context("making the lab's folder")?.keep(), passed: Cell::new(false) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A new folder inside.
    pub(super) fn folder(&self, name: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
        Ok(path)
    }

    pub(super) fn pass(&self) {
        self.passed.set(true);
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if self.passed.get() {
            let _ = fs::remove_dir_all(&self.path);
            return;
        }
        for log in logs(&self.path) {
            let text = String::from_utf8_lossy(&fs::read(&log).unwrap_or_default()).into_owned();
            let lines: Vec<_> = text.lines().collect();
            eprintln!("---- {}", log.display());
            eprintln!("{}", lines[lines.len().saturating_sub(LOG_LINES)..].join("\n"));
        }
        eprintln!("---- everything is kept in {}", self.path.display());
    }
}

/// All log files below a folder.
fn logs(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<_> = entries
        .flatten()
        .flat_map(|entry| {
            let path = entry.path();
            match path.is_dir() {
                true => logs(&path),
                false if path.extension().is_some_and(|extension| extension == "log") => vec![path],
                false => Vec::new(),
            }
        })
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lab_goes_only_when_it_passed() {
        let kept = Lab::new("kept").unwrap().path().to_owned();
        assert!(kept.exists());
        fs::remove_dir_all(kept).unwrap();
        let lab = Lab::new("passed").unwrap();
        let path = lab.path().to_owned();
        fs::write(lab.folder("machine").unwrap().join("console.log"), "hello").unwrap();
        assert_eq!(logs(&path), [path.join("machine/console.log")]);
        lab.pass();
        drop(lab);
        assert!(!path.exists());
    }
}
