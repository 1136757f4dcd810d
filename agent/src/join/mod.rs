//! Joining: from a claim and a key to an [`Identity`].
//!
//! ```text
//!              TPM                                token
//!  Begin ─► JoinChallenge ─► Finish          WithToken
//!                              └──► JoinGrant ◄──┘ ─► checked against key and pin ─► Identity
//! ```

mod retry;
mod tpm;

pub use retry::{Retry, join_until};

use std::{future::Future, path::PathBuf, sync::Arc, time::Duration};

use ironwright_proto::{
    ids::Digest,
    wire::{JoinClaim, JoinGrant, TokenJoin, join_client::JoinClient},
};
use tonic::{Code, Status, transport::Channel};

use crate::{
    channel::{self, ConnectError},
    identity::{GrantError, Identity},
    keys::{KeyError, NodeSigner, SoftKey, certificate_request},
    tls::{PinnedCa, Times, anonymous_client},
};

/// One call of the join service may take this long.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Refusal codes are snake_case words; anything longer is none.
const MAX_CODE: usize = 64;
const VERSION: u32 = 1;

/// File names in the folder of [`KeySource::Dir`].
const KEY_FILE: &str = "node-key.pem";
const IDENTITY_FILE: &str = "identity.pb";

/// How to join.
#[derive(Clone)]
pub struct JoinConfig {
    /// `https://host:port` of control's API.
    pub control_url: String,
    /// SHA-256 of the DER of control's CA certificate.
    pub ca_pin: Digest,
    /// What this machine says of itself, with the join token where there is one.
    pub claim: JoinClaim,
    /// Where the node key is.
    pub key: KeySource,
}

/// Where the node key is, and with it the way to join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// In the TPM behind this TCTI (`device:/dev/tpmrm0`): a fresh key and a join in two rounds at every
    /// start.
    Tpm {
        /// Where the TPM is.
        tcti: String,
    },
    /// No TPM, nothing kept: a fresh key and a join by token at every start.
    Memory,
    /// No TPM: key and certificate are kept in this folder; a token is needed only where they are missing
    /// or no longer valid.
    Dir(PathBuf),
}

/// Claims carry tokens, so only the address is shown.
impl std::fmt::Debug for JoinConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "JoinConfig({} as {} with {:?})", self.control_url, self.claim.role, self.key)
    }
}

