//! The operator's file of TPM makers.
#![no_main]

use ironwright_tpm::verify::EkRoots;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = EkRoots::from_pem(text);
});
