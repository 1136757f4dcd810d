use ironwright_proto::wire::JoinBegin;
use p256::ecdsa::SigningKey;

use crate::{
    templates::EK_RSA_2048,
    testing::{
        der::{common_name, extension, seq},
        ek_cert::{
            KEY_AGREEMENT, KEY_ENCIPHERMENT, NOW, Spec, alternative_name, ca_true, one_rdn_out_of_order, pem,
            rsa_spki, spki,
        },
        soft_tpm::SoftTpm,
    },
    verify::{DerError, EkError, EkPublic, EkRoots, VerifyError, check_begin},
};

fn ek_error(begin: &JoinBegin, roots: &EkRoots, now: i64) -> EkError {
    match check_begin(begin, roots, now) {
        Err(VerifyError::Endorsement(error)) => error,
        other => panic!("{other:?}"),
    }
}

/// A first round whose endorsement certificate was changed before it was signed.
fn with_certificate(change: impl FnOnce(&mut Spec)) -> (SoftTpm, JoinBegin) {
    let tpm = SoftTpm::new(1);
    let mut spec = Spec::ek(spki(&tpm.ek), KEY_AGREEMENT);
    change(&mut spec);
    let begin = JoinBegin { ek_certs: vec![spec.sign(&tpm.maker)], ..tpm.begin() };
    (tpm, begin)
}

fn webpki_error(error: EkError) -> webpki::Error {
    match error {
        EkError::Untrusted(source) => source,
        other => panic!("{other:?}"),
    }
}

#[test]
fn t15_certificates_as_nv_keeps_them_are_read() {
    let tpm = SoftTpm::new(1);
    let good = tpm.begin().ek_certs.remove(0);
    let other = SoftTpm::new(2).begin().ek_certs.remove(0);
    let len = u16::try_from(good.len()).unwrap().to_be_bytes();
    let header = [0x10, 0x01, 0x00, len[0], len[1]];
    for nv in [
        [&header[..], &good].concat(),
        [&good[..], &[0xff; 300]].concat(),
        [&good[..], &[0x00; 300]].concat(),
        [&other[..], &good].concat(),
    ] {
        let begin = JoinBegin { ek_certs: vec![nv], ..tpm.begin() };
        check_begin(&begin, &tpm.roots(), NOW).unwrap();
    }
}

#[test]
fn t16_der_that_tpm_makers_ship_is_accepted() {
    // Zero, negative, not minimal and 21-octet serial numbers; a SET OF out of order in one multi-valued RDN.
    for serial in [vec![0x00], vec![0xf9], vec![0x00, 0x11], vec![0x7f; 21]] {
        let (tpm, begin) = with_certificate(|spec| spec.serial.clone_from(&serial));
        check_begin(&begin, &tpm.roots(), NOW)
            .unwrap_or_else(|error| panic!("serial {serial:02x?}: {error:?}"));
    }
    let (tpm, begin) =
        with_certificate(|spec| spec.extensions[1] = alternative_name(&one_rdn_out_of_order()));
    let checked = check_begin(&begin, &tpm.roots(), NOW).unwrap();
    assert_eq!((checked.model.model.as_str(), checked.model.version.as_str()), ("NPCT75x", "id:00070002"));
}

#[test]
fn t17_critical_directory_name_is_accepted_and_unknown_critical_is_not() {
    // Every certificate here has the critical alternative name; this one has a further critical extension.
    let (tpm, begin) =
        with_certificate(|spec| spec.extensions.push(extension(&[0x2a, 0x03, 0x04], true, &seq(&[]))));
    let error = webpki_error(ek_error(&begin, &tpm.roots(), NOW));
    assert_eq!(error, webpki::Error::UnsupportedCriticalExtension);
}

#[test]
fn t37_no_certificate_and_junk_are_told_apart() {
    let tpm = SoftTpm::new(1);
    let error =
        |certs: Vec<Vec<u8>>| ek_error(&JoinBegin { ek_certs: certs, ..tpm.begin() }, &tpm.roots(), NOW);
    assert!(matches!(error(vec![]), EkError::NoCertificate));
    assert!(matches!(error(vec![vec![]]), EkError::NoCertificate));
    assert!(matches!(error(vec![b"junk".to_vec()]), EkError::Der(DerError::NotACertificate { .. })));
    assert!(matches!(error(vec![seq(&[b"not a certificate"])]), EkError::NotX509));
}

#[test]
fn only_a_trusted_manufacturer_in_time_is_accepted() {
    let tpm = SoftTpm::new(1);
    assert_eq!(webpki_error(ek_error(&tpm.begin(), &EkRoots::empty(), NOW)), webpki::Error::UnknownIssuer);

    // Same name, other key.
    let stranger = SigningKey::from_slice(&[0x55; 32]).unwrap();
    let foreign = EkRoots::from_pem(&pem(&Spec::ca("Maker", "Maker", &stranger).sign(&stranger))).unwrap();
    let error = webpki_error(ek_error(&tpm.begin(), &foreign, NOW));
    assert_eq!(error, webpki::Error::InvalidSignatureForPublicKey);

    let (tpm, begin) = with_certificate(|spec| spec.not_after = "20250101000000Z");
    assert!(matches!(webpki_error(ek_error(&begin, &tpm.roots(), NOW)), webpki::Error::CertExpired { .. }));
    // 2019, before all of them.
    let early = webpki_error(ek_error(&tpm.begin(), &tpm.roots(), 1_560_000_000));
    assert!(matches!(early, webpki::Error::CertNotValidYet { .. }), "{early:?}");
}

