//! A certificate request: as it comes, and signed by the node key whatever it says.
#![no_main]

use ironwright_fuzz::{input::Input, soft_tpm::request};
use ironwright_tpm::verify::check_csr;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input::new(bytes);
    let signed = input.byte() & 1 == 1;
    let request = if signed { request(input.rest()) } else { input.rest().to_vec() };
    if let Ok(checked) = check_csr(&request) {
        assert!(request.windows(checked.spki_der.len()).any(|part| part == checked.spki_der));
    }
});
