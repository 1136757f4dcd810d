//! The commands of a run: when one may be issued, and its arguments.

use ironwright_proto::{
    Message,
    api::{DiskHint, Machine},
    kinds::{self, Role},
    wire,
};

use super::{
    Boot, RUNS, Record, cleanup, save,
    steps::{By, Step},
};
use crate::{
    commands,
    error::Error,
    join::token::{self, For},
    machines, seed, sites,
    tx::Tx,
};

/// How long a boot entry and its token are good for: longer than all steps up to `image.deploy` may take.
pub const BOOT_ENTRY_TTL_MS: i64 = 6 * 3600 * 1000;
/// How often a machine's boot entry is filled up again in one run.
pub const MAX_REFILLS: usize = 50;
/// How long a refill may take.
const REFILL_LIMIT_MS: i64 = 5 * 60_000;

/// Issues the command of a step, or says what it has to wait for.
pub(super) fn issue(
    tx: &mut Tx<'_>,
    record: &mut Record,
    step: Step,
    deadline_ms: i64,
) -> Result<Option<String>, Error> {
    let By::Command(kind, role) = step.by() else { return Ok(None) };
    if tx.now_ms < record.plan.not_before_ms {
        return Ok(Some(format!("waiting before {kind} is tried again")));
    }
    if step == Step::BootPrepare
        && let Some(earlier) = record.plan.after.clone()
        && !cleanup::give_way(tx, &earlier)?
    {
        return Ok(Some(format!("waiting for run {earlier} to let go of the machine")));
    }
    // A refill that is still on its way must not replace the entry after `boot.local` did.
    if step == Step::BootLocal
        && !commands::stop(tx, &record.plan.refills.clone(), "the machine has been imaged")?
    {
        return Ok(Some(format!("waiting for site {} to end what it is at", record.plan.site)));
    }
    let machine = machines::need(tx.txn, record.run.machine.as_str())?;
    let site = sites::get(tx.txn, record.plan.site.as_str())?;
    let (node, lease_epoch) = match role {
        Role::Site => site.map_or((None, 0), |site| (site.holder, site.lease_epoch)),
        Role::Ramdisk | Role::Node => (machine.node_id.clone(), 0),
    };
    let Some(node) = node else {
        return Ok(Some(format!("waiting for an agent of site {}", record.plan.site)));
    };
    if !commands::has_room(tx.txn, &node)? {
        return Ok(Some(format!("waiting for node {node} to work off its orders")));
    }
    let args = args(tx, record, step, &machine)?;
    // A reboot stays open until the operating system is heard of, so it lives as long as that is waited for.
    let not_after_ms = match step {
        Step::NodeReboot => deadline_ms + Step::NodeJoin.limit_ms(),
        _ => deadline_ms,
    };
    if step == Step::BootPrepare {
        record.plan.boot_epoch = lease_epoch;
    }
    let run = record.run.id.as_str();
    let order = commands::Order {
        kind,
        node: &node,
        role,
        run,
        lease_epoch,
        args,
        not_after_ms,
        at_most_once: false,
        min_generation: 0,
    };
    let id = commands::create(tx, order)?;
    record.plan.commands.push(id.clone());
    record.run.steps[step.index()].command_id = Some(id);
    Ok(None)
}

fn args(tx: &mut Tx<'_>, record: &mut Record, step: Step, machine: &Machine) -> Result<Vec<u8>, Error> {
    let plan = &record.plan;
    Ok(match step {
        Step::BootPrepare => boot_prepare(tx, record, machine)?.encode_to_vec(),
        Step::BootLocal => boot_local(machine).encode_to_vec(),
        Step::DiskErase => {
            wire::DiskEraseArgs { hint: Some(hint(&plan.disk)), image_size_bytes: plan.raw_size_bytes }
                .encode_to_vec()
        }
        Step::ImageDeploy => image_deploy(tx, record, machine)?.encode_to_vec(),
        Step::BootFinish => wire::BootFinishArgs { path: plan.disk_path.clone() }.encode_to_vec(),
        Step::RamdiskJoin | Step::InventoryCollect | Step::NodeReboot | Step::NodeJoin => Vec::new(),
    })
}

fn boot_prepare(
    tx: &mut Tx<'_>,
    record: &mut Record,
    machine: &Machine,
) -> Result<wire::BootPrepareArgs, Error> {
    let (join_token, key) = token::mint(tx, For::machine(&machine.id, Role::Ramdisk), BOOT_ENTRY_TTL_MS)?;
    record.plan.tokens.push(key);
    Ok(wire::BootPrepareArgs {
        machine_id: machine.id.to_string(),
        mac: machine.mac.to_string(),
        join_token,
        expires_unix_ms: tx.now_ms + BOOT_ENTRY_TTL_MS,
        artifacts: vec![record.run.image_digest.to_string()],
        control_url: record.plan.control.url.clone(),
        ca_pin: record.plan.control.ca_pin.to_string(),
        extra_cmdline: record.plan.extra_cmdline.clone(),
    })
}

