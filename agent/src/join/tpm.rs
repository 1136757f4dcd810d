//! Joining by TPM: the two rounds, with the device's part on a blocking thread.
//!
//! ```text
//!  begin_join ─► Begin ─► JoinChallenge ─► activate, quote ─► Finish ─► JoinGrant
//! ```
//! One challenge is answered per `begin_join`, so that the TPM is no oracle for whoever answers Begin.

use std::sync::Arc;

use ironwright_proto::{
    Message,
    wire::{JoinBegin, JoinChallenge, JoinClaim, JoinFinish, JoinGrant, JoinRound},
};
use ironwright_tpm::{
    device::{DeviceError, JoinMaterial, NodeKey, Tpm},
    join::{proof, transcript},
};
use rand::RngCore;

use super::{JoinConfig, JoinError, call, connect};
use crate::{
    identity::Identity,
    keys::{KeyError, NodeSigner},
};

/// TPM_ALG_SHA256 (TCG Algorithm Registry).
const SHA256_BANK: u32 = 0x000b;
/// Control refuses a longer event log.
const MAX_EVENT_LOG: u64 = 1 << 20;
const EVENT_LOG: &str = "/sys/kernel/security/tpm0/binary_bios_measurements";

/// A join's device and the key that it made.
struct Begun {
    tpm: Tpm,
    material: JoinMaterial,
}

pub(super) async fn join(config: &JoinConfig, tcti: &str) -> Result<Identity, JoinError> {
    let mut client = connect(config).await?;
    let tcti = tcti.to_owned();
    let begun = blocking(move || begin(&tcti)).await?;

    let request = begin_message(&begun.material, config.claim.clone()).encode_to_vec();
    let answer = call("Join.Begin", client.begin(JoinRound { body: request.clone() })).await?.body;
    let challenge = Challenge::check(&answer)?;
    let transcript = transcript(&request, &answer);

    let (key, finish) = blocking(move || answer_challenge(begun, &challenge, &transcript)).await?;
    let grant: JoinGrant = call("Join.Finish", client.finish(finish)).await?;
    Ok(Identity::from_grant(&grant, key, config.ca_pin, None)?)
}

/// TPM commands take up to seconds on hardware, so they stay off the async threads.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, DeviceError> + Send + 'static,
) -> Result<T, JoinError> {
    let done = tokio::task::spawn_blocking(work).await.map_err(|_| JoinError::Interrupted)?;
    done.map_err(|err| JoinError::Tpm(Box::new(err)))
}

fn begin(tcti: &str) -> Result<Begun, DeviceError> {
    let mut tpm = Tpm::open(tcti)?;
    let material = tpm.begin_join()?;
    Ok(Begun { tpm, material })
}

fn begin_message(material: &JoinMaterial, claim: JoinClaim) -> JoinBegin {
    let mut agent_nonce = [0; 32];
    rand::rngs::OsRng.fill_bytes(&mut agent_nonce);
    material.clone().into_begin(agent_nonce, claim)
}

/// A checked [`JoinChallenge`].
struct Challenge {
    join_id: [u8; 16],
    nonce: [u8; 32],
    credential_blob: Vec<u8>,
    encrypted_secret: Vec<u8>,
    mask: u32,
}

impl Challenge {
    fn check(answer: &[u8]) -> Result<Self, JoinError> {
        let malformed = JoinError::Challenge;
        let challenge = JoinChallenge::decode(answer).map_err(|_| malformed("message"))?;
        if challenge.pcr_bank != SHA256_BANK {
            return Err(malformed("pcr_bank"));
        }
        Ok(Self {
            join_id: challenge.join_id.try_into().map_err(|_| malformed("join_id"))?,
            nonce: challenge.quote_nonce.try_into().map_err(|_| malformed("quote_nonce"))?,
            credential_blob: challenge.credential_blob,
            encrypted_secret: challenge.encrypted_secret,
            mask: challenge.pcr_mask,
        })
    }
}

fn answer_challenge(
    begun: Begun,
    challenge: &Challenge,
    transcript: &[u8; 32],
) -> Result<(Arc<dyn NodeSigner>, JoinFinish), DeviceError> {
    let Begun { mut tpm, material } = begun;
    let secret = tpm.activate(&challenge.credential_blob, &challenge.encrypted_secret)?;
    let extra = material.quote_extra(&challenge.join_id, &challenge.nonce);
    let quote = tpm.quote(&extra, challenge.mask)?;
    let finish = JoinFinish {
        join_id: challenge.join_id.to_vec(),
        proof: proof(&secret, transcript).to_vec(),
        quote_attest: quote.attest,
        quote_sig: quote.signature,
        pcr_values: quote.pcr_values,
        event_log: event_log(),
    };
    Ok((Arc::new(TpmKey(tpm.node_key()?)), finish))
}

/// The firmware's event log; empty where it gave none, or one that control would not take.
fn event_log() -> Vec<u8> {
    let mut log = Vec::new();
    let read = std::fs::File::open(EVENT_LOG).and_then(|file| {
        std::io::Read::read_to_end(&mut std::io::Read::take(file, MAX_EVENT_LOG + 1), &mut log)
    });
    match read {
        Ok(bytes) if bytes as u64 <= MAX_EVENT_LOG => log,
        Ok(_) => {
            tracing::warn!("the firmware's event log is larger than 1 MiB and is left out");
            Vec::new()
        }
        Err(err) => {
            tracing::debug!(%err, "no firmware event log");
            Vec::new()
        }
    }
}

/// The node key in the TPM.
#[derive(Debug)]
struct TpmKey(Arc<NodeKey>);

impl NodeSigner for TpmKey {
    fn public_point(&self) -> &[u8] {
        rcgen::PublicKeyData::der_bytes(&*self.0)
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        self.0.sign(message).map_err(|err| KeyError::Sign(err.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_checked_before_the_tpm_sees_them() {
        let good = JoinChallenge {
            join_id: vec![1; 16],
            quote_nonce: vec![2; 32],
            pcr_bank: SHA256_BANK,
            pcr_mask: 0xff,
            ..JoinChallenge::default()
        };
        let field = |challenge: JoinChallenge| match Challenge::check(&challenge.encode_to_vec()) {
            Err(JoinError::Challenge(field)) => field,
            _ => "",
        };
        assert_eq!(field(good.clone()), "");
        assert_eq!(field(JoinChallenge { join_id: vec![1; 15], ..good.clone() }), "join_id");
        assert_eq!(field(JoinChallenge { quote_nonce: vec![], ..good.clone() }), "quote_nonce");
        assert_eq!(field(JoinChallenge { pcr_bank: 4, ..good }), "pcr_bank");
        assert!(matches!(Challenge::check(&[0xff]), Err(JoinError::Challenge("message"))));
    }
}
