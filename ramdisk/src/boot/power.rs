//! The way out: everything that ends this process ends in a reboot, because a kernel without its first
//! process only panics.

use std::{io, panic, thread, time::Duration};

use ironwright_agent::{executor::BoxFuture, power::Power};
use nix::{
    sys::reboot::{RebootMode, reboot},
    unistd,
};

use crate::console::say;

/// Time to read the last message on the console.
pub const READING_TIME: Duration = Duration::from_secs(30);
/// Time to read a panic; the machine is of no use meanwhile.
const PANIC_READING_TIME: Duration = Duration::from_secs(10);

/// Reboots by the kernel, at once.
#[derive(Debug, Clone, Copy)]
pub struct Kernel;

impl Power for Kernel {
    fn reboot(&self) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async {
            say("reboot", "as ordered");
            // Flushing may take long; the heartbeat goes on meanwhile.
            let error = tokio::task::spawn_blocking(sync_and_reboot).await.map_err(io::Error::other)?;
            Err(error)
        })
    }
}

/// Says why, waits so that it can be read, and reboots.
pub fn reboot_because(why: &str) -> ! {
    say("reboot", format_args!("{why}; rebooting in {} s", READING_TIME.as_secs()));
    thread::sleep(READING_TIME);
    reboot_now()
}

/// Reboots at once.
pub fn reboot_now() -> ! {
    let error = sync_and_reboot();
    say("reboot", format_args!("the kernel refused: {error}; switch the machine off and on"));
    loop {
        thread::park();
    }
}

/// A bug must end in a message and a reboot, not in a machine that only looks alive.
pub fn reboot_on_panic() {
    panic::set_hook(Box::new(|info| {
        say("panic", format_args!("{info}; this is a bug in the ramdisk, please report this line"));
        thread::sleep(PANIC_READING_TIME);
        reboot_now()
    }));
}

fn sync_and_reboot() -> io::Error {
    unistd::sync();
    // On success it does not return, so there is only the error.
    match reboot(RebootMode::RB_AUTOBOOT) {
        Err(errno) => errno.into(),
    }
}
