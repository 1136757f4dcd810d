//! What an attestation key says of the node key, under a signature that holds.
#![no_main]

use ironwright_fuzz::soft_tpm::{NOW_S, attestation_signature, begin, roots};
use ironwright_tpm::verify::check_begin;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut begin = begin();
    let honest = begin.certify_attest.clone();
    begin.certify_attest = bytes.to_vec();
    begin.certify_sig = attestation_signature(bytes);
    if check_begin(&begin, &roots(), NOW_S).is_ok() {
        // Magic, kind and extra data; the qualified signer and the clock are the TPM's own affair.
        assert_eq!(bytes[..6], honest[..6]);
        assert!(bytes.windows(32).any(|part| part == &honest[44..76]), "another request");
    }
});
