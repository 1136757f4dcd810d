//! A cpio archive.
#![no_main]

use ironwright_images::initramfs::newc::{Writer, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(entries) = parse(bytes) else { return };
    let mut archive = Vec::new();
    let mut writer = Writer::new(&mut archive);
    for entry in &entries {
        writer.entry(&entry.name, entry.header, &entry.data).expect("what was read can be written");
    }
    writer.finish().expect("a Vec takes all");
    assert_eq!(parse(&archive), Ok(entries));
});
