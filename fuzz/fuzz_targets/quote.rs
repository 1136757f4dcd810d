//! The second round of a join: as it comes, and under a signature that holds.
#![no_main]

use ironwright_fuzz::soft_tpm::{QUOTE_EXTRA, QUOTE_MASK, attestation_signature, begin};
use ironwright_proto::{Message, wire::JoinFinish};
use ironwright_tpm::verify::check_quote;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut finish) = JoinFinish::decode(bytes) else { return };
    let ak_pub = begin().ak_pub;
    let _ = check_quote(&ak_pub, &QUOTE_EXTRA, QUOTE_MASK, &finish);
    finish.quote_sig = attestation_signature(&finish.quote_attest);
    if let Ok(attested) = check_quote(&ak_pub, &QUOTE_EXTRA, QUOTE_MASK, &finish) {
        assert!(attested.pcrs.keys().copied().eq(0..8), "exactly the PCRs that were asked for");
    }
    // A key that is none.
    let _ = check_quote(&finish.quote_attest, &QUOTE_EXTRA, QUOTE_MASK, &finish);
});
