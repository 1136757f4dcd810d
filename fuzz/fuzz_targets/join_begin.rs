//! The first round of a join, as it comes from a stranger.
#![no_main]

use ironwright_fuzz::soft_tpm::{NOW_S, roots};
use ironwright_proto::{Message, wire::JoinBegin};
use ironwright_tpm::verify::{EkPublic, check_begin};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(begin) = JoinBegin::decode(bytes) else { return };
    if let Ok(checked) = check_begin(&begin, &roots(), NOW_S) {
        assert_eq!(checked.ak_pub, begin.ak_pub);
        assert!(matches!(checked.ek, EkPublic::P256 { .. }), "the only certificate is for a P-256 key");
    }
});
