//! The life of PID 1.
//!
//! ```text
//!  mount ─► console ─► command line ─┬─ ramdisk ─► drivers ─► net ─► time ─► join ─► session ─┐
//!                          │         └─ node ────► drivers ─► net ─► seed ─► session ─────────┤
//!                          │ unusable                       │ given up           ended, order │
//!                          ▼                                ▼                                 ▼
//!                     said, and ──────────────────────► reboot ◄──────────────────── node.reboot, signal
//! ```

use std::{
    convert::Infallible,
    fs,
    io::{self, Read},
    path::Path,
    thread,
};

use tokio::runtime;

use crate::{
    boot::{mount, power, signals},
    cmdline::{self, Boot},
    console::{self, chain, say},
    node, provision,
    stage::GivenUp,
};

const CONSOLE: &str = "/dev/console";
const COMMAND_LINE: &str = "/proc/cmdline";
/// A crash of this process makes the kernel panic; it then reboots after so many seconds.
const KERNEL_PANIC_SECONDS: &str = "30";
/// Threads for async work. Disk work has threads of its own.
const WORKERS: usize = 2;

/// Brings the machine up and serves control until the machine reboots.
pub fn run() -> ! {
    power::reboot_on_panic();
    if let Err(error) = mount::all() {
        power::reboot_because(&format!("{}; is this kernel built for an initramfs?", chain(&error)));
    }
    // Without a console of its own, this goes on with the one the kernel opened.
    let _ = console::attach(Path::new(CONSOLE));
    let line = match fs::read_to_string(COMMAND_LINE) {
        Ok(line) => line,
        Err(error) => power::reboot_because(&format!("reading {COMMAND_LINE}: {error}")),
    };
    let debug = cmdline::debug(&line);
    settings(debug);
    gather_randomness();
    say("start", format_args!("Ironwright ramdisk {}", env!("CARGO_PKG_VERSION")));
    let runtime = runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build();
    let why = match runtime {
        Ok(runtime) => {
            let why = runtime.block_on(until_reboot(&line));
            // A thread that hangs in the kernel must not keep the machine from its reboot.
            runtime.shutdown_background();
            why
        }
        Err(error) => format!("starting threads: {error}"),
    };
    power::reboot_because(&why)
}

/// Kernel settings; the machine also works without them.
fn settings(debug: bool) {
    console::log_to_console(debug);
    let results =
        [console::set_kernel_level(debug), fs::write("/proc/sys/kernel/panic", KERNEL_PANIC_SECONDS)];
    for error in results.into_iter().filter_map(Result::err) {
        say("start", format_args!("a kernel setting was refused: {error}"));
    }
}

/// Makes the kernel start to gather randomness, which takes it a second on machines whose processor has none
/// to give. TLS waits for it; so it had better begin while drivers are loaded.
fn gather_randomness() {
    thread::spawn(|| {
        // Reading blocks until there is enough; the byte itself is of no use.
        let _ = fs::File::open("/dev/random").and_then(|mut source| source.read_exact(&mut [0]));
    });
}

/// Runs the role of the command line; returns why the machine has to reboot.
async fn until_reboot(line: &str) -> String {
    let boot = match cmdline::boot(line) {
        Ok(boot) => boot,
        Err(error) => return format!("{error}; nothing can be done with this machine"),
    };
    let mut orders = match signals::Orders::listen() {
        Ok(orders) => orders,
        Err(error) => return format!("listening to signals: {error}"),
    };
    let role = async {
        match boot {
            Boot::Ramdisk(params) => provision::run(&params).await,
            Boot::Node => node::run().await,
        }
    };
    tokio::select! {
        Err::<Infallible, GivenUp>(given_up) = role => given_up.to_string(),
        Err::<Infallible, io::Error>(error) = signals::reap() => format!("collecting dead children: {error}"),
        why = orders.next() => {
            say("reboot", why);
            power::reboot_now()
        }
    }
}
