//! Both rounds, with a TPM whose keys the test holds. What the TPM itself would open is read from the stored row.

use ironwright_proto::{
    api::{NewMachine, NewSite},
    wire::JoinBegin,
};
use ironwright_tpm::{
    join::proof,
    verify::{EkPublic, TpmModel},
};
use p256::{
    ecdsa::{Signature, SigningKey, signature::Signer},
    pkcs8::EncodePublicKey,
};
use rand::{SeedableRng, rngs::StdRng};
use sha2::{Digest as _, Sha256};

use super::*;
use crate::{join::token::For, machines, nodes, sites, store::MemStore};

const NOW: i64 = 1_000_000;
const MAC: &str = "52:54:00:12:34:56";

fn sized(bytes: &[u8]) -> Vec<u8> {
    [&u16::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
}

/// The keys of one TPM.
struct SoftTpm {
    ek: SigningKey,
    ak: SigningKey,
    node: SigningKey,
}

impl SoftTpm {
    fn new(seed: u8) -> Self {
        let key = |n: u8| SigningKey::from_slice(&[seed + n; 32]).unwrap();
        Self { ek: key(1), ak: key(2), node: key(3) }
    }

    /// `TPMT_PUBLIC` of the attestation key: ECC, SHA-256, 0x00050472, no policy, ECDSA with SHA-256 on P-256.
    fn ak_pub(&self) -> Vec<u8> {
        let head = [
            0x00, 0x23, 0x00, 0x0b, 0x00, 0x05, 0x04, 0x72, 0x00, 0x00, 0x00, 0x10, 0x00, 0x18, 0x00, 0x0b,
            0x00, 0x03, 0x00, 0x10,
        ];
        let point = self.ak.verifying_key().to_encoded_point(false);
        [&head[..], &sized(point.x().unwrap()), &sized(point.y().unwrap())].concat()
    }

    fn checked(&self) -> CheckedBegin {
        let point = self.ek.verifying_key().to_encoded_point(false);
        let coordinate = |bytes: Option<&p256::FieldBytes>| (*bytes.unwrap()).into();
        let ek = EkPublic::P256 { x: coordinate(point.x()), y: coordinate(point.y()) };
        let ak_pub = self.ak_pub();
        CheckedBegin {
            ek_fingerprint: ek.fingerprint().unwrap(),
            ek,
            model: TpmModel { manufacturer: "id:1014".into(), model: "soft".into(), version: "id:1".into() },
            ak_name: [&[0x00, 0x0b][..], &Sha256::digest(&ak_pub)].concat(),
            ak_pub,
            node_name: [&[0x00, 0x0b][..], &[5; 32]].concat(),
            node_spki_der: self.node.verifying_key().to_public_key_der().unwrap().into_vec(),
            csr_sha256: [6; 32],
        }
    }

    /// A `TPMS_ATTEST` of `TPM2_Quote` over PCRs 0 to 7, all zero, signed by the attestation key.
    fn quote(&self, extra: &[u8; 32]) -> JoinFinish {
        let values = vec![vec![0; 32]; 8];
        let attest = [
            &[0xff, b'T', b'C', b'G', 0x80, 0x18][..],
            &sized(&[0x5a; 34]),
            &sized(extra),
            &[0; 16],
            &[1],
            &[0; 8],
            &[0, 0, 0, 1, 0x00, 0x0b, 3, 0xff, 0, 0],
            &sized(&Sha256::digest(values.concat())),
        ]
        .concat();
        let signature: Signature = self.ak.sign(&attest);
        let (r, s) = signature.split_bytes();
        JoinFinish {
            quote_sig: [&[0x00, 0x18, 0x00, 0x0b][..], &sized(&r), &sized(&s)].concat(),
            quote_attest: attest,
            pcr_values: values,
            ..JoinFinish::default()
        }
    }
}

struct Fixture {
    store: MemStore,
    rng: StdRng,
}

impl Fixture {
    /// One machine that is not bound to a TPM.
    fn new() -> Self {
        let mut fixture = Self { store: MemStore::new(), rng: StdRng::seed_from_u64(5) };
        fixture.tx(|tx| {
            sites::create(tx, "admin", &NewSite { name: "lab".parse().unwrap() })?;
            let (id, mac) = ("web-1".parse().unwrap(), MAC.parse().unwrap());
            machines::create(
                tx,
                "admin",
                &NewMachine { id, mac, product_uuid: None, site: None, allow_no_tpm: false },
            )
        });
        fixture
    }

    fn tx<R>(&mut self, f: impl Fn(&mut Tx<'_>) -> Result<R, Error>) -> R {
        let seed = Seed::draw(&mut self.rng);
        self.store.write(|txn| f(&mut Tx::new(txn, NOW, seed))).unwrap()
    }

    fn claim(&mut self) -> JoinClaim {
        let id = "web-1".parse().unwrap();
        let token = self.tx(|tx| token::mint(tx, For::machine(&id, Role::Node), 1_000_000)).0;
        JoinClaim {
            machine_id: "web-1".into(),
            role: "node".into(),
            join_token: token,
            mac: MAC.into(),
            ..JoinClaim::default()
        }
    }

    /// Round 1, and what this TPM answers to its challenge.
    fn begin(&mut self, tpm: &SoftTpm, claim: &JoinClaim) -> JoinFinish {
        let checked = tpm.checked();
        let answer = challenge(&self.store, b"request", claim, &checked, NOW, &mut self.rng).unwrap();
        let challenge = JoinChallenge::decode(answer.as_slice()).unwrap();
        assert_eq!((challenge.pcr_bank, challenge.pcr_mask, challenge.expires_in_s), (0x0b, 0xff, 120));
        let join_id: [u8; 16] = challenge.join_id.clone().try_into().unwrap();
        let nonce: [u8; 32] = challenge.quote_nonce.clone().try_into().unwrap();
        let extra = quote_extra(&join_id, &nonce, &checked.ak_name, &checked.node_name, &checked.csr_sha256);
        let secret = self.stored_secret(&join_id);
        JoinFinish {
            join_id: challenge.join_id,
            proof: proof(&secret, &transcript(b"request", &answer)).to_vec(),
            ..tpm.quote(&extra)
        }
    }

    fn stored_secret(&self, join_id: &[u8]) -> Secret {
        let key = format!("join/{}", hex::encode(join_id));
        let row = self.store.read::<_, Error>(|txn| Ok(txn.get(key.as_bytes())?)).unwrap().unwrap();
        let row: serde_json::Value = serde_json::from_slice(&row).unwrap();
        serde_json::from_value(row["secret"].clone()).unwrap()
    }

    fn finish(&mut self, sent: &JoinFinish, now_ms: i64) -> Result<Grant, RefusalCode> {
        match finish(&self.store, sent, now_ms, &mut self.rng) {
            Ok(grant) => Ok(grant),
            Err(JoinError::Refused(refusal)) => Err(refusal.code),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn two_rounds_make_a_node_bind_the_tpm_and_use_the_token() {
    let mut fixture = Fixture::new();
    let (tpm, claim) = (SoftTpm::new(0x10), fixture.claim());
    let sent = fixture.begin(&tpm, &claim);
    let grant = fixture.finish(&sent, NOW).unwrap();
    assert_eq!(grant.spki_der, tpm.checked().node_spki_der);
    assert_eq!((grant.role, grant.machine.unwrap().as_str()), (Role::Node, "web-1"));
    let machine = fixture.store.read(|txn| machines::need(txn, "web-1")).unwrap();
    assert_eq!(machine.ek_fingerprint, Some(tpm.checked().ek_fingerprint));
    assert_eq!(machine.node_id.as_deref(), Some(grant.node_id.as_str()));
    let node = fixture.store.read(|txn| nodes::get(txn, &grant.node_id)).unwrap().unwrap().node;
    assert_eq!((node.proof.as_str(), node.pcrs.len()), ("tpm", 8));
    assert_eq!(node.pcrs[&7], "00".repeat(32));

    // Another TPM with the used token is refused; the same one joins again, without a token, as the same node.
    let other = SoftTpm::new(0x20).checked();
    let refused = challenge(&fixture.store, b"request", &claim, &other, NOW, &mut fixture.rng);
    assert!(matches!(refused, Err(JoinError::Refused(r)) if r.code == RefusalCode::EkMismatch));
    let again = fixture.begin(&tpm, &JoinClaim { join_token: String::new(), ..claim });
    assert_eq!(fixture.finish(&again, NOW).unwrap().node_id, grant.node_id);
}

#[test]
fn t6_the_first_failure_burns_the_join_id() {
    let mut fixture = Fixture::new();
    let (tpm, claim) = (SoftTpm::new(0x10), fixture.claim());
    let good = fixture.begin(&tpm, &claim);
    let bad = JoinFinish { proof: vec![0; 32], ..good.clone() };
    assert_eq!(fixture.finish(&bad, NOW), Err(RefusalCode::ProofInvalid));
    assert_eq!(fixture.finish(&good, NOW), Err(RefusalCode::ProofInvalid));
    // The token was not touched, so a new join works.
    let good = fixture.begin(&tpm, &claim);
    assert!(fixture.finish(&good, NOW).is_ok());
    assert_eq!(fixture.finish(&good, NOW), Err(RefusalCode::ProofInvalid), "t35: once per join id");
}

#[test]
fn t2_a_quote_for_another_join_is_refused() {
    let mut fixture = Fixture::new();
    let (tpm, claim) = (SoftTpm::new(0x10), fixture.claim());
    let first = fixture.begin(&tpm, &claim);
    let second = fixture.begin(&tpm, &claim);
    let spliced = JoinFinish { join_id: second.join_id.clone(), proof: second.proof.clone(), ..first };
    assert_eq!(fixture.finish(&spliced, NOW), Err(RefusalCode::ProofInvalid));
}

#[test]
fn a_join_waits_two_minutes_and_a_newer_one_of_the_same_tpm_replaces_it() {
    let mut fixture = Fixture::new();
    let (tpm, claim) = (SoftTpm::new(0x10), fixture.claim());
    let late = fixture.begin(&tpm, &claim);
    assert_eq!(fixture.finish(&late, NOW + 120_000), Err(RefusalCode::ProofInvalid));
    let older = fixture.begin(&tpm, &claim);
    let newer = fixture.begin(&tpm, &claim);
    assert_eq!(fixture.finish(&older, NOW), Err(RefusalCode::ProofInvalid));
    assert!(fixture.finish(&newer, NOW + 119_999).is_ok());
    assert_eq!(fixture.finish(&JoinFinish::default(), NOW), Err(RefusalCode::Malformed));
}

#[test]
fn admission_is_checked_again_in_the_second_round() {
    let mut fixture = Fixture::new();
    let claim = fixture.claim();
    let (one, two) = (SoftTpm::new(0x10), SoftTpm::new(0x20));
    let first = fixture.begin(&one, &claim);
    let second = fixture.begin(&two, &claim);
    assert!(fixture.finish(&first, NOW).is_ok());
    assert_eq!(fixture.finish(&second, NOW), Err(RefusalCode::EkMismatch));
}

#[test]
fn the_first_round_is_bounded_and_decoded_or_refused_by_name() {
    let code = |body: &[u8]| decode_begin(body).map(|_: JoinBegin| ()).map_err(|refusal| refusal.code);
    assert_eq!(code(&vec![0; (64 << 10) + 1]), Err(RefusalCode::Malformed));
    assert_eq!(code(&[0xff, 0xff]), Err(RefusalCode::Malformed));
    let empty = check_begin(&JoinBegin::default(), &EkRoots::empty(), NOW).unwrap_err();
    assert_eq!(empty.code, RefusalCode::Malformed);
    let begin = JoinBegin { version: 1, agent_nonce: vec![0; 32], ..JoinBegin::default() };
    let no_ek = check_begin(&begin, &EkRoots::empty(), NOW).unwrap_err();
    assert_eq!(no_ek.code, RefusalCode::EkUntrusted);
    assert!(no_ek.reason.contains(": "), "with its cause: {}", no_ek.reason);
}
