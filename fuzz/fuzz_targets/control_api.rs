//! JSON bodies of the HTTP API, applied.
#![no_main]

use ironwright_fuzz::{control::World, input::Input};
use ironwright_proto::api::{NewDeploy, NewImage, NewMachine, NewSite};
use libfuzzer_sys::fuzz_target;
use serde_json::from_slice;

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input::new(bytes);
    let mut world: Option<World> = None;
    while !input.is_empty() {
        let (operation, body) = (input.byte() % 5, input.part());
        let world = world.get_or_insert_with(World::new);
        let now_ms = world.now_ms;
        match operation {
            0 => {
                if let Ok(new) = from_slice::<NewSite>(body) {
                    let _ = world.control.create_site("alice", &new, now_ms, &mut world.rng);
                }
            }
            1 => {
                if let Ok(new) = from_slice::<NewMachine>(body) {
                    let _ = world.control.create_machine("alice", &new, now_ms);
                }
            }
            2 => {
                if let Ok(new) = from_slice::<NewImage>(body) {
                    let _ = world.control.register_image("alice", &new, now_ms);
                }
            }
            3 => {
                if let Ok(new) = from_slice::<NewDeploy>(body) {
                    let _ = world.control.start_deploy("alice", &new, now_ms, &mut world.rng);
                }
            }
            _ => {
                let id = String::from_utf8_lossy(body);
                let _ = world.control.authenticate(&id);
                let _ = (world.control.machine(&id), world.control.image(&id), world.control.node(&id));
                let _ = world.control.cancel_run("alice", &id, now_ms, &mut world.rng);
            }
        }
        world.now_ms += 1000;
    }
});
