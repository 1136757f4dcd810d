//! The start of a deploy run: everything that can be refused before anything happens.

use ironwright_proto::{
    api::{Image, ImageState, Machine, NewDeploy, Run, RunState, Step as ApiStep},
    ids::Digest,
    kinds::Role,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{BY_MACHINE, Plan, RUNS, Record, Step, advance, save};
use crate::{audit, error::Error, images, machines, nodes, sites, store::ReadTxn, tx::Tx};

/// Largest user-data, in bytes. A seed travels in one command.
pub const MAX_USER_DATA: usize = 256 << 10;
/// Longest addition to the ramdisk's kernel command line, in bytes. The kernel takes 2048 in all.
pub const MAX_CMDLINE: usize = 256;

/// What machines are told of control.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ControlFacts {
    pub(crate) url: String,
    pub(crate) ca_pin: Digest,
}

/// Starts a deploy run.
pub(crate) fn start(
    tx: &mut Tx<'_>,
    actor: &str,
    new: &NewDeploy,
    control: &ControlFacts,
) -> Result<Run, Error> {
    let machine = machines::need(tx.txn, new.machine.as_str())?;
    let image = images::need(tx.txn, new.image.as_str())?;
    let Some(image_digest) = image.digest.filter(|_| image.state == ImageState::Ready) else {
        return Err(Error::ImageNotReady { image: image.name, state: image.state });
    };
    check_texts(new)?;
    check_size(&machine, &image, new)?;
    let site = sites::resolve(tx.txn, machine.site.as_ref())?
        .ok_or_else(|| Error::bad("machine", format!("no site serves machine `{}` yet", machine.id)))?;
    let after = BY_MACHINE.get(tx.txn, machine.id.as_str())?;
    if let Some(run) = &after
        && RUNS.get(tx.txn, run)?.is_some_and(|record| !record.run.state.is_final())
    {
        return Err(Error::MachineBusy { machine: machine.id, run: run.clone() });
    }
    let replaces = running_node(tx.txn, &machine)?;
    if let Some(node) = replaces.clone().filter(|_| !new.replace) {
        return Err(Error::MachineActive { machine: machine.id, node });
    }
    let id = tx.new_id("run");
    let run = Run {
        id: id.clone(),
        kind: "deploy".to_owned(),
        machine: machine.id.clone(),
        image: image.name.clone(),
        image_digest,
        state: RunState::Running,
        steps: Step::ALL.into_iter().map(pending).collect(),
        requested_by: actor.to_owned(),
        created_ms: tx.now_ms,
        ended_ms: None,
        error: None,
        evidence: [
            ("requested_by".to_owned(), json!(actor)),
            ("image_digest".to_owned(), json!(image_digest)),
        ]
        .into(),
        version: 0,
    };
    let plan = Plan {
        control: control.clone(),
        site: site.name,
        user_data: new.user_data.clone(),
        disk: new.disk.clone(),
        extra_cmdline: new.extra_cmdline.clone(),
        size_bytes: image.size_bytes,
        raw_size_bytes: image.raw_size_bytes,
        after,
        failures: 0,
        not_before_ms: 0,
        boot_epoch: 0,
        boot: None,
        erased: None,
        disk_path: String::new(),
        commands: Vec::new(),
        refills: Vec::new(),
        tokens: Vec::new(),
        refused: None,
        cleanup: None,
    };
    BY_MACHINE.put(tx.txn, machine.id.as_str(), &id)?;
    let detail = json!({
        "machine": machine.id, "image": image.name, "digest": image_digest, "disk": new.disk, "replaces": replaces,
    });
    audit::append(tx, actor, "run.started", &id, detail)?;
    let mut record = Record { run, plan, wake_ms: None };
    advance::advance(tx, &mut record)?;
    save(tx, None, record)?;
    super::need(tx.txn, &id)
}

/// The machine's node, where an operating system was the last that was heard of it: reachable or not, it may be of use
/// to somebody. From the moment a run's ramdisk was heard of, it is that run that has the machine.
fn running_node(txn: &dyn ReadTxn, machine: &Machine) -> Result<Option<String>, Error> {
    let node = machine.node_id.as_deref().map(|id| nodes::get(txn, id)).transpose()?.flatten();
    Ok(node.filter(|record| record.node.role == Role::Node.as_str()).map(|record| record.node.id))
}

fn pending(step: Step) -> ApiStep {
    ApiStep {
        name: step.name().to_owned(),
        state: RunState::Pending,
        command_id: None,
        started_ms: None,
        ended_ms: None,
        waiting_for: None,
        progress: None,
        result: None,
        error: None,
    }
}

fn check_texts(new: &NewDeploy) -> Result<(), Error> {
    if let Some(user_data) = &new.user_data
        && user_data.len() > MAX_USER_DATA
    {
        let why = format!("{} bytes; at most {MAX_USER_DATA} are taken", user_data.len());
        return Err(Error::bad("user_data", why));
    }
    // The words end up in an iPXE script, where `$`, quotes and line breaks mean something.
    let plain = |b: u8| b.is_ascii_alphanumeric() || b" =,._:/-+@%".contains(&b);
    if new.extra_cmdline.len() > MAX_CMDLINE || !new.extra_cmdline.bytes().all(plain) {
        let why = format!("expected at most {MAX_CMDLINE} letters, digits and any of ` =,._:/-+@%`");
        return Err(Error::bad("extra_cmdline", why));
    }
    if new.extra_cmdline.split(' ').any(|word| word.starts_with("iw.")) {
        return Err(Error::bad("extra_cmdline", "words that begin with `iw.` are the site's to set"));
    }
    Ok(())
}

/// Refuses an image that no disk of a known inventory holds. Only where the inventory says so clearly: disks may
/// have been added since, so "no such disk" is the ramdisk's to say.
fn check_size(machine: &Machine, image: &Image, new: &NewDeploy) -> Result<(), Error> {
    let disks = machine.inventory.as_ref().and_then(|inventory| inventory["disks"].as_array());
    let wanted = |disk: &&serde_json::Value| {
        let is =
            |key: &str, want: &Option<String>| want.as_ref().is_none_or(|want| disk[key] == want.as_str());
        is("name", &new.disk.name) && is("serial", &new.disk.serial) && is("wwid", &new.disk.wwid)
    };
    let sizes = disks.into_iter().flatten().filter(wanted).filter_map(|disk| disk["size_bytes"].as_u64());
    match sizes.max() {
        Some(disk_bytes) if disk_bytes < image.raw_size_bytes => Err(Error::ImageTooLarge {
            image: image.name.clone(),
            image_bytes: image.raw_size_bytes,
            machine: machine.id.clone(),
            disk_bytes,
        }),
        _ => Ok(()),
    }
}
