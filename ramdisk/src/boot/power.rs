//! The way out: everything that ends this process ends in a reboot, because a kernel without its first
//! process only panics.

use std::{
    io,
    panic::{self, PanicHookInfo},
    thread,
    time::Duration,
};

use ironwright_agent::{contain, executor::BoxFuture, power::Power};
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

/// Calls `act` on every panic but contained ones, which fail an order or a read and are only said.
fn on_bug(act: impl Fn(&PanicHookInfo<'_>) + Send + Sync + 'static) {
    panic::set_hook(Box::new(move |info| {
        if contain::is_contained() {
            tracing::warn!("contained: {info}");
        } else {
            act(info);
        }
    }));
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
    use std::sync::{Arc, Mutex};

    use ironwright_agent::{
        CommandError, Ctx, Executor, Order,
        executor::{self, fail},
    };

    use super::*;

    /// Executes orders as their kind says.
    struct Clumsy;

    impl Executor for Clumsy {
        fn kinds(&self) -> &'static [&'static str] {
            &["call", "poll", "blocking", "good"]
        }

        fn run(&self, order: Order, _: Ctx) -> BoxFuture<'_, Result<Vec<u8>, CommandError>> {
            assert_ne!(order.kind, "call", "clumsy");
            Box::pin(async move {
                tokio::task::yield_now().await;
                assert_ne!(order.kind, "poll", "clumsy");
                let blocking = order.kind == "blocking";
                let work = contain::spawn_blocking(move || assert!(!blocking, "clumsy"));
                work.await.ok_or_else(|| fail("internal", "of the work"))?;
                Ok(vec![1])
            })
        }
    }

    /// PID 1's hook reboots, so what is contained has to pass it by: neither a damaged disk nor an order that
    /// meets a bug may take the machine away from control.
    #[test]
    fn a_contained_panic_leaves_the_machine_alive_and_any_other_reboots_it() {
        let reboots = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&reboots);
        on_bug(move |info| seen.lock().unwrap().push(info.to_string()));
        // Other tests of this program may panic meanwhile.
        let ours = || reboots.lock().unwrap().iter().filter(|what| what.contains("clumsy")).count();

        let read = contain::call(|| -> u8 { panic!("clumsy") });
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        let run = |kind: &'static str| {
            let order = Order { id: "c1".into(), kind: kind.into(), args: Vec::new() };
            let work = async { executor::run(&Clumsy, order, Ctx::detached("c1").0).await };
            runtime.block_on(runtime.spawn(work)).unwrap().map_err(|error| error.code)
        };
        let results = ["call", "poll", "blocking", "good"].map(run);
        let contained = ours();
        let bug = runtime.block_on(runtime.spawn(async { panic!("clumsy") }));
        let bugs = ours();
        drop(panic::take_hook());

        assert_eq!(read, None);
        let internal = || Err("internal".to_owned());
        assert_eq!(results, [internal(), internal(), internal(), Ok(vec![1])]);
        assert_eq!(contained, 0);
        assert!(bug.is_err());
        assert_eq!(bugs, 1);
    }
}
