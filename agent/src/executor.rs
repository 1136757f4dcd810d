//! What runs commands: the trait, and what a running command may say while it runs.

use std::future::Future;
use std::pin::Pin;

use ironwright_proto::wire::{CommandError, Progress};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use ironwright_agent_core::{Order, fail};

use crate::{contain, events::EventSink};

/// A boxed future that may borrow its executor.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Runs the commands of some kinds.
///
/// Dropping the future must be safe at any await; long blocking work belongs on a blocking thread that
/// watches [`Ctx::is_cancelled`].
pub trait Executor: Send + Sync {
    /// The kinds it runs, of `ironwright_proto::kinds`.
    fn kinds(&self) -> &'static [&'static str];

    /// Runs one command to its end. `Ok` is the kind's encoded result message, empty where it has none.
    fn run(&self, order: Order, ctx: Ctx) -> BoxFuture<'_, Result<Vec<u8>, CommandError>>;
}

/// Runs one command to its end. A panic fails this command only, with the code `internal`.
pub async fn run(executor: &dyn Executor, order: Order, ctx: Ctx) -> Result<Vec<u8>, CommandError> {
    let kind = order.kind.clone();
    // The call is inside too: it need not be an async block.
    let running = contain::future(async { executor.run(order, ctx).await });
    running.await.unwrap_or_else(|| Err(fail("internal", format!("`{kind}` met a bug in the agent"))))
}

/// A running command's way to the outside. Cheap to clone; works from blocking threads too.
#[derive(Clone, Debug)]
pub struct Ctx {
    progress: watch::Sender<Progress>,
    events: EventSink,
    cancel: CancellationToken,
}

impl Ctx {
    pub(crate) fn new(
        command_id: &str,
        events: EventSink,
        cancel: CancellationToken,
    ) -> (Self, watch::Receiver<Progress>) {
        let start = Progress { command_id: command_id.to_owned(), ..Progress::default() };
        let (progress, seen) = watch::channel(start);
        (Self { progress, events, cancel }, seen)
    }

    /// A context outside any session, for running an executor by hand. The receiver sees the newest progress.
    pub fn detached(command_id: &str) -> (Self, watch::Receiver<Progress>) {
        Self::new(command_id, EventSink::detached(), CancellationToken::new())
    }

    /// Says how far the command is: `done` of `total` bytes (0: unknown). The newest value counts; at most
    /// five a second travel, so it may be called as often as is convenient.
    pub fn progress(&self, phase: &str, done: u64, total: u64) {
        self.progress.send_modify(|progress| {
            if progress.phase != phase {
                phase.clone_into(&mut progress.phase);
            }
            progress.done = done;
            progress.total = total;
            "bytes".clone_into(&mut progress.unit);
        });
    }

    /// Raises an event; see [`EventSink::send`].
    pub fn event(&self, kind: &str, json: &serde_json::Value) {
        self.events.send(kind, json);
    }

    /// Resolves when control has cancelled the command. The executor then ends soon, with an error of its
    /// own choice (`cancelled` where nothing was changed).
    pub async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }

    /// Whether control has cancelled the command.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Cancels the command as control would.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_progress_counts() {
        let (ctx, mut seen) = Ctx::detached("c1");
        ctx.progress("write", 1, 10);
        ctx.progress("write", 7, 10);
        let progress = seen.borrow_and_update().clone();
        assert_eq!((progress.command_id.as_str(), progress.phase.as_str()), ("c1", "write"));
        assert_eq!((progress.done, progress.total, progress.unit.as_str()), (7, 10, "bytes"));
        assert!(!seen.has_changed().unwrap());
    }
}
