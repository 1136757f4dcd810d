//! What this machine does on control's order.
//!
//! | kind | module |
//! |---|---|
//! | `inventory.collect` | [`inventory`] |
//! | `disk.erase` | [`erase`] |
//! | `image.deploy` | [`deploy`], with its bytes from [`source`] |
//! | `boot.finish` | [`finish`] |
//!
//! Disk work is blocking code on its own thread. It ends well when the order's future is dropped: its source
//! then fails, and a failed deploy leaves a disk that does not boot.

pub mod deploy;
pub mod disks;
pub mod erase;
pub mod finish;
pub mod inventory;
mod meter;
pub mod source;

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use ironwright_agent::{CommandError, Ctx, Executor, Order, contain, executor::BoxFuture, fail};
use ironwright_proto::{Message, kinds, wire::ImageDeployArgs};

use self::source::resume::Patience;
use crate::{boot::modules::Drivers, console::say, machine::Roots};

/// Runs the provisioning kinds on one machine.
pub struct Provisioner {
    machine: Arc<Machine>,
}

/// What the orders share.
pub struct Machine {
    /// Where the kernel shows the machine.
    pub roots: Roots,
    /// How long orders wait.
    pub waits: Waits,
    /// Loads drivers for disks that appeared since the boot.
    drivers: Mutex<Drivers>,
    /// The disk that an erase left all zero and nothing has written since.
    zeroed: Mutex<Option<PathBuf>>,
    /// Orders that run now.
    running: AtomicUsize,
}

/// How long orders wait for what is not there yet.
#[derive(Debug, Clone, Copy)]
pub struct Waits {
    /// For disks: controllers spin up, USB settles.
    pub disks: Duration,
    /// For bytes of an image.
    pub source: Patience,
}

impl Default for Waits {
    fn default() -> Self {
        Self { disks: Duration::from_secs(15), source: Patience::default() }
    }
}

impl Machine {
    /// A machine with its drivers.
    pub fn new(roots: Roots, drivers: Drivers, waits: Waits) -> Self {
        Self {
            roots,
            waits,
            drivers: Mutex::new(drivers),
            zeroed: Mutex::default(),
            running: AtomicUsize::new(0),
        }
    }

    /// How many modules were loaded so far.
    pub fn modules_loaded(&self) -> usize {
        self.drivers.lock().unwrap_or_else(PoisonError::into_inner).loaded()
    }

    /// Whether an order is running.
    pub fn is_busy(&self) -> bool {
        self.running.load(Ordering::Relaxed) > 0
    }

    /// Loads drivers for devices that appeared meanwhile. Blocks.
    pub fn settle(&self) {
        self.drivers.lock().unwrap_or_else(PoisonError::into_inner).settle();
    }

    fn set_zeroed(&self, disk: Option<PathBuf>) {
        *self.zeroed.lock().unwrap_or_else(PoisonError::into_inner) = disk;
    }

    /// Whether `disk` is all zero; it is about to be written, so it is not from now on.
    fn take_zeroed(&self, disk: &Path) -> bool {
        let mut zeroed = self.zeroed.lock().unwrap_or_else(PoisonError::into_inner);
        let is_zero = zeroed.as_deref() == Some(disk);
        if is_zero {
            *zeroed = None;
        }
        is_zero
    }
}

impl Provisioner {
    /// Runs orders on `machine`.
    pub fn new(machine: Arc<Machine>) -> Self {
        Self { machine }
    }

    async fn dispatch(&self, order: &Order, ctx: Ctx) -> Result<Vec<u8>, CommandError> {
        let machine = self.machine.clone();
        match order.kind.as_str() {
            kinds::INVENTORY_COLLECT => {
                let collect = move || {
                    machine.settle();
                    Ok(inventory::collect(&machine.roots))
                };
                Ok(blocking(collect).await?.encode_to_vec())
            }
            kinds::DISK_ERASE => {
                let args = order.decode_args()?;
                Ok(blocking(move || erase::run(&machine, &args)).await?.encode_to_vec())
            }
            kinds::IMAGE_DEPLOY => {
                let plan = deploy::Plan::try_from(order.decode_args::<ImageDeployArgs>()?)?;
                Ok(deploy::run(machine, plan, ctx).await?.encode_to_vec())
            }
            kinds::BOOT_FINISH => {
                let args = order.decode_args()?;
                blocking(move || finish::run(&machine.roots, &args)).await?;
                Ok(Vec::new())
            }
            other => Err(fail("unsupported", format!("the ramdisk does not run `{other}`"))),
        }
    }
}

impl Executor for Provisioner {
    fn kinds(&self) -> &'static [&'static str] {
        &[kinds::INVENTORY_COLLECT, kinds::DISK_ERASE, kinds::IMAGE_DEPLOY, kinds::BOOT_FINISH]
    }

    fn run(&self, order: Order, ctx: Ctx) -> BoxFuture<'_, Result<Vec<u8>, CommandError>> {
        Box::pin(async move {
            say("order", format_args!("{} ({}) begins", order.kind, order.id));
            let began = Instant::now();
            let _running = Running::begin(&self.machine.running);
            let result = self.dispatch(&order, ctx).await;
            let took = began.elapsed().as_secs_f64();
            match &result {
                Ok(_) => say("order", format_args!("{} done after {took:.1} s", order.kind)),
                Err(error) => {
                    let (code, message) = (&error.code, &error.message);
                    say("order", format_args!("{} FAILED after {took:.1} s: {code}: {message}", order.kind));
                }
            }
            result
        })
    }
}

/// Counts an order for as long as it runs, however it ends.
struct Running<'a>(&'a AtomicUsize);

impl<'a> Running<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs blocking work on its own thread.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CommandError> + Send + 'static,
) -> Result<T, CommandError> {
    contain::spawn_blocking(work).await.unwrap_or_else(|| Err(bug("the work")))
}

/// What an order ends with where a part of it panicked.
fn bug(part: &str) -> CommandError {
    fail("internal", format!("{part} ended by a panic; this is a bug in the ramdisk"))
}
