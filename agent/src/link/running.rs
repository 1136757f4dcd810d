//! The commands that run now.

use std::{
    collections::{BTreeMap, HashMap},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use ironwright_proto::wire::{CommandError, Progress};
use tokio::{sync::mpsc, task::JoinSet, time::MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::{
    events::EventSink,
    executor::{self, Ctx, Executor, Order, fail},
};

/// Progress of one command travels at most this often.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);
/// Progress that waits for the session; beyond it, it is lost.
const PROGRESS_QUEUE: usize = 64;

/// What an executor ended with.
type Ended = (String, Result<Vec<u8>, CommandError>);

/// What the running commands report.
#[derive(Debug, PartialEq)]
pub(crate) enum RunEvent {
    /// The command with this id ended.
    Ended(String, Result<Vec<u8>, CommandError>),
    /// One is this far.
    Progress(Progress),
}

/// Executors by kind, and the tasks in which they run. All are told to stop when this is dropped.
pub(crate) struct Running {
    executors: BTreeMap<&'static str, Arc<dyn Executor>>,
    tasks: JoinSet<Ended>,
    cancels: HashMap<String, CancellationToken>,
    events: EventSink,
    progress: mpsc::Sender<Progress>,
    reports: mpsc::Receiver<Progress>,
}

impl Running {
    pub(crate) fn new(executors: &[Arc<dyn Executor>], events: EventSink) -> Self {
        let of_kinds = |executor: &Arc<dyn Executor>| {
            let executor = executor.clone();
            executor.kinds().iter().map(move |kind| (*kind, executor.clone())).collect::<Vec<_>>()
        };
        let (progress, reports) = mpsc::channel(PROGRESS_QUEUE);
        Self {
            executors: executors.iter().flat_map(of_kinds).collect(),
            tasks: JoinSet::new(),
            cancels: HashMap::new(),
            events,
            progress,
            reports,
        }
    }

    /// The kinds that can run.
    pub(crate) fn kinds(&self) -> Vec<&'static str> {
        self.executors.keys().copied().collect()
    }

    pub(crate) fn start(&mut self, order: Order) {
        let id = order.id.clone();
        let cancel = CancellationToken::new();
        self.cancels.insert(id.clone(), cancel.clone());
        let executor = self.executors.get(order.kind.as_str()).cloned();
        let (events, progress) = (self.events.clone(), self.progress.clone());
        tracing::info!(command = %id, kind = %order.kind, "command started");
        self.tasks.spawn(async move {
            let result = match executor {
                Some(executor) => run(&*executor, order, events, cancel, &progress).await,
                None => Err(fail("unsupported", format!("no executor runs `{}`", order.kind))),
            };
            (id, result)
        });
    }

    pub(crate) fn cancel(&self, id: &str) {
        if let Some(cancel) = self.cancels.get(id) {
            tracing::info!(command = %id, "command is being cancelled");
            cancel.cancel();
        }
    }

    /// The next report; pends while nothing runs. Cancel safe.
    pub(crate) async fn next(&mut self) -> RunEvent {
        loop {
            let joined = tokio::select! {
                joined = self.tasks.join_next(), if !self.tasks.is_empty() => joined,
                Some(progress) = self.reports.recv() => return RunEvent::Progress(progress),
            };
            match joined {
                Some(Ok((id, result))) => {
                    self.cancels.remove(&id);
                    match &result {
                        Ok(_) => tracing::info!(command = %id, "command succeeded"),
                        Err(err) => {
                            tracing::warn!(command = %id, code = %err.code, "command failed: {}", err.message);
                        }
                    }
                    return RunEvent::Ended(id, result);
                }
                // Panics are caught inside, and nobody aborts single tasks.
                Some(Err(lost)) => tracing::error!(%lost, "a command's task was lost"),
                None => {}
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Executors that work on blocking threads see only this.
        self.cancels.values().for_each(CancellationToken::cancel);
    }
}

/// Runs one command and passes its newest progress on, a few times a second.
async fn run(
    executor: &dyn Executor,
    order: Order,
    events: EventSink,
    cancel: CancellationToken,
    progress: &mpsc::Sender<Progress>,
) -> Result<Vec<u8>, CommandError> {
    let (ctx, mut newest) = Ctx::new(&order.id, events, cancel);
    let mut running = pin!(executor::run(executor, order, ctx));
    let mut pace = tokio::time::interval(PROGRESS_EVERY);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            ended = &mut running => return ended,
            _ = pace.tick() => {
                if newest.has_changed().unwrap_or(false) {
                    let _ = progress.try_send(newest.borrow_and_update().clone());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::BoxFuture;

    /// Counts 1000 steps in 10 s, or panics.
    struct Counter;

    impl Executor for Counter {
        fn kinds(&self) -> &'static [&'static str] {
            &["count", "panic"]
        }

        fn run(&self, order: Order, ctx: Ctx) -> BoxFuture<'_, Result<Vec<u8>, CommandError>> {
            Box::pin(async move {
                assert_ne!(order.kind, "panic");
                for n in 1..=1000 {
                    ctx.progress("count", n, 1000);
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    if ctx.is_cancelled() {
                        return Err(fail("cancelled", "as asked"));
                    }
                }
                Ok(vec![1])
            })
        }
    }

    fn running() -> Running {
        Running::new(&[Arc::new(Counter)], EventSink::detached())
    }

    fn order(kind: &str) -> Order {
        Order { id: "c1".into(), kind: kind.into(), args: vec![] }
    }

    /// Waits for the end of the one command; also how far it was seen.
    async fn ended(running: &mut Running) -> (Result<Vec<u8>, CommandError>, Vec<u64>) {
        let mut seen = Vec::new();
        loop {
            match running.next().await {
                RunEvent::Ended(id, result) => {
                    assert_eq!(id, "c1");
                    return (result, seen);
                }
                RunEvent::Progress(progress) => seen.push(progress.done),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn progress_travels_at_most_five_times_a_second() {
        let mut running = running();
        running.start(order("count"));
        let (result, seen) = ended(&mut running).await;
        assert_eq!(result, Ok(vec![1]));
        assert!((45..=51).contains(&seen.len()), "{} reports in 10 s", seen.len());
        assert!(seen.is_sorted() && *seen.last().unwrap() > 950, "{seen:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_panicking_executor_fails_its_command_only() {
        let mut running = running();
        running.start(order("panic"));
        assert_eq!(ended(&mut running).await.0.unwrap_err().code, "internal");
        running.start(order("count"));
        assert!(ended(&mut running).await.0.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancelled_command_ends_as_its_executor_says() {
        let mut running = running();
        running.start(order("count"));
        running.cancel("c1");
        assert_eq!(ended(&mut running).await.0.unwrap_err().code, "cancelled");
        running.cancel("c1");
    }
}
