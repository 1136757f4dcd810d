//! Which endorsement key is used: by the certificates that the TPM has.

use ironwright_tpm::{
    device::{DeviceError, Tpm},
    verify::{EkError, EkPublic, EkRoots, VerifyError},
};

use crate::{
    control::{answer, challenge, check, finish},
    swtpm::{Manufacturer, Swtpm},
};

const RSA_CERTIFICATE: &str = "0x01c00002";
const P256_CERTIFICATE: &str = "0x01c0000a";
const P384_CERTIFICATE: &str = "0x01c00016";
const CA_CHAIN: &str = "0x01c00100";

/// A whole join; gives the endorsement key that it used.
fn join(swtpm: &Swtpm, roots: &EkRoots) -> EkPublic {
    let mut tpm = Tpm::open(&swtpm.tcti()).unwrap();
    let material = tpm.begin_join().unwrap();
    let pending = challenge(&material, roots);
    let finished = answer(&mut tpm, &material, &pending).unwrap();
    finish(&pending, &finished).unwrap();
    pending.checked.ek
}

#[test]
fn without_a_p256_certificate_p384_and_then_rsa_are_used() {
    let maker = Manufacturer::new();
    let swtpm = maker.make();
    // This software TPM makes RSA-2048 and P-384.
    assert!(matches!(join(&swtpm, &maker.roots()), EkPublic::P384 { .. }));
    swtpm.undefine(P384_CERTIFICATE);
    assert!(matches!(join(&swtpm, &maker.roots()), EkPublic::Rsa2048 { .. }));
}

#[test]
fn no_certificate_is_a_result_of_its_own_and_p256_is_preferred() {
    let maker = Manufacturer::new();
    let swtpm = maker.make();
    swtpm.undefine(P384_CERTIFICATE);
    swtpm.undefine(RSA_CERTIFICATE);
    let material = Tpm::open(&swtpm.tcti()).unwrap().begin_join().unwrap();
    assert!(material.ek_certs.is_empty());
    let error = check(&material, &maker.roots()).unwrap_err();
    assert!(matches!(error, VerifyError::Endorsement(EkError::NoCertificate)), "{error:?}");

    // The manufacturer certifies the P-256 key; its coordinates end the public area, 2 + 32 bytes each.
    let unique = &material.ek_pub[material.ek_pub.len() - 68..];
    let certificate = maker.certify_p256(&unique[2..34], &unique[36..]);
    // With padding behind it, as real TPMs have it.
    swtpm.define(P256_CERTIFICATE, &[&certificate[..], &[0xff; 60]].concat());
    assert!(matches!(join(&swtpm, &maker.roots()), EkPublic::P256 { .. }));
}

#[test]
fn p3_the_ca_chain_is_read_from_nv() {
    let maker = Manufacturer::new();
    let swtpm = maker.make();
    let root_only = EkRoots::from_pem(&maker.root_pem()).unwrap();
    let material = Tpm::open(&swtpm.tcti()).unwrap().begin_join().unwrap();
    let error = check(&material, &root_only).unwrap_err();
    assert!(matches!(error, VerifyError::Endorsement(EkError::Untrusted(_))), "{error:?}");
    // In two indices, cut in the middle.
    let issuer = maker.issuer_der();
    let (front, back) = issuer.split_at(700);
    swtpm.define(CA_CHAIN, front);
    swtpm.define("0x01c00101", back);
    join(&swtpm, &root_only);
}

#[test]
fn t20_a_tpm_with_the_certificate_of_another_is_noticed_before_use() {
    let maker = Manufacturer::new();
    let (swtpm, other) = (maker.make(), maker.make());
    let others = Tpm::open(&other.tcti()).unwrap().begin_join().unwrap().ek_certs.remove(0);
    swtpm.undefine(P384_CERTIFICATE);
    swtpm.define(P384_CERTIFICATE, &others);
    let error = Tpm::open(&swtpm.tcti()).unwrap().begin_join().unwrap_err();
    assert!(matches!(error, DeviceError::EndorsementCertificate(EkError::KeyMismatch)), "{error:?}");
}
