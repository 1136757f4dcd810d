//! Joins, as strangers send them: raw, and honest ones with one part changed.
#![no_main]

use ironwright_fuzz::{control::World, input::Input, soft_tpm};
use ironwright_proto::{
    Message,
    wire::{JoinChallenge, JoinClaim, JoinFinish, RenewRequest, TokenJoin},
};
use libfuzzer_sys::fuzz_target;

const SOURCE: &str = "10.0.0.100";

/// A claim from the input, in which the secrets may be the right ones.
fn claim(world: &World, input: &mut Input) -> JoinClaim {
    let flags = input.byte();
    let honest = world.claim();
    if flags & 1 == 0 {
        return honest;
    }
    let mut claim: JoinClaim = input.message();
    if flags & 2 != 0 {
        claim.join_token = honest.join_token;
    }
    if flags & 4 != 0 {
        (claim.machine_id, claim.mac) = (honest.machine_id, honest.mac);
    }
    if flags & 8 != 0 {
        claim.site_assertion = Some(world.signed_by_site(input.part().to_vec()));
    }
    if flags & 16 != 0 {
        claim.role = honest.role;
    }
    claim
}

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input::new(bytes);
    let mut world = World::new();
    let mut join_id = Vec::new();
    while !input.is_empty() {
        let operation = input.byte();
        let World { now_ms, .. } = world;
        match operation % 5 {
            0 => {
                let _ = world.control.join_begin(SOURCE, input.part(), now_ms, &mut world.rng);
            }
            1 => {
                let mut begin = soft_tpm::begin();
                begin.claim = Some(claim(&world, &mut input));
                let body = begin.encode_to_vec();
                if let Ok(answer) = world.control.join_begin(SOURCE, &body, now_ms, &mut world.rng) {
                    join_id = JoinChallenge::decode(answer.as_slice()).expect("an answer of ours").join_id;
                }
            }
            2 => {
                let mut finish: JoinFinish = input.message();
                if input.byte() & 1 == 1 {
                    finish.join_id.clone_from(&join_id);
                }
                let granted = world.control.join_finish(SOURCE, &finish, now_ms, &mut world.rng);
                assert!(granted.is_err(), "nobody here opens the secret");
            }
            3 => {
                let mut join: TokenJoin = input.message();
                if input.byte() & 1 == 1 {
                    join.claim = Some(claim(&world, &mut input));
                    join.csr_der = soft_tpm::begin().csr_der;
                }
                let _ = world.control.join_with_token(SOURCE, &join, now_ms, &mut world.rng);
            }
            _ => {
                let request = RenewRequest { csr_der: input.part().to_vec() };
                let _ = world.control.renew(&world.site.clone(), &request, now_ms);
            }
        }
        world.now_ms += i64::from(input.byte()) * 1000;
    }
});
