//! The endorsement certificates of a TPM: as they are in its NV, and signed by a trusted maker whatever they say.
#![no_main]

use ironwright_fuzz::{
    input::Input,
    soft_tpm::{NOW_S, begin, certificate, roots},
};
use ironwright_tpm::verify::check_begin;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input::new(bytes);
    let flags = input.byte();
    let mut begin = begin();
    if flags & 1 == 0 {
        begin.ek_certs = vec![input.part().to_vec()];
        begin.ek_ca_chain = vec![input.rest().to_vec()];
    } else {
        begin.ek_certs = vec![certificate(input.rest())];
    }
    let _ = check_begin(&begin, &roots(), NOW_S);
});
