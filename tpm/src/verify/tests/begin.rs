use sha2::{Digest, Sha256};

use crate::{
    structures::StructureError,
    templates::{ATTESTATION_KEY, NODE_KEY},
    testing::{
        ek_cert::NOW,
        soft_tpm::{SoftTpm, certification, public, request},
    },
    verify::{
        AttestError, CertifyError, CheckedBegin, CsrError, EkError, EkPublic, MAX_BEGIN, VerifyError,
        check_begin,
    },
};

#[test]
fn an_honest_first_round_is_accepted_and_can_be_stored() {
    let tpm = SoftTpm::new(1);
    let begin = tpm.begin();
    let checked = check_begin(&begin, &tpm.roots(), NOW).unwrap();
    assert_eq!(checked.ak_pub, begin.ak_pub);
    assert!(matches!(checked.ek, EkPublic::P256 { .. }));
    assert_eq!(checked.model.manufacturer, "id:4E544300");
    let stored = serde_json::to_string(&checked).unwrap();
    assert_eq!(serde_json::from_str::<CheckedBegin>(&stored).unwrap(), checked);
}

#[test]
fn t1_names_are_computed_from_the_public_areas() {
    let tpm = SoftTpm::new(1);
    let checked = check_begin(&tpm.begin(), &tpm.roots(), NOW).unwrap();
    // TPM_ALG_SHA256, then the digest; nothing in the message carries a name.
    for (name, public) in
        [(&checked.ak_name, tpm.ak_pub()), (&checked.node_name, public(&NODE_KEY, &tpm.node))]
    {
        assert_eq!(name[..2], [0x00, 0x0b]);
        assert_eq!(name[2..], *Sha256::digest(public));
    }
    // Another machine's attestation key beside this machine's certification.
    let mut begin = tpm.begin();
    begin.ak_pub = SoftTpm::new(2).ak_pub();
    let error = check_begin(&begin, &tpm.roots(), NOW).unwrap_err();
    assert!(matches!(error, VerifyError::Certify(CertifyError::Attest(AttestError::Signature))), "{error:?}");
}

#[test]
fn t4_certificate_of_another_endorsement_key_is_refused() {
    let (tpm, other) = (SoftTpm::new(1), SoftTpm::new(2));
    let mut begin = tpm.begin();
    begin.ek_pub = other.begin().ek_pub;
    let error = check_begin(&begin, &tpm.roots(), NOW).unwrap_err();
    assert!(matches!(error, VerifyError::Endorsement(EkError::KeyMismatch)), "{error:?}");
    assert_eq!(error.code(), "ek_untrusted");
}

#[test]
fn t9_a_bad_signature_refuses_the_join() {
    let tpm = SoftTpm::new(1);
    let mut begin = tpm.begin();
    *begin.certify_attest.last_mut().unwrap() ^= 1;
    let error = check_begin(&begin, &tpm.roots(), NOW).unwrap_err();
    assert!(matches!(error, VerifyError::Certify(CertifyError::Attest(AttestError::Signature))), "{error:?}");
    assert_eq!(error.code(), "proof_invalid");

    let mut begin = tpm.begin();
    begin.certify_sig.clear();
    let error = check_begin(&begin, &tpm.roots(), NOW).unwrap_err();
    let short = AttestError::Structure(StructureError::Short {
        what: "the attestation's signature",
        field: "sigAlg",
    });
    assert!(matches!(error, VerifyError::Certify(CertifyError::Attest(e)) if e == short));
}

#[test]
fn t11_only_a_restricted_key_of_the_tpm_attests() {
    let tpm = SoftTpm::new(1);
    let attributes = |word: u32| {
        let mut begin = tpm.begin();
        begin.ak_pub[4..8].copy_from_slice(&word.to_be_bytes());
        begin.ak_pub.clone()
    };
    // Not restricted; not fixed to the TPM; made outside; may decrypt; protected against guessing.
    for word in [0x0004_0472, 0x0005_0470, 0x0005_0452, 0x0007_0472, 0x0005_0072] {
        let mut begin = tpm.begin();
        begin.ak_pub = attributes(word);
        let error = check_begin(&begin, &tpm.roots(), NOW).unwrap_err();
        let VerifyError::AttestationKey(error) = error else { panic!("{error:?}") };
        assert_eq!(
            error,
            StructureError::Unexpected {
                what: "the attestation key",
                field: "objectAttributes",
                found: word.into(),
                wanted: 0x0005_0472
            }
        );
    }
}

