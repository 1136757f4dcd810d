//! Joining by a software TPM, and a session under the key inside it.

#[allow(dead_code, reason = "the TPM's own tests need more of it")]
#[path = "../../../tpm/tests/tpm/swtpm.rs"]
mod swtpm;

use ironwright_agent::{Identity, JoinError, KeySource, link::JournalPlace};
use ironwright_proto::{
    Message,
    kinds::Role,
    wire::{CommandState, JoinBegin, JoinChallenge, JoinFinish},
};
use ironwright_tpm::{
    join::{Secret, proof_is_valid, quote_extra, transcript},
    verify::{CheckedBegin, EkRoots, check_begin, check_quote, make_credential},
};
use swtpm::Manufacturer;

use crate::{
    control::{Control, JoinAnswer},
    rig::{Agent, Held, join_config, order},
};

const MASK: u32 = 0xff;

/// Control's half of one join by TPM.
pub(crate) struct Pending {
    csr_der: Vec<u8>,
    checked: CheckedBegin,
    secret: Secret,
    challenge: JoinChallenge,
    transcript: [u8; 32],
}

impl Pending {
    /// Takes the first round's body; the second is the answer's.
    pub(crate) fn begin(body: &[u8], roots: &EkRoots) -> (Self, Vec<u8>) {
        let begin = JoinBegin::decode(body).unwrap();
        assert_eq!(begin.claim.as_ref().unwrap().machine_id, "web-1");
        let checked = check_begin(&begin, roots, now()).unwrap();
        let mut rng = rand::thread_rng();
        let secret = Secret::random(&mut rng);
        let (credential_blob, encrypted_secret) =
            make_credential(&checked.ek, &checked.ak_name, &secret, &mut rng).unwrap();
        let challenge = JoinChallenge {
            join_id: vec![3; 16],
            credential_blob,
            encrypted_secret,
            quote_nonce: vec![4; 32],
            pcr_bank: 0x000b,
            pcr_mask: MASK,
            expires_in_s: 60,
        };
        let answer = challenge.encode_to_vec();
        let transcript = transcript(body, &answer);
        (Self { csr_der: begin.csr_der, checked, secret, challenge, transcript }, answer)
    }

    /// Checks the second round; the request that may be certified.
    pub(crate) fn finish(&self, finish: &JoinFinish) -> Vec<u8> {
        assert_eq!(finish.join_id, self.challenge.join_id);
        assert!(proof_is_valid(&self.secret, &self.transcript, &finish.proof));
        let (ak, node) = (&self.checked.ak_name, &self.checked.node_name);
        let extra = quote_extra(&[3; 16], &[4; 32], ak, node, &self.checked.csr_sha256);
        let attested = check_quote(&self.checked.ak_pub, &extra, MASK, finish).unwrap();
        assert_eq!(attested.pcrs.len(), 8);
        self.csr_der.clone()
    }
}

fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_secs()).unwrap()
}

#[tokio::test]
async fn a_tpm_joins_in_two_rounds_and_its_key_opens_the_session() {
    let maker = Manufacturer::new();
    let swtpm = maker.make();
    let mut control = Control::start().await;
    *control.shared.ek_roots.lock().unwrap() = Some(maker.roots());
    let config = join_config(&control, KeySource::Tpm { tcti: swtpm.tcti() });
    let identity = Identity::join(&config).await.unwrap();

    let _agent = Agent::start_as(identity, Role::Ramdisk, JournalPlace::Memory, Held::new(1));
    let mut peer = control.session().await;
    peer.welcome().await;
    peer.order(order("c1")).await;
    assert_eq!(peer.update().await.state(), CommandState::Running);
    assert_eq!(peer.update().await.state(), CommandState::Succeeded);
}

#[tokio::test]
async fn a_tpm_that_is_not_there_is_named() {
    let control = Control::start().await;
    let config = join_config(&control, KeySource::Tpm { tcti: "device:/dev/ironwright-none".into() });
    assert!(matches!(Identity::join(&config).await, Err(JoinError::Tpm(_))));
}

#[tokio::test]
async fn a_refused_tpm_join_keeps_its_code() {
    let maker = Manufacturer::new();
    let swtpm = maker.make();
    let control = Control::start().await;
    *control.shared.ek_roots.lock().unwrap() = Some(maker.roots());
    *control.shared.join.lock().unwrap() = JoinAnswer::Refuse("ek_mismatch");
    let config = join_config(&control, KeySource::Tpm { tcti: swtpm.tcti() });
    assert_eq!(Identity::join(&config).await.unwrap_err().refusal(), Some("ek_mismatch"));
}
