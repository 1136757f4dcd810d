//! `control.toml`.
#![no_main]

use std::{fs, sync::LazyLock};

use ironwright_control::Config;
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

static DIR: LazyLock<TempDir> =
    LazyLock::new(|| tempfile::tempdir_in("/dev/shm").expect("a folder in memory"));

fuzz_target!(|bytes: &[u8]| {
    fs::write(DIR.path().join("control.toml"), bytes).expect("a file in memory");
    let _ = Config::load(DIR.path());
});
