use ironwright_proto::{
    Message,
    api::{MachineChange, NewMachine, NewSite},
    envelope::pre_auth_encoding,
    wire::Envelope,
};
use p256::{
    ecdsa::{Signature, SigningKey, signature::Signer},
    pkcs8::EncodePublicKey,
};

use super::*;
use crate::{
    nodes::Joined,
    store::{MemStore, Store},
    tx::{Seed, Tx},
};

const MAC: &str = "52:54:00:12:34:56";
const NOW: i64 = 1_000_000;
const EK: Digest = Digest([7; 32]);

fn site_key() -> SigningKey {
    SigningKey::from_slice(&[3; 32]).unwrap()
}

/// What the site says of web-1.
fn said() -> SiteAssertion {
    SiteAssertion {
        site: "lab".into(),
        lease_epoch: 1,
        machine_id: "web-1".into(),
        mac: MAC.into(),
        issued_unix_ms: NOW,
        expires_unix_ms: NOW + 60_000,
    }
}

/// Two machines at one site, whose agent holds the lease at epoch 1.
struct Fixture {
    store: MemStore,
    site_node: String,
    seed: u64,
}

impl Fixture {
    fn new() -> Self {
        let mut fixture = Self { store: MemStore::new(), site_node: String::new(), seed: 0 };
        fixture.site_node = fixture.tx(|tx| {
            sites::create(tx, "admin", &NewSite { name: "lab".parse().unwrap() })?;
            for (id, mac, allow_no_tpm) in [("web-1", MAC, false), ("web-2", "52:54:00:12:34:57", true)] {
                let new = NewMachine {
                    id: id.parse().unwrap(),
                    mac: mac.parse().unwrap(),
                    product_uuid: Some("00112233-4455-6677-8899-aabbccddeeff".into()),
                    site: None,
                    allow_no_tpm,
                };
                machines::create(tx, "admin", &new)?;
            }
            let spki_der = site_key().verifying_key().to_public_key_der().unwrap().into_vec();
            let site = Some("lab".parse().unwrap());
            let role = Role::Site;
            let pcrs = std::collections::BTreeMap::new();
            let node =
                nodes::join(tx, Joined { role, machine: None, site, spki_der, ek_fingerprint: None, pcrs })?;
            sites::lease(tx, "lab", &node)?;
            Ok(node)
        });
        fixture
    }