/// Why this agent has not joined.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// No connection.
    #[error("reaching control to join")]
    Connect(#[from] ConnectError),
    /// Control said no. The codes are listed in decision 0001.
    #[error("control refused the join: {code}")]
    Refused {
        /// `unknown_machine`, `token_used`, `ek_mismatch`, …
        code: String,
    },
    /// The call failed otherwise.
    #[error("calling {call} of control")]
    Call {
        /// The gRPC method.
        call: &'static str,
        /// The cause.
        source: Box<Status>,
    },
    /// No answer in time.
    #[error("{call} of control took longer than {} s", CALL_TIMEOUT.as_secs())]
    Timeout {
        /// The gRPC method.
        call: &'static str,
    },
    /// The answer is not usable.
    #[error("using the certificate that control granted")]
    Grant(#[from] GrantError),
    /// The first round's answer is not usable.
    #[error("control's challenge has a malformed {0}")]
    Challenge(&'static str),
    /// The TPM.
    #[error("joining by TPM")]
    Tpm(#[source] Box<ironwright_tpm::device::DeviceError>),
    /// The node key.
    #[error("preparing the node key")]
    Key(#[from] KeyError),
    /// A blocking task was lost.
    #[error("the join was interrupted")]
    Interrupted,
}

impl JoinError {
    /// The stable code of a refusal.
    pub fn refusal(&self) -> Option<&str> {
        match self {
            Self::Refused { code } => Some(code),
            _ => None,
        }
    }
}

impl Identity {
    /// Joins once. With [`KeySource::Dir`], an identity that is still valid is used again without asking
    /// control. See [`join_until`] for joining that does not give up.
    pub async fn join(config: &JoinConfig) -> Result<Self, JoinError> {
        match &config.key {
            KeySource::Tpm { tcti } => tpm::join(config, tcti).await,
            KeySource::Memory => {
                let key: Arc<dyn NodeSigner> = Arc::new(SoftKey::generate()?);
                join_by_token(config, key, None).await
            }
            KeySource::Dir(dir) => {
                let key: Arc<dyn NodeSigner> = Arc::new(SoftKey::load_or_create(&dir.join(KEY_FILE))?);
                let file = dir.join(IDENTITY_FILE);
                match Self::stored(&file, &key, config.ca_pin, std::time::SystemTime::now())? {
                    Some(identity) => Ok(identity),
                    None => join_by_token(config, key, Some(file)).await,
                }
            }
        }
    }

    /// Forgets the stored certificate, so that the next [`Identity::join`] asks control: for a node that
    /// control no longer knows.
    pub fn forget(config: &JoinConfig) -> std::io::Result<()> {
        let KeySource::Dir(dir) = &config.key else { return Ok(()) };
        match std::fs::remove_file(dir.join(IDENTITY_FILE)) {
            Err(err) if err.kind() != std::io::ErrorKind::NotFound => Err(err),
            _ => Ok(()),
        }
    }
}

async fn join_by_token(
    config: &JoinConfig,
    key: Arc<dyn NodeSigner>,
    file: Option<PathBuf>,
) -> Result<Identity, JoinError> {
    let csr_der = certificate_request(&key)?;
    let mut client = connect(config).await?;
    let request = TokenJoin { version: VERSION, csr_der, claim: Some(config.claim.clone()) };
    let grant: JoinGrant = call("Join.WithToken", client.with_token(request)).await?;
    Ok(Identity::from_grant(&grant, key, config.ca_pin, file)?)
}

async fn connect(config: &JoinConfig) -> Result<JoinClient<Channel>, JoinError> {
    let tls = anonymous_client(PinnedCa::new(config.ca_pin, Times::Checked));
    Ok(JoinClient::new(channel::open(&config.control_url, tls).await?))
}

/// Awaits one call, within its time, and sorts refusals from failures.
async fn call<T>(
    name: &'static str,
    answer: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> Result<T, JoinError> {
    match tokio::time::timeout(CALL_TIMEOUT, answer).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(refusal(name, status)),
        Err(_) => Err(JoinError::Timeout { call: name }),
    }
}

fn refusal(call: &'static str, status: Status) -> JoinError {
    let code = status.message();
    let is_code = (1..=MAX_CODE).contains(&code.len())
        && code.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    match status.code() {
        Code::PermissionDenied if is_code => JoinError::Refused { code: code.to_owned() },
        Code::PermissionDenied => JoinError::Refused { code: "join_refused".to_owned() },
        _ => JoinError::Call { call, source: Box::new(status) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_keep_their_code_and_only_a_code() {
        let refused = |status: Status| refusal("Join.Begin", status);
        assert_eq!(refused(Status::permission_denied("token_used")).refusal(), Some("token_used"));
        assert_eq!(refused(Status::permission_denied("join refused")).refusal(), Some("join_refused"));
        assert_eq!(refused(Status::permission_denied("x".repeat(65))).refusal(), Some("join_refused"));
        assert!(matches!(refused(Status::unavailable("x")), JoinError::Call { call: "Join.Begin", .. }));
    }

    #[test]
    fn tokens_stay_out_of_debug_output() {
        let claim = JoinClaim { join_token: "s3cret".into(), role: "site".into(), ..JoinClaim::default() };
        let config = JoinConfig {
            control_url: "https://c:1".into(),
            ca_pin: Digest([0; 32]),
            claim,
            key: KeySource::Memory,
        };
        assert_eq!(format!("{config:?}"), "JoinConfig(https://c:1 as site with Memory)");
    }
}
