//! The seed partition of a disk. The input is a list of changes to a good one: offset (3 bytes) and new bytes.
#![no_main]

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    panic,
    sync::LazyLock,
};

use ironwright_fuzz::input::Input;
use ironwright_images::seed::cidata;
use ironwright_ramdisk::{machine::Roots, node::seed::read};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

const MAX_FILE: usize = 64 * 1024;

struct Disk {
    good: Vec<u8>,
    device: File,
    roots: Roots,
    _dir: TempDir,
}

static DISK: LazyLock<Disk> = LazyLock::new(|| {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a folder in memory");
    let roots = Roots::under(dir.path());
    fs::create_dir_all(roots.sys.join("class/block/vda1")).expect("a folder");
    fs::create_dir_all(&roots.dev).expect("a folder");
    let files = [("agent.toml".to_owned(), b"machine_id = \"web-1\"\n".repeat(400))];
    let good = cidata(&files, 512).expect("a small seed");
    fs::write(roots.dev.join("vda1"), &good).expect("a file in memory");
    let device = File::options().write(true).open(roots.dev.join("vda1")).expect("a file in memory");
    Disk { good, device, roots, _dir: dir }
});

/// A panic of the FAT code is caught by the seed's reader; one anywhere else is a finding.
fn spare_panics_of_the_fat_code() {
    let found = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !info.location().is_some_and(|at| at.file().contains("/fatfs-")) {
            found(info);
        }
    }));
}

fuzz_target!(init: spare_panics_of_the_fat_code(), |bytes: &[u8]| {
    let mut input = Input::new(bytes);
    let mut changed = Vec::new();
    while !input.is_empty() {
        let [high, middle, low] = input.array();
        let at = u32::from_be_bytes([0, high, middle, low]) as usize % DISK.good.len();
        let part = input.part();
        let part = &part[..part.len().min(DISK.good.len() - at)];
        DISK.device.write_all_at(part, at as u64).expect("a file in memory");
        changed.push(at..at + part.len());
    }
    if let Ok(file) = read(&DISK.roots, "agent.toml") {
        assert!(file.len() <= MAX_FILE);
    }
    for range in changed {
        DISK.device.write_all_at(&DISK.good[range.clone()], range.start as u64).expect("a file in memory");
    }
});
