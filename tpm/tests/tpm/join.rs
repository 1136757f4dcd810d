use ironwright_tpm::{
    device::{DeviceError, Tpm},
    verify::{AttestError, CertifyError, CsrError, EkError, QuoteError, VerifyError, check_csr},
};
use sha2::{Digest, Sha256};

use crate::{
    control::{MASK, answer, challenge, challenge_for, check, finish},
    swtpm::Manufacturer,
};

#[test]
fn a_join_goes_through_in_two_rounds() {
    let maker = Manufacturer::new();
    let swtpm = maker.make();
    let mut tpm = Tpm::open(&swtpm.tcti()).unwrap();
    let material = tpm.begin_join().unwrap();
    let pending = challenge(&material, &maker.roots());
    let finished = answer(&mut tpm, &material, &pending).unwrap();
    let attested = finish(&pending, &finished).unwrap();

    // A software TPM without firmware has measured nothing.
    assert_eq!(attested.pcrs.keys().copied().collect::<Vec<u8>>(), (0..10).collect::<Vec<u8>>());
    assert!(attested.pcrs.values().all(|value| *value == [0; 32]));
    // In the clear, since the attestation key is in the endorsement hierarchy: libtpms' build date.
    assert_eq!(attested.clock.firmware_version >> 32, 0x2019_1023);
    assert_eq!(pending.checked.model.model, "swtpm");
    assert_eq!(check_csr(&material.csr_der).unwrap().spki_der, tpm.node_key().unwrap().spki_der());

    // The same TPM again: the same endorsement key and attestation key, another node key.
    let again = challenge(&tpm.begin_join().unwrap(), &maker.roots()).checked;
    assert_eq!(again.ek_fingerprint, pending.checked.ek_fingerprint);
    assert_eq!(again.ak_name, pending.checked.ak_name);
    assert_ne!(again.node_name, pending.checked.node_name);
}

#[test]
fn t1_a_credential_for_another_attestation_key_does_not_open() {
    let maker = Manufacturer::new();
    let (swtpm, other) = (maker.make(), maker.make());
    let other_name = {
        let mut tpm = Tpm::open(&other.tcti()).unwrap();
        challenge(&tpm.begin_join().unwrap(), &maker.roots()).checked.ak_name
    };
    let mut tpm = Tpm::open(&swtpm.tcti()).unwrap();
    let material = tpm.begin_join().unwrap();
    let pending = challenge_for(&material, &maker.roots(), Some(&other_name));
    assert!(matches!(answer(&mut tpm, &material, &pending), Err(DeviceError::ForeignCredential)));
    // Not even the right one opens afterwards: one challenge a join.
    let pending = challenge(&material, &maker.roots());
    assert!(matches!(answer(&mut tpm, &material, &pending), Err(DeviceError::NoJoin)));

    // Made for the other TPM.
    let foreign = {
        let mut tpm = Tpm::open(&other.tcti()).unwrap();
        challenge(&tpm.begin_join().unwrap(), &maker.roots())
    };
    let material = tpm.begin_join().unwrap();
    assert!(matches!(answer(&mut tpm, &material, &foreign), Err(DeviceError::ForeignCredential)));
    // A changed blob, and junk.
    for (at, flip) in [(40, 1), (0, 0xff)] {
        let material = tpm.begin_join().unwrap();
        let mut pending = challenge(&material, &maker.roots());
        pending.challenge.credential_blob[at] ^= flip;
        let error = answer(&mut tpm, &material, &pending).unwrap_err();
        assert!(matches!(error, DeviceError::ForeignCredential), "byte {at}: {error:?}");
    }
}

#[test]
fn t2_wrong_nonce_and_replayed_quote_are_refused() {
    let maker = Manufacturer::new();
    let swtpm = maker.make();
    let mut tpm = Tpm::open(&swtpm.tcti()).unwrap();
    let material = tpm.begin_join().unwrap();
    let first = challenge(&material, &maker.roots());
    let finished = answer(&mut tpm, &material, &first).unwrap();

    let mut other_nonce = challenge(&material, &maker.roots());
    other_nonce.challenge.join_id.clone_from(&first.challenge.join_id);
    other_nonce.secret = first.secret.clone();
    other_nonce.transcript = first.transcript;
    assert_extra_data(&finish(&other_nonce, &finished).unwrap_err());

    // A second join of the same keys; the proof is right, the quote is from the first.
    let blobs = tpm.node_key().unwrap().blobs().clone();
    let material = tpm.begin_join_with(blobs).unwrap();
    let second = challenge(&material, &maker.roots());
    let mut replayed = answer(&mut tpm, &material, &second).unwrap();
    finish(&second, &replayed).unwrap();
    replayed.quote_attest = finished.quote_attest;
    replayed.quote_sig = finished.quote_sig;
    assert_extra_data(&finish(&second, &replayed).unwrap_err());
}

fn assert_extra_data(error: &VerifyError) {
    assert!(matches!(error, VerifyError::Quote(QuoteError::Attest(AttestError::ExtraData))), "{error:?}");
}

