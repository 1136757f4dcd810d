//! The folders named in `/etc/ld.so.conf` and the files that it includes (ldconfig(8)).

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Deepest nesting of includes.
const MAX_DEPTH: usize = 4;

/// Folders in the order of the files; none where there is no such file.
pub(super) fn dirs(conf: &Path) -> Vec<PathBuf> {
    let mut dirs = Vec::new();
    read(conf, MAX_DEPTH, &mut dirs);
    dirs
}

fn read(conf: &Path, depth: usize, dirs: &mut Vec<PathBuf>) {
    let Ok(text) = fs::read_to_string(conf) else { return };
    for line in text.lines().map(|line| line.split('#').next().unwrap_or("").trim()) {
        if let Some(pattern) = line.strip_prefix("include ") {
            let pattern = conf.parent().unwrap_or(Path::new("/")).join(pattern.trim());
            if depth > 0 {
                for file in included(&pattern) {
                    read(&file, depth - 1, dirs);
                }
            }
        } else if line.starts_with('/') {
            dirs.push(line.into());
        }
    }
}

/// The files that an include names: `folder/*.suffix` is what is in use, or a plain name.
fn included(pattern: &Path) -> Vec<PathBuf> {
    let name = pattern.file_name().and_then(|name| name.to_str()).unwrap_or("");
    let Some((prefix, suffix)) = name.split_once('*') else { return vec![pattern.to_owned()] };
    let Some(entries) = pattern.parent().and_then(|dir| fs::read_dir(dir).ok()) else { return Vec::new() };
    let matches = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
        name.len() >= prefix.len() + suffix.len() && name.starts_with(prefix) && name.ends_with(suffix)
    };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(matches).collect();
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn includes_are_followed_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let conf = dir.path().join("ld.so.conf");
        fs::create_dir(dir.path().join("d")).unwrap();
        fs::write(&conf, "include d/*.conf\n/opt/last # own\n").unwrap();
        fs::write(dir.path().join("d/b.conf"), "/opt/b\n").unwrap();
        fs::write(dir.path().join("d/a.conf"), "# comment\n/opt/a\n").unwrap();
        fs::write(dir.path().join("d/a.txt"), "/opt/no\n").unwrap();
        assert_eq!(dirs(&conf), ["/opt/a", "/opt/b", "/opt/last"].map(PathBuf::from));
        assert!(dirs(Path::new("/nonexistent")).is_empty());
    }

    #[test]
    fn a_file_that_includes_itself_ends() {
        let dir = tempfile::tempdir().unwrap();
        let conf = dir.path().join("loop.conf");
        fs::write(&conf, "/opt/x\ninclude loop.conf\n").unwrap();
        assert_eq!(dirs(&conf).len(), MAX_DEPTH + 1);
    }
}