    fn tx<R>(&mut self, f: impl Fn(&mut Tx<'_>) -> Result<R, Error>) -> R {
        use rand::{SeedableRng, rngs::StdRng};
        self.seed += 1;
        let seed = Seed::draw(&mut StdRng::seed_from_u64(self.seed));
        self.store.write(|txn| f(&mut Tx::new(txn, NOW, seed))).unwrap()
    }

    fn token(&mut self, machine: &str, role: Role) -> String {
        let id = machine.parse().unwrap();
        self.tx(|tx| token::mint(tx, For::machine(&id, role), 1_000)).0
    }

    fn bind(&mut self, machine: &str, ek: Digest) {
        let id = machine.parse().unwrap();
        self.tx(|tx| machines::bind(tx, &id, "node-x", Some(ek)));
    }

    fn assertion(&self, said: &SiteAssertion) -> Envelope {
        let payload = said.encode_to_vec();
        let signature: Signature = site_key().sign(&pre_auth_encoding(envelope::SITE_ASSERTION, &payload));
        Envelope {
            payload_type: envelope::SITE_ASSERTION.into(),
            payload,
            key_id: self.site_node.clone(),
            signature: signature.to_der().as_bytes().to_vec(),
            chain: vec![],
        }
    }

    /// A claim of web-1's ramdisk with everything that a first join needs.
    fn claim(&mut self) -> JoinClaim {
        JoinClaim {
            machine_id: "web-1".into(),
            role: "ramdisk".into(),
            join_token: self.token("web-1", Role::Ramdisk),
            mac: MAC.into(),
            product_uuid: String::new(),
            serial: String::new(),
            site_assertion: Some(self.assertion(&said())),
        }
    }

    fn admit_tpm(&self, claim: &JoinClaim, ek: Digest, now_ms: i64) -> Result<Admitted, RefusalCode> {
        let admission = self.store.read(|txn| admit_tpm(txn, claim, &ek, now_ms)).unwrap();
        admission.map_err(|refusal| refusal.code)
    }

    fn admit_token(&self, claim: &JoinClaim) -> Result<Admitted, RefusalCode> {
        self.store.read(|txn| admit_token(txn, claim, NOW)).unwrap().map_err(|refusal| refusal.code)
    }
}

#[test]
fn a_first_join_needs_token_and_assertion_and_names_the_token_to_burn() {
    let mut fixture = Fixture::new();
    let claim = fixture.claim();
    let admitted = fixture.admit_tpm(&claim, EK, NOW).unwrap();
    assert_eq!((admitted.role, admitted.machine.unwrap().as_str()), (Role::Ramdisk, "web-1"));
    assert!(admitted.token.is_some());
}

#[test]
fn the_claim_has_to_name_a_machine_and_its_mac() {
    let mut fixture = Fixture::new();
    let claim = fixture.claim();
    let unknown = Err(RefusalCode::UnknownMachine);
    let with = |change: &dyn Fn(&mut JoinClaim)| {
        let mut changed = claim.clone();
        change(&mut changed);
        fixture.admit_tpm(&changed, EK, NOW)
    };
    assert_eq!(with(&|c| c.machine_id = "web-9".into()), unknown);
    assert_eq!(with(&|c| c.machine_id = "web-1/../x".into()), unknown);
    assert_eq!(with(&|c| c.machine_id = String::new()), unknown);
    assert_eq!(with(&|c| c.mac = "52:54:00:12:34:57".into()), unknown, "another machine's");
    assert_eq!(with(&|c| c.mac = "not a mac".into()), unknown);
    assert!(with(&|c| c.mac = "52-54-00-12-34-56".into()).is_ok());
    assert_eq!(with(&|c| c.role = "king".into()), Err(RefusalCode::Malformed));
    assert_eq!(with(&|c| c.role = "site".into()), Err(RefusalCode::Malformed));
}

#[test]
fn u1_product_uuid_of_the_claim_may_have_either_byte_order() {
    let mut fixture = Fixture::new();
    let mut claim = fixture.claim();
    for same in ["00112233-4455-6677-8899-AABBCCDDEEFF", "33221100-5544-7766-8899-aabbccddeeff", "", "unset"]
    {
        claim.product_uuid = same.into();
        assert!(fixture.admit_tpm(&claim, EK, NOW).is_ok(), "{same}");
    }
    claim.product_uuid = "00112233-4455-6677-8899-aabbccddee00".into();
    assert_eq!(fixture.admit_tpm(&claim, EK, NOW), Err(RefusalCode::UnknownMachine));
}

#[test]
fn a_forgotten_tpm_makes_place_for_another_one_that_comes_with_a_token() {
    let mut fixture = Fixture::new();
    let other = Digest([8; 32]);
    fixture.bind("web-1", EK);
    let claim = fixture.claim();
    assert_eq!(fixture.admit_tpm(&claim, other, NOW), Err(RefusalCode::EkMismatch));
    let forget = MachineChange { forget_tpm: true, ..MachineChange::default() };
    let machine = fixture.tx(|tx| machines::change(tx, "alice", "web-1", &forget));
    assert_eq!(machine.ek_fingerprint, None);
    let bare = JoinClaim { join_token: String::new(), ..claim.clone() };
    for ek in [EK, other] {
        assert_eq!(fixture.admit_tpm(&bare, ek, NOW), Err(RefusalCode::TokenMissing));
    }
    assert!(fixture.admit_tpm(&claim, other, NOW).unwrap().token.is_some());
    fixture.bind("web-1", other);
    assert_eq!(fixture.admit_tpm(&claim, EK, NOW), Err(RefusalCode::EkMismatch));
    fixture.bind("web-2", EK);
    fixture.tx(|tx| machines::remove(tx, "alice", "web-2"));
    assert_eq!(fixture.store.read(|txn| machines::by_ek(txn, &EK)).unwrap(), None);
}

#[test]
fn a_known_tpm_needs_no_token_and_another_one_is_refused() {
    let mut fixture = Fixture::new();
    let mut claim = fixture.claim();
    fixture.bind("web-1", EK);
    claim.join_token = String::new();
    claim.site_assertion = None;
    assert_eq!(fixture.admit_tpm(&claim, EK, NOW).unwrap().token, None);
    claim.role = "node".into();
    assert_eq!(fixture.admit_tpm(&claim, EK, NOW).unwrap().role, Role::Node);
    assert_eq!(fixture.admit_tpm(&claim, Digest([8; 32]), NOW), Err(RefusalCode::EkMismatch));
    let with_token = fixture.claim();
    assert_eq!(fixture.admit_tpm(&with_token, Digest([8; 32]), NOW), Err(RefusalCode::EkMismatch));
}

#[test]
fn a_tpm_is_in_one_machine() {
    let mut fixture = Fixture::new();
    let claim = fixture.claim();
    fixture.bind("web-2", EK);
    assert_eq!(fixture.admit_tpm(&claim, EK, NOW), Err(RefusalCode::EkMismatch));
}

#[test]
fn t7_a_binding_is_never_overwritten() {
    let mut fixture = Fixture::new();
    fixture.bind("web-1", EK);
    fixture.bind("web-1", Digest([8; 32]));
    let machine = fixture.store.read(|txn| machines::need(txn, "web-1")).unwrap();
    assert_eq!(machine.ek_fingerprint, Some(EK));
}

#[test]
fn tokens_are_refused_by_name() {
    let mut fixture = Fixture::new();
    let good = fixture.claim();
    let other_machine = fixture.token("web-2", Role::Ramdisk);
    let other_role = fixture.token("web-1", Role::Node);
    let site =
        fixture.tx(|tx| sites::create(tx, "admin", &NewSite { name: "lab".parse().unwrap() })).join_token;
    let with = |token: &str| {
        let claim = JoinClaim { join_token: token.into(), ..good.clone() };
        fixture.admit_tpm(&claim, EK, NOW).unwrap_err()
    };
    assert_eq!(with(""), RefusalCode::TokenMissing);
    assert_eq!(with("iwj_never_given"), RefusalCode::TokenUnknown);
    assert_eq!(with(&other_machine), RefusalCode::TokenOfOtherMachine);
    assert_eq!(with(&other_role), RefusalCode::TokenOfOtherMachine);
    assert_eq!(with(&site), RefusalCode::TokenOfOtherMachine);
    assert_eq!(fixture.admit_tpm(&good, EK, NOW + 1_000), Err(RefusalCode::TokenExpired));
    let key = fixture.admit_tpm(&good, EK, NOW).unwrap().token.unwrap();
    fixture.tx(|tx| token::burn(tx, &key, "node-x"));
    assert_eq!(fixture.admit_tpm(&good, EK, NOW), Err(RefusalCode::TokenUsed));
}

#[test]
fn the_operating_system_needs_a_token_of_its_own_but_no_assertion() {
    let mut fixture = Fixture::new();
    let mut claim = fixture.claim();
    claim.site_assertion = None;
    claim.role = "node".into();
    assert_eq!(fixture.admit_tpm(&claim, EK, NOW), Err(RefusalCode::TokenOfOtherMachine));
    claim.join_token = fixture.token("web-1", Role::Node);
    assert!(fixture.admit_tpm(&claim, EK, NOW).is_ok());
}

#[test]
fn an_assertion_has_to_be_the_sites_and_about_this_machine() {
    let mut fixture = Fixture::new();
    let good = fixture.claim();
    let with = |envelope: Option<Envelope>| {
        fixture.admit_tpm(&JoinClaim { site_assertion: envelope, ..good.clone() }, EK, NOW)
    };
    let invalid = Err(RefusalCode::SiteAssertionInvalid);
    assert_eq!(with(None), invalid);
    let said_with = |change: &dyn Fn(&mut SiteAssertion)| {
        let mut said = said();
        change(&mut said);
        with(Some(fixture.assertion(&said)))
    };
    assert_eq!(said_with(&|s| s.machine_id = "web-2".into()), invalid);
    assert_eq!(said_with(&|s| s.mac = "52:54:00:12:34:57".into()), invalid);
    assert_eq!(said_with(&|s| s.site = "other".into()), invalid);
    assert_eq!(said_with(&|s| s.expires_unix_ms = NOW), invalid);
    assert_eq!(said_with(&|s| s.issued_unix_ms = NOW + ASSERTION_SKEW_MS + 1), invalid);
    assert!(said_with(&|s| s.issued_unix_ms = NOW + ASSERTION_SKEW_MS).is_ok());

    let envelope = || fixture.assertion(&said());
    assert_eq!(with(Some(Envelope { key_id: "node-x".into(), ..envelope() })), invalid);
    assert_eq!(with(Some(Envelope { payload_type: envelope::TIME.into(), ..envelope() })), invalid);
    let mut altered = envelope();
    altered.payload[0] ^= 1;
    assert_eq!(with(Some(altered)), invalid);
}

#[test]
fn an_assertion_counts_under_the_current_lease_only() {
    let mut fixture = Fixture::new();
    let claim = fixture.claim();
    let old = fixture.assertion(&SiteAssertion { lease_epoch: 0, ..said() });
    let under_old = JoinClaim { site_assertion: Some(old), ..claim.clone() };
    assert_eq!(fixture.admit_tpm(&under_old, EK, NOW), Err(RefusalCode::StaleLease));
    // Lapsed: 30 s after it was renewed. The token is made to outlive that.
    let id = "web-1".parse().unwrap();
    let long = fixture.tx(|tx| token::mint(tx, For::machine(&id, Role::Ramdisk), 100_000)).0;
    let later = JoinClaim { join_token: long, ..claim };
    assert!(fixture.admit_tpm(&later, EK, NOW + 29_999).is_ok());
    assert_eq!(fixture.admit_tpm(&later, EK, NOW + 30_000), Err(RefusalCode::StaleLease));
}

#[test]
fn joining_by_token_alone_has_to_be_allowed_and_ends_once_there_is_a_tpm() {
    let mut fixture = Fixture::new();
    let with_tpm = fixture.claim();
    assert_eq!(fixture.admit_token(&with_tpm), Err(RefusalCode::TpmRequired));
    let token = fixture.token("web-2", Role::Node);
    let claim = JoinClaim {
        machine_id: "web-2".into(),
        role: "node".into(),
        join_token: token,
        mac: "52:54:00:12:34:57".into(),
        ..JoinClaim::default()
    };
    assert!(fixture.admit_token(&claim).unwrap().token.is_some());
    fixture.bind("web-2", EK);
    assert_eq!(fixture.admit_token(&claim), Err(RefusalCode::TpmRequired));
}

#[test]
fn a_site_joins_with_its_newest_token() {
    let mut fixture = Fixture::new();
    let create = |tx: &mut Tx<'_>| sites::create(tx, "admin", &NewSite { name: "lab".parse().unwrap() });
    let (older, newer) = (fixture.tx(create).join_token, fixture.tx(create).join_token);
    let claim =
        |token: &str| JoinClaim { role: "site".into(), join_token: token.into(), ..JoinClaim::default() };
    assert_eq!(fixture.admit_token(&claim(&older)), Err(RefusalCode::TokenUnknown));
    let admitted = fixture.admit_token(&claim(&newer)).unwrap();
    assert_eq!((admitted.role, admitted.machine, admitted.site.unwrap().as_str()), (Role::Site, None, "lab"));
    let named = JoinClaim { machine_id: "web-1".into(), ..claim(&newer) };
    assert_eq!(fixture.admit_token(&named), Err(RefusalCode::Malformed));
    let machines_token = fixture.token("web-1", Role::Node);
    assert_eq!(fixture.admit_token(&claim(&machines_token)), Err(RefusalCode::TokenOfOtherMachine));
}