#[test]
fn t11_a_statement_without_the_tpms_magic_is_none() {
    let tpm = SoftTpm::new(1);
    let mut begin = tpm.begin();
    begin.certify_attest[0] = 0xfe;
    begin.certify_sig = tpm.ak_sign(&begin.certify_attest);
    let error = check_begin(&begin, &tpm.roots(), NOW).unwrap_err();
    let VerifyError::Certify(CertifyError::Attest(AttestError::Structure(error))) = error else {
        panic!("{error:?}")
    };
    assert!(
        matches!(error, StructureError::Unexpected { field: "magic", wanted: 0xff54_4347, .. }),
        "{error}"
    );
}

#[test]
fn keys_of_another_kind_or_off_the_curve_are_refused() {
    let tpm = SoftTpm::new(1);
    // The node key's public area is the attestation key's: restricted.
    let mut begin = tpm.begin();
    begin.node_pub = public(&ATTESTATION_KEY, &tpm.node);
    assert!(matches!(check_begin(&begin, &tpm.roots(), NOW), Err(VerifyError::NodeKey(_))));

    let mut begin = tpm.begin();
    *begin.ak_pub.last_mut().unwrap() ^= 1;
    let error = check_begin(&begin, &tpm.roots(), NOW).unwrap_err();
    let off = StructureError::Differs { what: "the attestation key", field: "unique" };
    assert!(matches!(error, VerifyError::AttestationKey(e) if e == off));

    let mut begin = tpm.begin();
    begin.node_pub.push(0);
    let error = check_begin(&begin, &tpm.roots(), NOW).unwrap_err();
    assert!(matches!(error, VerifyError::NodeKey(StructureError::Trailing { left: 1, .. })), "{error:?}");

    // An endorsement key that anyone may use: with userWithAuth.
    let mut begin = tpm.begin();
    begin.ek_pub[7] |= 0x40;
    let error = check_begin(&begin, &tpm.roots(), NOW).unwrap_err();
    assert!(matches!(error, VerifyError::Endorsement(EkError::Template(_))), "{error:?}");
}

#[test]
fn the_request_must_be_the_one_that_was_certified() {
    let (tpm, other) = (SoftTpm::new(1), SoftTpm::new(2));
    // For another key.
    let mut begin = tpm.begin();
    begin.csr_der = request(&other.node);
    let error = check_begin(&begin, &tpm.roots(), NOW).unwrap_err();
    assert!(matches!(error, VerifyError::Csr(CsrError::OtherKey)), "{error:?}");
    assert_eq!(error.code(), "malformed");

    // For the same key, but another request.
    let mut begin = tpm.begin();
    begin.certify_attest = certification(&begin.node_pub, b"another request");
    begin.certify_sig = tpm.ak_sign(&begin.certify_attest);
    let error = check_begin(&begin, &tpm.roots(), NOW).unwrap_err();
    assert!(matches!(error, VerifyError::Certify(CertifyError::Attest(AttestError::ExtraData))), "{error:?}");

    // A true statement about another key.
    let mut begin = tpm.begin();
    begin.certify_attest = certification(&public(&NODE_KEY, &other.node), &begin.csr_der);
    begin.certify_sig = tpm.ak_sign(&begin.certify_attest);
    let error = check_begin(&begin, &tpm.roots(), NOW).unwrap_err();
    assert!(matches!(error, VerifyError::Certify(CertifyError::OtherKey)), "{error:?}");
}

#[test]
fn sizes_and_version_are_checked_first() {
    let tpm = SoftTpm::new(1);
    let mut begin = tpm.begin();
    begin.ek_ca_chain = vec![vec![0; MAX_BEGIN]];
    assert!(
        matches!(check_begin(&begin, &tpm.roots(), NOW), Err(VerifyError::TooLarge(size)) if size > MAX_BEGIN)
    );
    let mut begin = tpm.begin();
    begin.version = 2;
    assert!(matches!(check_begin(&begin, &tpm.roots(), NOW), Err(VerifyError::Version(2))));
    let mut begin = tpm.begin();
    begin.agent_nonce.pop();
    assert!(matches!(check_begin(&begin, &tpm.roots(), NOW), Err(VerifyError::Nonce(31))));
}