#[test]
fn p3_intermediates_come_from_nv() {
    let tpm = SoftTpm::new(1);
    let root = SigningKey::from_slice(&[0x66; 32]).unwrap();
    let roots = EkRoots::from_pem(&pem(&Spec::ca("Root", "Root", &root).sign(&root))).unwrap();
    let begin = tpm.begin();
    assert_eq!(webpki_error(ek_error(&begin, &roots, NOW)), webpki::Error::UnknownIssuer);
    // Issuing CA and root, concatenated and padded, as in NV 0x01c00100.
    let issuing = Spec::ca("Maker", "Root", &tpm.maker).sign(&root);
    let chain = [issuing, Spec::ca("Root", "Root", &root).sign(&root), vec![0xff; 9]].concat();
    let begin = JoinBegin { ek_ca_chain: vec![chain], ..begin };
    check_begin(&begin, &roots, NOW).unwrap();
}

#[test]
fn b18_the_purpose_alone_does_not_make_a_leaf() {
    type Change = fn(&mut Spec);
    let cases: [(&str, Change); 5] = [
        ("a CA's", |spec| spec.extensions[2] = ca_true()),
        ("lacks the purpose", |spec| spec.extensions.truncate(3)),
        ("no key usage", |spec| drop(spec.extensions.remove(0))),
        ("transport of secrets", |spec| {
            spec.extensions[0] = extension(&[0x55, 0x1d, 0x0f], true, &KEY_ENCIPHERMENT);
        }),
        ("alternative name", |spec| spec.extensions[1] = alternative_name(&common_name("TPM"))),
    ];
    for (wanted, change) in cases {
        let (tpm, begin) = with_certificate(change);
        match ek_error(&begin, &tpm.roots(), NOW) {
            EkError::Leaf(why) => assert!(why.contains(wanted), "{why}"),
            // webpki refuses a CA as leaf by itself.
            EkError::Untrusted(webpki::Error::CaUsedAsEndEntity) if wanted == "a CA's" => {}
            other => panic!("{wanted}: {other:?}"),
        }
    }
    // Another purpose is refused with the chain.
    let (tpm, begin) = with_certificate(|spec| {
        let server_auth = seq(&[&[0x06, 0x08, 0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01]]);
        spec.extensions[3] = extension(&[0x55, 0x1d, 0x25], false, &server_auth);
    });
    assert!(matches!(
        webpki_error(ek_error(&begin, &tpm.roots(), NOW)),
        webpki::Error::RequiredEkuNotFoundContext(_)
    ));
}

#[test]
fn an_rsa_key_is_read_under_both_of_its_names() {
    const RSA_ENCRYPTION: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
    const RSAES_OAEP: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x07];
    let tpm = SoftTpm::new(1);
    let modulus = [0xc3; 256];
    let ek_pub = [&EK_RSA_2048.prefix()[..], &[0x01, 0x00], &modulus].concat();
    let mut fingerprints = Vec::new();
    for algorithm in [RSA_ENCRYPTION, RSAES_OAEP] {
        let cert = Spec::ek(rsa_spki(algorithm, &modulus), KEY_ENCIPHERMENT).sign(&tpm.maker);
        let begin = JoinBegin { ek_certs: vec![cert], ek_pub: ek_pub.clone(), ..tpm.begin() };
        let checked = check_begin(&begin, &tpm.roots(), NOW).unwrap();
        assert_eq!(checked.ek, EkPublic::Rsa2048 { modulus: modulus.to_vec() });
        fingerprints.push(checked.ek_fingerprint);
    }
    assert_eq!(fingerprints[0], fingerprints[1]);
    // Computed apart: SHA-256 of the SubjectPublicKeyInfo under rsaEncryption.
    let expected: [u8; 32] =
        <sha2::Sha256 as sha2::Digest>::digest(rsa_spki(RSA_ENCRYPTION, &modulus)).into();
    assert_eq!(fingerprints[0].0, expected);
}

#[test]
fn a_file_of_roots_is_read_or_refused_by_name() {
    let tpm = SoftTpm::new(1);
    let root = pem(&Spec::ca("Maker", "Maker", &tpm.maker).sign(&tpm.maker));
    assert!(EkRoots::from_pem("").unwrap().is_empty());
    assert!(!EkRoots::from_pem(&format!("a comment\n{root}")).unwrap().is_empty());
    let error = EkRoots::from_pem(&root.replace("MII", "!!!")).unwrap_err();
    assert!(error.to_string().contains("PEM block 0"), "{error}");
    let error = EkRoots::from_pem(&format!("{root}{}", pem(b"junk"))).unwrap_err();
    assert!(error.to_string().contains("certificate 1"), "{error}");
}
