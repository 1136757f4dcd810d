//! A kernel command line, as firmware and an operator's boot loader may have left it.
#![no_main]

use ironwright_proto::{boot_params::BootParams, wire::Envelope};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|line: &str| {
    let _ = ironwright_ramdisk::cmdline::boot(line);
    // An assertion of unknown fields alone is written as an empty one, which is none.
    if let Ok(params) = BootParams::parse(line)
        && params.assertion != Some(Envelope::default())
        && let Ok(written) = params.to_command_line()
    {
        assert_eq!(BootParams::parse(&written), Ok(params));
    }
});
