//! Runs: durable workflows, kept as data and moved by [`step`].
//!
//! ```text
//!                  start                   all steps done
//!   (request) ──────────────▶ Running ────────────────────────▶ Succeeded
//!                              │   │
//!              a step's error  │   │ a person
//!                or limit      ▼   ▼
//!                        Failed   Cancelled ──▶ cleanup: stop orders, local boot, reboot ──▶ (nothing more)
//!
//!   a step:  Pending ──▶ Running ──▶ Succeeded | Failed | Cancelled
//!                         │   ▲
//!                         └───┘ retriable error: a new command after 2, 4, 8, 16, 32 s
//! ```
//! [`step`] looks at the store (commands, sessions, leases) and at the time, and does whatever can be done. It may be
//! called at any time and any number of times, so a restart between two transactions changes nothing.

mod advance;
mod cleanup;
mod orders;
mod refused;
mod results;
mod start;
mod steps;

use ironwright_proto::{
    api::{ApiErrorBody, DiskHint, Run, RunState},
    ids::{Digest, Name},
};
use serde::{Deserialize, Serialize};
use serde_json::json;

pub use advance::{MAX_RETRIES, RETRIABLE};
pub use cleanup::{RELEASE_LIMIT_MS, STOP_LIMIT_MS};
pub(crate) use orders::token_fetched;
pub use orders::{BOOT_ENTRY_TTL_MS, MAX_REFILLS};
pub(crate) use refused::join_refused;
pub(crate) use start::{ControlFacts, start};
pub use start::{MAX_CMDLINE, MAX_USER_DATA};

use self::{cleanup::Cleanup, refused::Refused, steps::Step};
use crate::{
    audit,
    error::Error,
    join::token::{self, TokenKey},
    store::ReadTxn,
    table::{MAX_LIST, Table, order},
    tx::{Tx, failure},
};

/// How many runs one sweep moves.
const MAX_SWEEP: usize = 1000;

/// A run with what only control needs to know of it.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) run: Run,
    plan: Plan,
    /// When time alone may move it, and thus its key in [`WAKE`].
    wake_ms: Option<i64>,
}

/// What was asked for, and what is remembered from step to step.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct Plan {
    control: ControlFacts,
    site: Name,
    user_data: Option<String>,
    disk: DiskHint,
    extra_cmdline: String,
    size_bytes: u64,
    raw_size_bytes: u64,
    /// An earlier run of the machine, which has to clean up first.
    after: Option<String>,
    /// Retriable failures of the step at hand, and when the next attempt may begin.
    failures: u32,
    not_before_ms: i64,
    /// Lease epoch under which the newest `boot.prepare` was made.
    boot_epoch: u64,
    /// From `boot.prepare`.
    boot: Option<Boot>,
    /// The disk that was erased, from `disk.erase`; the image goes there and nowhere else.
    #[serde(default)]
    erased: Option<DiskHint>,
    /// Where the image went, from `image.deploy`.
    disk_path: String,
    /// All commands that were made, and those of them that fill up the boot entry.
    commands: Vec<String>,
    refills: Vec<String>,
    tokens: Vec<TokenKey>,
    /// The newest join in the machine's name that was refused during the step at hand.
    #[serde(default)]
    refused: Option<Refused>,
    cleanup: Option<Cleanup>,
}

/// What the site serves.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct Boot {
    base_url: String,
    agent_bundle: Option<Digest>,
}

const RUNS: Table<Record> = Table::new("run");
/// `<when>/<run>`: runs that time moves.
const WAKE: Table<String> = Table::new("run-wake");
/// Machine → the run that has it, or that cleans up after itself.
const BY_MACHINE: Table<String> = Table::new("run-of-machine");

fn wake_key(wake_ms: i64, run: &str) -> String {
    format!("{}/{run}", order(wake_ms))
}

/// Moves a run as far as it goes now.
pub(crate) fn step(tx: &mut Tx<'_>, id: &str) -> Result<(), Error> {
    let Some(before) = RUNS.get(tx.txn, id)? else { return Ok(()) };
    let mut record = before.clone();
    advance::advance(tx, &mut record)?;
    save(tx, Some(&before), record)
}

