//! A program whose shared objects are looked for.
#![no_main]

use std::{fs, sync::LazyLock};

use ironwright_images::elf::closure;
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

static DIR: LazyLock<TempDir> =
    LazyLock::new(|| tempfile::tempdir_in("/dev/shm").expect("a folder in memory"));

fuzz_target!(|bytes: &[u8]| {
    let program = DIR.path().join("program");
    fs::write(&program, bytes).expect("a file in memory");
    let _ = closure(&[&program], &[]);
});
