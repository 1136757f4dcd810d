//! The JSON of control's HTTP API under `/v1`, which is also what control's store keeps.
//!
//! Times are milliseconds since the Unix epoch, sizes are bytes, ids are checked types. Requests refuse
//! unknown fields; answers may gain fields, so clients ignore what they do not know.
//!
//! | method and path | request | answer |
//! |---|---|---|
//! | GET `/v1/status` | – | [`Status`] |
//! | POST, GET `/v1/sites` | [`NewSite`] | [`SiteCreated`], list of [`Site`] |
//! | POST, GET `/v1/machines`, GET `/v1/machines/{id}` | [`NewMachine`] | [`Machine`] |
//! | PATCH `/v1/machines/{id}` | [`MachineChange`] | [`Machine`] |
//! | DELETE `/v1/machines/{id}` | – | the [`Machine`] that it was |
//! | POST, GET `/v1/images`, GET, DELETE `/v1/images/{name}` | [`NewImage`] | [`Image`] |
//! | PUT `/v1/images/{name}/bytes` | the bytes | [`Image`] |
//! | POST `/v1/deploys` | [`NewDeploy`] | [`Run`] |
//! | GET `/v1/runs`, `/v1/runs/{id}` | – | [`Run`] |
//! | GET `/v1/runs/{id}/watch` | – | one [`Run`] as JSON a line, on every change, until it ends |
//! | POST `/v1/runs/{id}/cancel` | – | [`Run`] |
//! | GET `/v1/nodes`, `/v1/nodes/{id}` | – | [`Node`] |
//! | GET `/v1/events?after=SEQ&limit=N` | – | list of [`AuditEvent`] |
//!
//! Every route needs `Authorization: Bearer <admin token>`. Errors are [`ApiError`] with a fitting status.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::{Digest, Mac, Name};

/// Body of every answer that is not a success: `{"error": {...}}`.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct ApiError {
    /// The particulars.
    pub error: ApiErrorBody,
}

/// What went wrong.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct ApiErrorBody {
    /// Stable and snake_case: `unknown_image`, `unknown_machine`, `bad_request`, `unauthorized`, …
    pub code: String,
    /// For people: what was being done, to what, what to do next.
    pub message: String,
    /// The field of the request that is at fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

/// GET `/v1/status`.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct Status {
    /// Version of control.
    pub version: String,
    /// `sha256:` of the CA certificate's DER; agents and clients pin it.
    pub ca_pin: Digest,
    /// Sessions open now.
    pub sessions: u64,
    /// Runs that have not ended.
    pub active_runs: u64,
}

/// POST `/v1/sites`.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct NewSite {
    /// Name of the site.
    pub name: Name,
}

/// Answer to [`NewSite`]: the only time the token is shown.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct SiteCreated {
    /// The site.
    pub site: Site,
    /// One-use token with which a site agent joins; a new one replaces it.
    pub join_token: String,
}

/// A place with one active site agent.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct Site {
    /// Name of the site.
    pub name: Name,
    /// Lease epoch; 0 while no agent ever held the lease.
    pub lease_epoch: u64,
    /// Node that holds the lease.
    pub holder: Option<String>,
    /// End of the lease.
    pub lease_until_ms: i64,
    /// Base URL of the site's boot HTTP.
    #[serde(default)]
    pub address: Option<String>,
}

/// Which disk an image goes to. Every given field must match; all empty means the smallest disk of at
/// least 4 GiB that holds the image, and no choice at all where two disks fit equally well.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct DiskHint {
    /// Kernel name: `nvme0n1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Serial number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// World wide id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wwid: Option<String>,
    /// Smallest size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_size_bytes: Option<u64>,
}

/// POST `/v1/machines`.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct NewMachine {
    /// Id of the machine, and host name of the node.
    pub id: Name,
    /// The interface that boots.
    pub mac: Mac,
    /// SMBIOS system UUID.
    #[serde(default)]
    pub product_uuid: Option<String>,
    /// Site that serves it; the only site where absent.
    #[serde(default)]
    pub site: Option<Name>,
    /// May join by token alone. For machines that have no TPM.
    #[serde(default)]
    pub allow_no_tpm: bool,
}