/// A run that has not ended and puts this image on a disk.
pub(crate) fn open_of_image(txn: &dyn ReadTxn, image: &Name) -> Result<Option<String>, Error> {
    for id in BY_MACHINE.all(txn)? {
        let run = RUNS.get(txn, &id)?.map(|record| record.run);
        if run.is_some_and(|run| run.image == *image && !run.state.is_final()) {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

fn save(tx: &mut Tx<'_>, before: Option<&Record>, mut record: Record) -> Result<(), Error> {
    if before == Some(&record) {
        return Ok(());
    }
    if let Some(wake_ms) = before.and_then(|before| before.wake_ms) {
        WAKE.delete(tx.txn, &wake_key(wake_ms, &record.run.id))?;
    }
    if let Some(wake_ms) = record.wake_ms {
        WAKE.put(tx.txn, &wake_key(wake_ms, &record.run.id), &record.run.id)?;
    }
    // The next time to look again is no change that a reader would see.
    if before.is_none_or(|before| before.run != record.run) {
        record.run.version += 1;
    }
    RUNS.put(tx.txn, &record.run.id.clone(), &record)
}

/// Runs that time may move now, at most [`MAX_SWEEP`].
pub(crate) fn due(txn: &dyn ReadTxn, now_ms: i64) -> Result<Vec<String>, Error> {
    let first = WAKE.scan(txn, "", "", MAX_SWEEP)?;
    let now = order(now_ms.saturating_add(1));
    Ok(first.into_iter().take_while(|(key, _)| *key < now).map(|(_, run)| run).collect())
}

/// The run that has a machine, or is cleaning up after itself.
pub(crate) fn of_machine(txn: &dyn ReadTxn, machine: &Name) -> Result<Option<String>, Error> {
    BY_MACHINE.get(txn, machine.as_str())
}

/// Runs that a site serves, or cleans up after.
pub(crate) fn of_site(txn: &dyn ReadTxn, site: &str) -> Result<Vec<String>, Error> {
    let mut runs = Vec::new();
    for (_, id) in BY_MACHINE.scan(txn, "", "", MAX_LIST)? {
        if RUNS.get(txn, &id)?.is_some_and(|record| record.plan.site.as_str() == site) {
            runs.push(id);
        }
    }
    Ok(runs)
}

/// All runs, oldest first.
pub(crate) fn all(txn: &dyn ReadTxn) -> Result<Vec<Run>, Error> {
    Ok(RUNS.all(txn)?.into_iter().map(|record| record.run).collect())
}

pub(crate) fn need(txn: &dyn ReadTxn, id: &str) -> Result<Run, Error> {
    let record = RUNS.get(txn, id)?.ok_or_else(|| Error::UnknownRun(audit::clip(id)))?;
    Ok(record.run)
}

/// Runs that have not ended.
pub(crate) fn count_active(txn: &dyn ReadTxn) -> Result<usize, Error> {
    let mut active = 0;
    for (_, id) in BY_MACHINE.scan(txn, "", "", MAX_LIST)? {
        active += usize::from(RUNS.get(txn, &id)?.is_some_and(|record| !record.run.state.is_final()));
    }
    Ok(active)
}

/// Ends a run early, because a person says so.
pub(crate) fn cancel(tx: &mut Tx<'_>, actor: &str, id: &str) -> Result<Run, Error> {
    let before = RUNS.get(tx.txn, id)?.ok_or_else(|| Error::UnknownRun(audit::clip(id)))?;
    let mut record = before.clone();
    if record.run.state.is_final() {
        return Err(Error::RunEnded(record.run.id));
    }
    let error = failure("cancelled", format!("cancelled by {actor}"));
    end_early(tx, &mut record, actor, RunState::Cancelled, error)?;
    advance::advance(tx, &mut record)?;
    save(tx, Some(&before), record)?;
    need(tx.txn, id)
}

/// Ends a run and its step at hand, and begins the cleanup.
fn end_early(
    tx: &mut Tx<'_>,
    record: &mut Record,
    actor: &str,
    state: RunState,
    error: ApiErrorBody,
) -> Result<(), Error> {
    let action = if state == RunState::Cancelled { "run.cancelled" } else { "run.failed" };
    let current = record.run.steps.iter_mut().find(|step| !step.state.is_final());
    let name = current.as_ref().map(|step| step.name.clone());
    if let Some(step) = current {
        step.state = state;
        step.error = Some(error.clone());
        step.ended_ms = Some(tx.now_ms);
        step.waiting_for = None;
    }
    let detail = json!({"step": name, "code": error.code, "message": audit::clip(&error.message)});
    record.run.error = Some(error);
    end(tx, record, state)?;
    record.plan.cleanup = Some(Cleanup::begin(tx.now_ms));
    audit::append(tx, actor, action, &record.run.id, detail)
}

/// What every end has in common: times, evidence, and no token of the run is good any more.
fn end(tx: &mut Tx<'_>, record: &mut Record, state: RunState) -> Result<(), Error> {
    for token in std::mem::take(&mut record.plan.tokens) {
        token::revoke(tx, &token)?;
    }
    let run = &mut record.run;
    run.state = state;
    run.ended_ms = Some(tx.now_ms);
    let timings: serde_json::Map<_, _> = (run.steps.iter())
        .filter_map(|step| Some((step.name.clone(), json!(step.ended_ms? - step.started_ms?))))
        .collect();
    run.evidence.insert("timings_ms".to_owned(), timings.into());
    Ok(())
}

/// Lets go of the machine, unless a newer run has it.
fn release_machine(tx: &mut Tx<'_>, record: &Record) -> Result<(), Error> {
    let machine = record.run.machine.as_str();
    if BY_MACHINE.get(tx.txn, machine)?.as_deref() == Some(&record.run.id) {
        BY_MACHINE.delete(tx.txn, machine)?;
    }
    Ok(())
}
