//! Running a tool, and files to run it on.

use std::{
    ffi::OsStr,
    fs::File,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Runs a tool in a plain locale, checks that it succeeds and returns what it wrote to stdout.
pub(crate) fn run<S: AsRef<OsStr>>(tool: &str, args: impl IntoIterator<Item = S>) -> String {
    let mut command = Command::new(tool);
    let sbin = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    command.args(args).env("PATH", sbin).env("LC_ALL", "C").env("MTOOLS_SKIP_CHECK", "1");
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|e| panic!("{tool}: {e}"));
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{stdout}\n{stderr}", output.status);
    stdout
}

/// A sparse file of this size.
pub(crate) fn sparse(dir: &Path, name: &str, size: u64) -> PathBuf {
    let path = dir.join(name);
    File::create(&path).unwrap().set_len(size).unwrap();
    path
}

/// The path as text.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
