//! The one thread that owns control's state. Everything else sends it work and waits.
//!
//! ```text
//! API, join, gateway, ticker ── Job ──▶ queue ──▶ take all that wait (at most MAX_BATCH)
//!                                                 apply each to the state, in order
//!                                                 one fsync for all of them
//!                                 answers ◀────── then let out: frames, closes, answers, change notice
//! ```
//!
//! Nothing leaves before it is durable. Where the disk fails, nothing leaves at all and control ends: its successor
//! goes on from the last durable state.

use ironwright_control_core::{Control, Output, store::StoreError};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
};

use crate::{clock::unix_ms, gateway::links::Links, store::RedbStore};

/// Work that may wait; whoever sends more is held back.
const QUEUE_LEN: usize = 1024;
/// Work that shares one fsync.
const MAX_BATCH: usize = 128;

/// Control's decisions over the redb store.
pub(crate) type Core = Control<RedbStore>;

/// What the driver owns.
pub(crate) struct State {
    pub(crate) core: Core,
    /// The open sessions' outgoing ends.
    pub(crate) links: Links,
    output: Output,
    stopping: bool,
}

impl State {
    /// Has effects carried out once everything before them is durable.
    pub(crate) fn emit(&mut self, output: Output) {
        self.output.frames.extend(output.frames);
        self.output.close.extend(output.close);
        // `changes` are for observers; watchers of this process go by the version.
    }
}

/// Applies one piece of work, and gives what hands its result to whoever waits for it.
type Job = Box<dyn FnOnce(&mut State, i64) -> Release + Send>;
type Release = Box<dyn FnOnce() + Send>;

/// The driver has ended: control is shutting down, or its store failed.
#[derive(Debug, thiserror::Error)]
#[error("control is stopping; try again in a few seconds")]
pub(crate) struct Stopped;

/// Sends work to the driver.
#[derive(Clone)]
pub(crate) struct Handle {
    jobs: mpsc::Sender<Job>,
    changes: watch::Receiver<u64>,
}

impl Handle {
    /// Runs `work` on the state; `now` is its second argument. Returns when its result is durable.
    pub(crate) async fn apply<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut State, i64) -> R + Send + 'static,
    ) -> Result<R, Stopped> {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |state, now_ms| {
            let result = work(state, now_ms);
            Box::new(move || {
                // Nobody waits any more: the work is done all the same.
                let _ = answer.send(result);
            })
        });
        self.jobs.send(job).await.map_err(|_| Stopped)?;
        answered.await.map_err(|_| Stopped)
    }

    /// Runs `work` on the core alone; for work that has no effects on sessions.
    pub(crate) async fn call<R: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Core, i64) -> R + Send + 'static,
    ) -> Result<R, Stopped> {
        self.apply(|state, now_ms| work(&mut state.core, now_ms)).await
    }

    /// Runs `work` on the core and carries out its effects.
    pub(crate) async fn call_with_output<R: Send + 'static, E: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Core, i64) -> Result<(R, Output), E> + Send + 'static,
    ) -> Result<Result<R, E>, Stopped> {
        self.apply(|state, now_ms| {
            let (result, output) = work(&mut state.core, now_ms)?;
            state.emit(output);
            Ok(result)
        })
        .await
    }

    /// Ends the driver once the work before this is done.
    pub(crate) async fn stop(&self) {
        // An error says that it has ended already.
        let _ = self.apply(|state, _| state.stopping = true).await;
    }

    /// The core's version, for watchers.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }
}

/// Starts the driver on a core whose store is `store`.
pub(crate) fn start(core: Core, store: RedbStore) -> (Handle, JoinHandle<Result<(), StoreError>>) {
    let (jobs, queue) = mpsc::channel(QUEUE_LEN);
    let (changed, changes) = watch::channel(core.version());
    let state = State { core, links: Links::default(), output: Output::default(), stopping: false };
    let driver = tokio::task::spawn_blocking(move || run(state, &store, queue, &changed));
    (Handle { jobs, changes }, driver)
}

fn run(
    mut state: State,
    store: &RedbStore,
    mut queue: mpsc::Receiver<Job>,
    changed: &watch::Sender<u64>,
) -> Result<(), StoreError> {
    let mut batch = Vec::with_capacity(MAX_BATCH);
    while queue.blocking_recv_many(&mut batch, MAX_BATCH) > 0 {
        store.defer();
        let releases: Vec<Release> = batch.drain(..).map(|job| job(&mut state, unix_ms())).collect();
        store.sync()?;
        state.links.carry_out(std::mem::take(&mut state.output));
        for release in releases {
            release();
        }
        let version = state.core.version();
        changed.send_if_modified(|known| std::mem::replace(known, version) != version);
        if state.stopping {
            break;
        }
    }
    Ok(())
}