#[test]
fn t4_parts_of_another_tpm_or_maker_are_refused() {
    let (maker, stranger) = (Manufacturer::new(), Manufacturer::new());
    let (swtpm, other, foreign) = (maker.make(), maker.make(), stranger.make());
    let material_of = |tcti: &str| Tpm::open(tcti).unwrap().begin_join().unwrap();
    let material = material_of(&swtpm.tcti());
    let other = material_of(&other.tcti());
    let foreign = material_of(&foreign.tcti());
    let roots = maker.roots();

    let mut mixed = material.clone();
    mixed.ek_pub.clone_from(&other.ek_pub);
    let error = check(&mixed, &roots).unwrap_err();
    assert!(matches!(error, VerifyError::Endorsement(EkError::KeyMismatch)), "{error:?}");

    let mut mixed = material.clone();
    mixed.ak_pub.clone_from(&other.ak_pub);
    let error = check(&mixed, &roots).unwrap_err();
    assert!(matches!(error, VerifyError::Certify(CertifyError::Attest(AttestError::Signature))), "{error:?}");

    let error = check(&foreign, &roots).unwrap_err();
    assert!(matches!(error, VerifyError::Endorsement(EkError::Untrusted(_))), "{error:?}");
    assert_eq!(error.code(), "ek_untrusted");
}

#[test]
fn a_changed_or_exchanged_request_is_refused() {
    let maker = Manufacturer::new();
    let swtpm = maker.make();
    let mut tpm = Tpm::open(&swtpm.tcti()).unwrap();
    let material = tpm.begin_join().unwrap();
    let roots = maker.roots();

    let mut changed = material.clone();
    *changed.csr_der.last_mut().unwrap() ^= 1;
    let error = check(&changed, &roots).unwrap_err();
    assert!(matches!(error, VerifyError::Csr(CsrError::Signature)), "{error:?}");

    // Another request by the same key, not certified.
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, "root");
    let mut exchanged = material.clone();
    exchanged.csr_der = params.serialize_request(&*tpm.node_key().unwrap()).unwrap().der().to_vec();
    let error = check(&exchanged, &roots).unwrap_err();
    assert!(matches!(error, VerifyError::Certify(CertifyError::Attest(AttestError::ExtraData))), "{error:?}");

    // The request of the key of another join.
    let second = tpm.begin_join().unwrap();
    let mut exchanged = material;
    exchanged.csr_der = second.csr_der;
    let error = check(&exchanged, &roots).unwrap_err();
    assert!(matches!(error, VerifyError::Csr(CsrError::OtherKey)), "{error:?}");
}

#[test]
fn measured_pcrs_are_quoted_and_their_log_is_checked() {
    let maker = Manufacturer::new();
    let swtpm = maker.make();
    let (first, second) = ([0x11; 32], [0x22; 32]);
    swtpm.tool(&["pcrextend", &format!("4:sha256={}", hex::encode(first))]);
    swtpm.tool(&["pcrextend", &format!("9:sha256={}", hex::encode(second))]);
    let mut tpm = Tpm::open(&swtpm.tcti()).unwrap();
    let material = tpm.begin_join().unwrap();
    let pending = challenge(&material, &maker.roots());
    let mut finished = answer(&mut tpm, &material, &pending).unwrap();
    finished.event_log = event_log(&[(4, first), (9, second)]);
    let attested = finish(&pending, &finished).unwrap();
    for (pcr, digest) in [(4, first), (9, second)] {
        assert_eq!(attested.pcrs[&pcr], *Sha256::digest([[0; 32], digest].concat()), "PCR {pcr}");
    }
    assert_eq!(attested.log.unwrap().events.len(), 2);

    finished.event_log = event_log(&[(4, first)]);
    let error = finish(&pending, &finished).unwrap_err();
    assert!(matches!(error, VerifyError::Quote(QuoteError::Replay(9))), "{error:?}");
}

/// A crypto-agile log of SHA-256 events (EV_IPL, no data).
fn event_log(events: &[(u32, [u8; 32])]) -> Vec<u8> {
    let mut header = b"Spec ID Event03\0".to_vec();
    header.extend_from_slice(&[0, 0, 0, 0, 0, 2, 0, 2, 1, 0, 0, 0, 0x0b, 0, 32, 0, 0]);
    let mut log = [&[0, 0, 0, 0, 3, 0, 0, 0][..], &[0; 20]].concat();
    log.extend_from_slice(&u32::try_from(header.len()).unwrap().to_le_bytes());
    log.extend(header);
    for (pcr, digest) in events {
        log.extend_from_slice(&pcr.to_le_bytes());
        log.extend_from_slice(&[0x0d, 0, 0, 0, 1, 0, 0, 0, 0x0b, 0]);
        log.extend_from_slice(digest);
        log.extend_from_slice(&[0; 4]);
    }
    log
}

#[test]
fn a_mask_that_selects_nothing_is_refused() {
    let maker = Manufacturer::new();
    let swtpm = maker.make();
    let mut tpm = Tpm::open(&swtpm.tcti()).unwrap();
    assert!(matches!(tpm.quote(&[0; 32], MASK), Err(DeviceError::NoJoin)));
    tpm.begin_join().unwrap();
    assert!(matches!(tpm.quote(&[0; 32], 0), Err(DeviceError::Mask(0))));
    assert_eq!(tpm.quote(&[0; 32], 0x00ff_ffff).unwrap().pcr_values.len(), 24);
}