pub(super) fn boot_local(machine: &Machine) -> wire::BootLocalArgs {
    wire::BootLocalArgs { machine_id: machine.id.to_string(), mac: machine.mac.to_string() }
}

fn hint(disk: &DiskHint) -> wire::DiskHint {
    wire::DiskHint {
        name: disk.name.clone().unwrap_or_default(),
        serial: disk.serial.clone().unwrap_or_default(),
        wwid: disk.wwid.clone().unwrap_or_default(),
        min_size_bytes: disk.min_size_bytes.unwrap_or_default(),
    }
}

fn image_deploy(
    tx: &mut Tx<'_>,
    record: &mut Record,
    machine: &Machine,
) -> Result<wire::ImageDeployArgs, Error> {
    // The ramdisk has joined by now: a machine that is still bound to no TPM has none.
    let token = if machine.ek_fingerprint.is_none() {
        let (token, key) = token::mint(tx, For::machine(&machine.id, Role::Node), BOOT_ENTRY_TTL_MS)?;
        record.plan.tokens.push(key);
        Some(token)
    } else {
        None
    };
    let plan = &record.plan;
    let Some(Boot { base_url, agent_bundle }) = &plan.boot else {
        return Err(Error::Internal(format!("run {} has no result of boot.prepare", record.run.id)));
    };
    let seed = seed::files(&seed::Seed {
        run_id: &record.run.id,
        machine_id: &machine.id,
        mac: machine.mac,
        control_url: &plan.control.url,
        ca_pin: plan.control.ca_pin,
        join_token: token.as_deref(),
        user_data: plan.user_data.as_deref(),
        site_url: base_url,
        agent_bundle: *agent_bundle,
    });
    Ok(wire::ImageDeployArgs {
        url: format!("{base_url}/blobs/sha256/{}", record.run.image_digest.hex()),
        digest: record.run.image_digest.to_string(),
        size_bytes: plan.size_bytes,
        raw_size_bytes: plan.raw_size_bytes,
        hint: Some(hint(plan.erased.as_ref().unwrap_or(&plan.disk))),
        seed: seed
            .into_iter()
            .map(|(name, content)| wire::SeedFile { name: name.to_owned(), content })
            .collect(),
    })
}

/// The machine has fetched the token of its boot entry. Gives it a fresh one while the machine may still have to
/// boot the ramdisk again.
pub(crate) fn token_fetched(tx: &mut Tx<'_>, id: &str) -> Result<(), Error> {
    let Some(before) = RUNS.get(tx.txn, id)? else { return Ok(()) };
    let mut record = before.clone();
    if record.run.state.is_final() || record.run.steps[Step::ImageDeploy.index()].state.is_final() {
        return Ok(());
    }
    let machine = machines::need(tx.txn, record.run.machine.as_str())?;
    refill(tx, &mut record, &machine)?;
    save(tx, Some(&before), record)
}

/// Gives the boot entry to the site's new agent, where the lease has moved since it was made.
pub(super) fn follow_lease(tx: &mut Tx<'_>, record: &mut Record, machine: &Machine) -> Result<(), Error> {
    let site = sites::get(tx.txn, record.plan.site.as_str())?;
    if site.is_some_and(|site| site.lease_epoch != record.plan.boot_epoch) {
        refill(tx, record, machine)?;
    }
    Ok(())
}

/// One more `boot.prepare`, outside the step list. Without room for it the machine has what it has.
fn refill(tx: &mut Tx<'_>, record: &mut Record, machine: &Machine) -> Result<(), Error> {
    let Some(site) = sites::get(tx.txn, record.plan.site.as_str())? else { return Ok(()) };
    let Some(node) = site.holder else { return Ok(()) };
    if record.plan.refills.len() >= MAX_REFILLS || !commands::has_room(tx.txn, &node)? {
        return Ok(());
    }
    let args = boot_prepare(tx, record, machine)?.encode_to_vec();
    let order = commands::Order {
        kind: kinds::BOOT_PREPARE,
        node: &node,
        role: Role::Site,
        run: &record.run.id,
        lease_epoch: site.lease_epoch,
        args,
        not_after_ms: tx.now_ms + REFILL_LIMIT_MS,
        at_most_once: false,
        min_generation: 0,
    };
    let command = commands::create(tx, order)?;
    record.plan.boot_epoch = site.lease_epoch;
    record.plan.commands.push(command.clone());
    record.plan.refills.push(command);
    Ok(())
}
