//! A kernel command line, as firmware and an operator's boot loader may have left it.
#![no_main]

use ironwright_proto::boot_params::BootParams;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|line: &str| {
    let _ = ironwright_ramdisk::cmdline::boot(line);
    if let Ok(params) = BootParams::parse(line)
        && let Ok(written) = params.to_command_line()
    {
        assert_eq!(BootParams::parse(&written), Ok(params));
    }
});
