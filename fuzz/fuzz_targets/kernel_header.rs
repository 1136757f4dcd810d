//! The first bytes of a kernel.
#![no_main]

use ironwright_images::kernel::release;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // The real-mode header begins at 0x1f1; the code before it is not looked at.
    let head = [&[0; 0x1f1][..], bytes].concat();
    if let Ok(release) = release(&head) {
        assert!(!release.is_empty() && !release.contains([' ', '\0']));
    }
});
