//! A kernel module: its ELF headers and its `.modinfo`.
#![no_main]

use std::{fs, sync::LazyLock};

use ironwright_images::modules::{DriverSet, closure};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

static DIR: LazyLock<TempDir> =
    LazyLock::new(|| tempfile::tempdir_in("/dev/shm").expect("a folder in memory"));

fuzz_target!(|bytes: &[u8]| {
    fs::write(DIR.path().join("virtio.ko"), bytes).expect("a file in memory");
    if let Ok(found) = closure(DIR.path(), DriverSet::Vm, &["virtio".to_owned()]) {
        assert_eq!(found.modules.len(), 1);
        let _ = (found.modules_dep(), found.modules_alias());
    }
});
