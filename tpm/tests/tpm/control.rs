//! Control's side of a join, as far as this crate has it, with messages as bytes between the two.

use std::time::{SystemTime, UNIX_EPOCH};

use ironwright_proto::{
    Message,
    wire::{JoinBegin, JoinChallenge, JoinClaim, JoinFinish},
};
use ironwright_tpm::{
    device::{DeviceError, JoinMaterial, Tpm},
    join::{self, Secret},
    verify::{Attested, CheckedBegin, EkRoots, VerifyError, check_begin, check_quote, make_credential},
};

/// PCR 0 to 9: more than a TPM reads at once.
pub(crate) const MASK: u32 = 0x3ff;

/// What control keeps between the rounds.
pub(crate) struct Pending {
    pub(crate) checked: CheckedBegin,
    pub(crate) secret: Secret,
    pub(crate) challenge: JoinChallenge,
    pub(crate) transcript: [u8; 32],
}

pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(since.as_secs()).expect("before the end of time")
}

pub(crate) fn begin(material: &JoinMaterial) -> JoinBegin {
    material.clone().into_begin([7; 32], JoinClaim { machine_id: "web-1".into(), ..JoinClaim::default() })
}

pub(crate) fn check(material: &JoinMaterial, roots: &EkRoots) -> Result<CheckedBegin, VerifyError> {
    check_begin(&begin(material), roots, now())
}

/// Answers the first round with a challenge for the attestation key named `ak_name`.
pub(crate) fn challenge_for(material: &JoinMaterial, roots: &EkRoots, ak_name: Option<&[u8]>) -> Pending {
    let request = begin(material).encode_to_vec();
    let received = JoinBegin::decode(request.as_slice()).expect("what was encoded");
    let checked = check_begin(&received, roots, now()).expect("an honest machine");
    let mut rng = rand::thread_rng();
    let secret = Secret::random(&mut rng);
    let name = ak_name.unwrap_or(&checked.ak_name);
    let (credential_blob, encrypted_secret) =
        make_credential(&checked.ek, name, &secret, &mut rng).expect("a checked key");
    let challenge = JoinChallenge {
        join_id: rand::random::<[u8; 16]>().to_vec(),
        credential_blob,
        encrypted_secret,
        quote_nonce: rand::random::<[u8; 32]>().to_vec(),
        pcr_bank: 0x000b,
        pcr_mask: MASK,
        expires_in_s: 60,
    };
    let transcript = join::transcript(&request, &challenge.encode_to_vec());
    Pending { checked, secret, challenge, transcript }
}

pub(crate) fn challenge(material: &JoinMaterial, roots: &EkRoots) -> Pending {
    challenge_for(material, roots, None)
}

/// The machine's second round.
pub(crate) fn answer(
    tpm: &mut Tpm,
    material: &JoinMaterial,
    pending: &Pending,
) -> Result<JoinFinish, DeviceError> {
    let challenge = &pending.challenge;
    let secret = tpm.activate(&challenge.credential_blob, &challenge.encrypted_secret)?;
    let quote = tpm.quote(&material_extra(material, challenge), challenge.pcr_mask)?;
    Ok(JoinFinish {
        join_id: challenge.join_id.clone(),
        proof: join::proof(&secret, &pending.transcript).to_vec(),
        quote_attest: quote.attest,
        quote_sig: quote.signature,
        pcr_values: quote.pcr_values,
        event_log: Vec::new(),
    })
}

fn material_extra(material: &JoinMaterial, challenge: &JoinChallenge) -> [u8; 32] {
    material.quote_extra(&id(challenge), &nonce(challenge))
}

/// Control's checks of the second round: proof first, then the quote.
pub(crate) fn finish(pending: &Pending, finish: &JoinFinish) -> Result<Attested, VerifyError> {
    assert!(
        join::proof_is_valid(&pending.secret, &pending.transcript, &finish.proof),
        "the proof is not valid"
    );
    let checked = &pending.checked;
    let extra = join::quote_extra(
        &id(&pending.challenge),
        &nonce(&pending.challenge),
        &checked.ak_name,
        &checked.node_name,
        &checked.csr_sha256,
    );
    check_quote(&checked.ak_pub, &extra, pending.challenge.pcr_mask, finish)
}

fn id(challenge: &JoinChallenge) -> [u8; 16] {
    challenge.join_id.as_slice().try_into().expect("a join id")
}

fn nonce(challenge: &JoinChallenge) -> [u8; 32] {
    challenge.quote_nonce.as_slice().try_into().expect("a nonce")
}
