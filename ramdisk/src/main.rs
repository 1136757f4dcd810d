//! `/init` of the initramfs; see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    if std::process::id() != 1 {
        eprintln!(
            "this program is the first process (PID 1) of Ironwright's ramdisk and does nothing elsewhere"
        );
        return ExitCode::FAILURE;
    }
    ironwright_ramdisk::init::run()
}
