//! What an admitted site's agent may send in its sessions.
#![no_main]

use ironwright_control_core::session::Opened;
use ironwright_fuzz::{control::World, input::Input};
use ironwright_proto::wire::{AgentFrame, CommandUpdate, Hello, agent_frame::Frame};
use libfuzzer_sys::fuzz_target;

/// Names a command that control has sent, where the update wants that with an id of one byte.
fn name_command(world: &World, update: &mut CommandUpdate) {
    if let [index] = update.id.as_bytes()
        && let Some(id) = world.commands.get(usize::from(*index) % world.commands.len().max(1))
    {
        update.id.clone_from(id);
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input::new(bytes);
    let mut world = World::new();
    while !input.is_empty() {
        let operation = input.byte();
        let now_ms = world.now_ms;
        let output = match operation % 4 {
            0 => {
                let mut hello: Hello = input.message();
                if operation & 4 != 0 {
                    (hello.version, hello.role, hello.site) = (1, "site".into(), "lab".into());
                }
                hello.commands.iter_mut().for_each(|update| name_command(&world, update));
                match world.control.session_open(&world.site, &hello, now_ms, &mut world.rng) {
                    Ok(Opened::Welcome { epoch, output }) => {
                        assert!(epoch > world.epoch, "an epoch that does not grow");
                        world.epoch = epoch;
                        Ok(output)
                    }
                    Ok(Opened::Rejected(_)) => continue,
                    Err(error) => Err(error),
                }
            }
            1 => world.control.tick(now_ms, &mut world.rng),
            _ => {
                let mut frame: AgentFrame = input.message();
                if let Some(Frame::Command(update)) = &mut frame.frame {
                    name_command(&world, update);
                }
                let (node, epoch) = (world.site.node_id.clone(), world.epoch);
                world.control.session_frame(&node, epoch, &frame, now_ms, &mut world.rng)
            }
        };
        match output {
            Ok(output) => world.take(&output),
            Err(error) => panic!("an agent's words are no error of the store: {error}"),
        }
        world.now_ms += i64::from(input.byte()) * 1000;
    }
    world.control.run(&world.run).expect("the run is still there");
});
