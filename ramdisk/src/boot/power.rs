//! The way out: everything that ends this process ends in a reboot, because a kernel without its first
//! process only panics.

use std::{
    cell::Cell,
    io,
    panic::{self, AssertUnwindSafe, PanicHookInfo},
    thread,
    time::Duration,
};

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
    on_bug(|info| {
        say("panic", format_args!("{info}; this is a bug in the ramdisk, please report this line"));
        thread::sleep(PANIC_READING_TIME);
        reboot_now()
    });
}

/// Calls `act` on every panic but those that [`contain_panic`] expects. A hook runs before unwinding begins, so
/// catching a panic does not help where the hook never returns.
fn on_bug(act: impl Fn(&PanicHookInfo<'_>) + Send + Sync + 'static) {
    panic::set_hook(Box::new(move |info| {
        if !CONTAINING.get() {
            act(info);
        }
    }));
}

thread_local! {
    static CONTAINING: Cell<bool> = const { Cell::new(false) };
}

/// Runs a library's code that panics on bad data, on this thread; `None` where it did. It is for reading outside
/// bytes without side effects, not for hiding bugs.
pub fn contain_panic<T>(work: impl FnOnce() -> T) -> Option<T> {
    let outer = CONTAINING.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(work)).ok();
    CONTAINING.set(outer);
    result
}

fn sync_and_reboot() -> io::Error {
    unistd::sync();
    // On success it does not return, so there is only the error.
    match reboot(RebootMode::RB_AUTOBOOT) {
        Err(errno) => errno.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    /// PID 1's hook reboots, so what is contained has to pass it by: a damaged disk is no bug.
    #[test]
    fn a_contained_panic_is_no_bug_and_any_other_is() {
        let bugs = Arc::new(AtomicUsize::new(0));
        let (counted, here) = (Arc::clone(&bugs), thread::current().id());
        // Other tests of this program may panic meanwhile, on their own threads.
        on_bug(move |_| {
            if thread::current().id() == here {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        let contained = contain_panic(|| -> u8 { panic!("damaged") });
        let after_contained = bugs.load(Ordering::Relaxed);
        let inner = contain_panic(|| contain_panic(|| -> u8 { panic!("damaged") }).is_none());
        let bug = panic::catch_unwind(|| panic!("a bug"));
        drop(panic::take_hook());

        assert_eq!((contained, after_contained), (None, 0));
        assert_eq!(inner, Some(true));
        assert!(bug.is_err());
        assert_eq!(bugs.load(Ordering::Relaxed), 1);
        assert_eq!(contain_panic(|| 7), Some(7));
    }
}
