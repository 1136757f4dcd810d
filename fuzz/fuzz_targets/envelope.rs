//! A signed envelope: as it comes, and with a signature that holds over whatever it carries.
#![no_main]

use ironwright_proto::{
    Message,
    envelope::{SITE_ASSERTION, TIME, open, pre_auth_encoding},
    wire::{Envelope, SiteAssertion, TimePayload},
};
use libfuzzer_sys::fuzz_target;
use p256::ecdsa::{Signature, SigningKey, signature::Signer};

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut envelope) = Envelope::decode(bytes) else { return };
    let key = SigningKey::from_slice(&[7; 32]).expect("a scalar in range");
    let _ = open::<TimePayload>(&envelope, TIME, key.verifying_key());
    envelope.payload_type = SITE_ASSERTION.into();
    let unsigned = open::<SiteAssertion>(&envelope, SITE_ASSERTION, key.verifying_key());
    assert!(unsigned.is_err(), "a forged signature");
    let signature: Signature = key.sign(&pre_auth_encoding(SITE_ASSERTION, &envelope.payload));
    envelope.signature = signature.to_der().as_bytes().to_vec();
    let decoded = SiteAssertion::decode(envelope.payload.as_slice());
    assert_eq!(open(&envelope, SITE_ASSERTION, key.verifying_key()).ok(), decoded.ok());
});
