//! What the results of a run's steps are turned into: the step's result in JSON, evidence, what later steps need.

use std::collections::BTreeMap;

use ironwright_proto::{
    Message,
    api::{ApiErrorBody, DiskHint},
    ids::Digest,
    kinds::Role,
    wire,
};
use serde_json::{Value, json};

use super::{Boot, Record, steps::Step};
use crate::{
    commands::Command,
    error::Error,
    inventory, machines, nodes,
    tx::{Tx, failure},
};

/// Longest base URL and path that a result may name, in bytes.
const MAX_TEXT: usize = 256;

/// Takes the result of a step's command. The inner error fails the run.
pub(super) fn take(
    tx: &mut Tx<'_>,
    record: &mut Record,
    step: Step,
    command: &Command,
) -> Result<Result<Option<Value>, ApiErrorBody>, Error> {
    let bytes = command.result.as_slice();
    let taken = match step {
        Step::BootPrepare => boot_prepared(record, bytes),
        Step::InventoryCollect => match decode::<wire::Inventory>(step, bytes) {
            Ok(found) => {
                let value = inventory::to_json(&found);
                machines::set_inventory(tx, &record.run.machine, value.clone())?;
                Ok(Some(value))
            }
            Err(error) => Err(error),
        },
        Step::DiskErase => disk_erased(record, bytes),
        Step::ImageDeploy => image_deployed(record, bytes),
        Step::RamdiskJoin | Step::BootFinish | Step::BootLocal | Step::NodeReboot | Step::NodeJoin => {
            Ok(None)
        }
    };
    Ok(taken)
}

fn decode<M: Message + Default>(step: Step, bytes: &[u8]) -> Result<M, ApiErrorBody> {
    M::decode(bytes).map_err(|error| malformed(step, &error.to_string()))
}

fn malformed(step: Step, why: &str) -> ApiErrorBody {
    failure("malformed_result", format!("the result of {} cannot be used: {why}", step.name()))
}

fn boot_prepared(record: &mut Record, bytes: &[u8]) -> Result<Option<Value>, ApiErrorBody> {
    let step = Step::BootPrepare;
    let result: wire::BootPrepareResult = decode(step, bytes)?;
    let base_url = result.base_url.trim_end_matches('/').to_owned();
    let plain = |b: u8| b.is_ascii_alphanumeric() || b":/.-_[]%".contains(&b);
    if !base_url.starts_with("http://") || base_url.len() > MAX_TEXT || !base_url.bytes().all(plain) {
        return Err(malformed(step, "base_url is not an http:// URL without a query"));
    }
    let agent_bundle = match result.agent_bundle.as_str() {
        "" => None,
        text => Some(text.parse::<Digest>().map_err(|error| malformed(step, &error.to_string()))?),
    };
    let value = json!({
        "base_url": base_url, "kernel": result.kernel, "ramdisk": result.ramdisk, "agent_bundle": agent_bundle,
    });
    record.plan.boot = Some(Boot { base_url, agent_bundle });
    Ok(Some(value))
}

fn disk_erased(record: &mut Record, bytes: &[u8]) -> Result<Option<Value>, ApiErrorBody> {
    let erased: wire::DiskEraseResult = decode(Step::DiskErase, bytes)?;
    record.plan.erased = Some(only(&erased));
    Ok(Some(json!({"path": erased.path, "size_bytes": erased.size_bytes, "method": erased.method})))
}

/// A hint that only this disk fits. Its kernel name is the last resort: another boot may give it to another disk.
fn only(erased: &wire::DiskEraseResult) -> DiskHint {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let (serial, wwid) = (some(&erased.serial), some(&erased.wwid));
    let nameless = serial.is_some() || wwid.is_some();
    let name = if nameless { None } else { erased.path.rsplit('/').next().and_then(some) };
    DiskHint { name, serial, wwid, min_size_bytes: None }
}

fn image_deployed(record: &mut Record, bytes: &[u8]) -> Result<Option<Value>, ApiErrorBody> {
    let step = Step::ImageDeploy;
    let result: wire::ImageDeployResult = decode(step, bytes)?;
    if result.digest.parse::<Digest>() != Ok(record.run.image_digest) {
        let message = format!("the ramdisk wrote {}, not {}", result.digest, record.run.image_digest);
        return Err(failure("digest_mismatch", message));
    }
    if result.path.len() > MAX_TEXT {
        return Err(malformed(step, "path is too long"));
    }
    let evidence = &mut record.run.evidence;
    evidence.insert("bytes_read".to_owned(), json!(result.bytes_read));
    evidence.insert("bytes_written".to_owned(), json!(result.bytes_written));
    record.plan.disk_path.clone_from(&result.path);
    Ok(Some(json!({
        "path": result.path, "format": result.format, "digest": result.digest, "bytes_read": result.bytes_read,
        "bytes_written": result.bytes_written, "duration_ms": result.duration_ms,
    })))
}

/// Takes what the join in a role has shown as evidence.
pub(super) fn joined(record: &mut Record, role: Role, node: &nodes::Record) -> Value {
    let node = &node.node;
    let pcrs: BTreeMap<String, &String> = node.pcrs.iter().map(|(pcr, hex)| (pcr.to_string(), hex)).collect();
    let evidence = &mut record.run.evidence;
    evidence.insert("node_id".to_owned(), json!(node.id));
    evidence.insert("ek_fingerprint".to_owned(), json!(node.ek_fingerprint));
    evidence.insert(format!("{}_pcrs", role.as_str()), json!(pcrs));
    evidence.insert(format!("{}_proof", role.as_str()), json!(node.proof));
    json!({"node": node.id, "boot_id": node.boot_id, "proof": node.proof})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_erased_disk_is_known_by_what_outlasts_a_reboot() {
        let erased = |serial: &str, wwid: &str| wire::DiskEraseResult {
            path: "/dev/nvme0n1".into(),
            serial: serial.into(),
            wwid: wwid.into(),
            ..wire::DiskEraseResult::default()
        };
        let both = only(&erased("S1", "eui.1"));
        assert_eq!(
            (both.name, both.serial.as_deref(), both.wwid.as_deref()),
            (None, Some("S1"), Some("eui.1"))
        );
        let neither = only(&erased("", ""));
        assert_eq!((neither.name.as_deref(), neither.serial, neither.wwid), (Some("nvme0n1"), None, None));
    }
}