/// PATCH `/v1/machines/{id}`: what is absent stays as it is.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct MachineChange {
    /// The interface that boots. Not while a run has the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// SMBIOS system UUID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product_uuid: Option<String>,
    /// Site that serves it. Not while a run has the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<Name>,
    /// May join by token alone, where it is not bound to a TPM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_no_tpm: Option<bool>,
    /// Unbind it from its TPM, which no longer is in it: the next join with a token binds the one that it then has. Not
    /// while a run has the machine.
    #[serde(default)]
    pub forget_tpm: bool,
}

/// A machine that an operator enrolled.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct Machine {
    /// Id of the machine.
    pub id: Name,
    /// The interface that boots.
    pub mac: Mac,
    /// SMBIOS system UUID.
    pub product_uuid: Option<String>,
    /// Site that serves it.
    pub site: Option<Name>,
    /// May join by token alone.
    pub allow_no_tpm: bool,
    /// `sha256:` of the EK public key this machine joined with. Set once; only
    /// [`MachineChange::forget_tpm`] clears it.
    pub ek_fingerprint: Option<Digest>,
    /// Node of this machine.
    pub node_id: Option<String>,
    /// Newest inventory, as [`crate::wire::Inventory`] in JSON.
    pub inventory: Option<Value>,
    /// When it was enrolled.
    pub created_ms: i64,
}

/// POST `/v1/images`: control fetches the URL and computes the digest.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct NewImage {
    /// Name of the image.
    pub name: Name,
    /// `http://` or `https://` URL, or a `file:///` URL below the image folder that control's config names.
    pub url: String,
    /// Refuse the bytes if they have another digest.
    #[serde(default)]
    pub digest: Option<Digest>,
}

/// State of an [`Image`].
#[derive(Debug, Clone, Copy, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum ImageState {
    /// Being fetched.
    Fetching,
    /// Its digest is known and control has its bytes.
    Ready,
    /// See `error`.
    Failed,
    /// Of a newer control.
    #[serde(other)]
    Unknown,
}

/// A disk image known by the digest of its bytes.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct Image {
    /// Name of the image.
    pub name: Name,
    /// Where its bytes came from; `upload` for uploaded ones.
    pub source: String,
    /// State of the image.
    pub state: ImageState,
    /// Digest of the bytes as they were given.
    pub digest: Option<Digest>,
    /// Size of the bytes as they were given.
    pub size_bytes: u64,
    /// Size after decoding.
    pub raw_size_bytes: u64,
    /// `raw`, `gzip` or `zstd`, recognised by content.
    pub format: Option<String>,
    /// Bytes fetched so far, while `Fetching`.
    pub fetched_bytes: u64,
    /// Why it failed.
    pub error: Option<ApiErrorBody>,
    /// When it was registered.
    pub created_ms: i64,
}

/// POST `/v1/deploys`.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct NewDeploy {
    /// Machine to deploy.
    pub machine: Name,
    /// Image to deploy.
    pub image: Name,
    /// NoCloud user-data, as given by the operator.
    #[serde(default)]
    pub user_data: Option<String>,
    /// Which disk.
    #[serde(default)]
    pub disk: DiskHint,
    /// Words added to the ramdisk's kernel command line, e.g. `console=ttyS1`.
    #[serde(default)]
    pub extra_cmdline: String,
    /// Erase the machine also where it is a node: where an operating system was the last that was heard of it.
    #[serde(default)]
    pub replace: bool,
}

/// State of a [`Run`] or a [`Step`].
#[derive(Debug, Clone, Copy, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Not begun.
    Pending,
    /// Begun.
    Running,
    /// Ended well.
    Succeeded,
    /// Ended with an error.
    Failed,
    /// Ended by a person.
    Cancelled,
    /// Of a newer control.
    #[serde(other)]
    Unknown,
}

impl RunState {
    /// Nothing will change any more.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}

/// What `POST /v1/nodes/{id}/commands` takes: an order that a person gives to one node.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct NewCommand {
    /// `inventory.collect` or `node.reboot`.
    pub kind: String,
    /// Not to be run again where the agent crashes in the middle, even if that would do no harm.
    #[serde(default)]
    pub at_most_once: bool,
    /// It fails if it has not been started within so many seconds.
    #[serde(default = "default_within_s")]
    pub within_s: u32,
}

const fn default_within_s() -> u32 {
    600
}

/// State of a [`Command`].
#[derive(Debug, Clone, Copy, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum CommandState {
    /// It waits for the node.
    Queued,
    /// It is on its way.
    Sent,
    /// The agent has it.
    Running,
    /// Ended well.
    Succeeded,
    /// Ended with an error.
    Failed,
    /// The agent did not begin it.
    Refused,
    /// Of a newer control.
    #[serde(other)]
    Unknown,
}

