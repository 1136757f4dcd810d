//! After a failed or cancelled run: the machine is left so that it does nothing surprising.
//!
//! ```text
//!   Stopping ── all orders ended, or 60 s ──▶ Releasing ── local boot set, node told to reboot ──▶ (done)
//!                                                └── or the orders' deadline, 5 min ────────────────▶
//! ```
//! The next run of the machine can be started meanwhile; its `boot.prepare` waits for the end of this, so that a
//! late `boot.local` never replaces a newer entry, and takes back a reboot that was not sent yet, so that it never
//! hits the newer ramdisk.

use ironwright_proto::{
    Message,
    kinds::{self, Role},
};
use serde::{Deserialize, Serialize};

use super::{
    RUNS, Record,
    advance::{began_ms, node_since},
    orders, release_machine, save,
    steps::Step,
};
use crate::{
    commands::{self, State},
    error::Error,
    machines, sites,
    tx::{Tx, failure},
};

/// How long orders that are called back have to end.
pub const STOP_LIMIT_MS: i64 = 60_000;
/// How long the site and the node have for the last orders.
pub const RELEASE_LIMIT_MS: i64 = 5 * 60_000;

/// Where the cleanup stands.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Cleanup {
    Stopping { until_ms: i64 },
    Releasing { boot_local: Option<String>, reboot: Option<String> },
}

impl Cleanup {
    pub(super) fn begin(now_ms: i64) -> Self {
        Self::Stopping { until_ms: now_ms + STOP_LIMIT_MS }
    }
}

/// Moves the cleanup of an ended run as far as it goes.
pub(super) fn advance(tx: &mut Tx<'_>, record: &mut Record) -> Result<(), Error> {
    record.wake_ms = None;
    if let Some(Cleanup::Stopping { until_ms }) = record.plan.cleanup {
        let ended = commands::stop(tx, &record.plan.commands.clone(), "the run has ended")?;
        if !ended && tx.now_ms < until_ms {
            record.wake_ms = Some(until_ms);
            return Ok(());
        }
        give_up_rest(tx, record)?;
        record.plan.cleanup = Some(release(tx, record)?);
    }
    if let Some(Cleanup::Releasing { boot_local, reboot }) = &record.plan.cleanup {
        let local_set = match boot_local {
            Some(id) => commands::state(tx.txn, id)?.is_final(),
            None => true,
        };
        let reboot_sent = match reboot {
            Some(id) => commands::state(tx.txn, id)? != State::Queued,
            None => true,
        };
        if !(local_set && reboot_sent) {
            // The sweep of overdue commands ends this at the latest.
            return Ok(());
        }
        record.plan.cleanup = None;
        release_machine(tx, record)?;
    }
    Ok(())
}

fn give_up_rest(tx: &mut Tx<'_>, record: &Record) -> Result<(), Error> {
    for id in &record.plan.commands {
        if let Some(command) = commands::get(tx.txn, id)?.filter(|command| !command.state.is_final()) {
            commands::give_up(tx, command, failure("cancelled", "the run has ended"))?;
        }
    }
    Ok(())
}

/// Sets local boot where the run has set anything else, and reboots the ramdisk where it is running.
fn release(tx: &mut Tx<'_>, record: &Record) -> Result<Cleanup, Error> {
    let Some(machine) = machines::get(tx.txn, record.run.machine.as_str())? else {
        // A newer run has had the machine since and let go of it, and it was removed.
        return Ok(Cleanup::Releasing { boot_local: None, reboot: None });
    };
    let site = sites::get(tx.txn, record.plan.site.as_str())?;
    let (holder, lease_epoch) = site.map_or((None, 0), |site| (site.holder, site.lease_epoch));
    let holder = holder.filter(|_| !record.plan.commands.is_empty());
    let ramdisk = node_since(tx.txn, record, Role::Ramdisk, began_ms(record, Step::BootPrepare))?;
    let run = record.run.id.as_str();
    let not_after_ms = tx.now_ms + RELEASE_LIMIT_MS;
    let mut make = |node: Option<&str>, kind, role, lease_epoch, args| -> Result<Option<String>, Error> {
        match node {
            Some(node) if commands::has_room(tx.txn, node)? => {
                let order = commands::Order {
                    kind,
                    node,
                    role,
                    run,
                    lease_epoch,
                    args,
                    not_after_ms,
                    at_most_once: false,
                    min_generation: 0,
                };
                commands::create(tx, order).map(Some)
            }
            _ => Ok(None),
        }
    };
    let args = orders::boot_local(&machine).encode_to_vec();
    let boot_local = make(holder.as_deref(), kinds::BOOT_LOCAL, Role::Site, lease_epoch, args)?;
    let ramdisk = ramdisk.map(|node| node.node.id);
    let reboot = make(ramdisk.as_deref(), kinds::NODE_REBOOT, Role::Ramdisk, 0, Vec::new())?;
    Ok(Cleanup::Releasing { boot_local, reboot })
}

/// Whether an earlier run has let go of its machine; hurries it where it has not.
pub(super) fn give_way(tx: &mut Tx<'_>, earlier: &str) -> Result<bool, Error> {
    let Some(before) = RUNS.get(tx.txn, earlier)? else { return Ok(true) };
    let mut record = before.clone();
    if let Some(Cleanup::Releasing { reboot: Some(reboot), .. }) = &record.plan.cleanup
        && commands::state(tx.txn, reboot)? == State::Queued
    {
        commands::stop(tx, std::slice::from_ref(reboot), "a newer run has the machine")?;
    }
    advance(tx, &mut record)?;
    let done = record.plan.cleanup.is_none();
    save(tx, Some(&before), record)?;
    Ok(done)
}