/// An order to one node.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct Command {
    /// Id of the command.
    pub id: String,
    /// The node that runs it.
    pub node: String,
    /// What it is.
    pub kind: String,
    /// State of the command.
    pub state: CommandState,
    /// Of one that succeeded: `rebooted`, or nothing.
    pub outcome: String,
    /// Of one that failed or was refused.
    pub error: Option<ApiErrorBody>,
}

/// A durable workflow.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct Run {
    /// Id of the run.
    pub id: String,
    /// `deploy`.
    pub kind: String,
    /// Machine it is about.
    pub machine: Name,
    /// Image that is deployed.
    pub image: Name,
    /// Digest of the image when the run was started; later changes of the name do not matter.
    pub image_digest: Digest,
    /// State of the run.
    pub state: RunState,
    /// All steps, in order.
    pub steps: Vec<Step>,
    /// Who asked.
    pub requested_by: String,
    /// When it was asked for.
    pub created_ms: i64,
    /// When it ended.
    pub ended_ms: Option<i64>,
    /// Why it failed.
    pub error: Option<ApiErrorBody>,
    /// Facts that prove what was done: digests, PCRs, node id, timings.
    pub evidence: BTreeMap<String, Value>,
    /// Grows with every change.
    pub version: u64,
}

/// One step of a [`Run`].
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct Step {
    /// `boot.prepare`, `ramdisk.join`, `inventory.collect`, `disk.erase`, `image.deploy`, `boot.finish`,
    /// `boot.local`, `node.reboot`, `node.join`.
    pub name: String,
    /// State of the step.
    pub state: RunState,
    /// Command that carries it out, where one does.
    pub command_id: Option<String>,
    /// When it began.
    pub started_ms: Option<i64>,
    /// When it ended.
    pub ended_ms: Option<i64>,
    /// What it waits for, in words: "waiting for 52:54:… to network boot".
    pub waiting_for: Option<String>,
    /// Newest progress; kept in memory only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// Result in JSON.
    pub result: Option<Value>,
    /// Why it failed.
    pub error: Option<ApiErrorBody>,
}

/// How far a step is.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct Progress {
    /// `fetch`, `write`, `verify`, …
    pub phase: String,
    /// Done so far.
    pub done: u64,
    /// Of this many; 0 if unknown.
    pub total: u64,
}

/// State of a [`Node`].
#[derive(Debug, Clone, Copy, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// Joined; its operating system has not opened a session yet.
    Joined,
    /// Its operating system (or the site agent) has opened a session.
    Active,
    /// No frame for longer than the liveness limit.
    Unreachable,
    /// Of a newer control.
    #[serde(other)]
    Unknown,
}

/// The joined identity of a machine or a site agent.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct Node {
    /// Id of the node.
    pub id: String,
    /// Machine it is, or `None` for a site agent.
    pub machine: Option<Name>,
    /// Site it serves, for a site agent.
    pub site: Option<Name>,
    /// Role of its newest session.
    pub role: String,
    /// State of the node.
    pub state: NodeState,
    /// A session is open now.
    pub connected: bool,
    /// Epoch of its newest session.
    pub session_epoch: u64,
    /// Boot id of its newest session.
    pub boot_id: Option<String>,
    /// Version of its agent.
    pub agent_version: Option<String>,
    /// How it proved itself: `tpm` or `token`.
    pub proof: String,
    /// `sha256:` of the EK public key.
    pub ek_fingerprint: Option<Digest>,
    /// PCRs 0–7 of the newest quote: index to hexadecimal SHA-256.
    pub pcrs: BTreeMap<u8, String>,
    /// When it first joined.
    pub joined_ms: i64,
    /// When its state last changed.
    pub changed_ms: i64,
}

/// An entry of the audit log. `hash` = SHA-256 over `prev_hash` and the entry's other fields, in hexadecimal.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct AuditEvent {
    /// 1, 2, 3, … without gaps.
    pub seq: u64,
    /// When.
    pub at_ms: i64,
    /// Person, node or `control`.
    pub actor: String,
    /// `machine.added`, `run.started`, `node.joined`, `join.refused`, …
    pub action: String,
    /// What it was done to.
    pub subject: String,
    /// Particulars.
    pub detail: Value,
    /// Hash of the entry before; 64 zeros for the first.
    pub prev_hash: String,
    /// Hash of this entry.
    pub hash: String,
}
