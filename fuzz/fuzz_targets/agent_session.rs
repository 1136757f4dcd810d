//! What an agent may find in its journal and hear from its gateway. Effects are performed as the shell does it.
#![no_main]

use std::time::Duration;

use ironwright_agent_core::{
    Agent, CommandEntry, Config, Effect, Input as Happens, Journal, RaisedEvent, Record,
};
use ironwright_fuzz::input::Input;
use ironwright_proto::{
    kinds::{self, Role},
    wire::{CommandError, Event, GatewayFrame, JournalCommand, JournalMark},
};
use libfuzzer_sys::fuzz_target;
use rand::{SeedableRng, rngs::StdRng};

fn journal(input: &mut Input) -> Journal {
    let mut journal = Journal::new("journal".into());
    for _ in 0..input.byte() % 8 {
        let record = match input.byte() % 3 {
            0 => CommandEntry::from_wire(input.message::<JournalCommand>()).map(Record::Command),
            1 => Some(Record::Event(input.message::<Event>())),
            _ => Some(Record::Mark(input.message::<JournalMark>())),
        };
        if let Some(record) = record {
            journal.apply(&record);
        }
    }
    journal
}

fn happens(input: &mut Input, started: &mut Vec<String>) -> Option<Happens> {
    Some(match input.byte() % 7 {
        0 => Happens::Tick,
        1 => Happens::Connected,
        2 => Happens::LinkLost,
        3 => {
            let id = started.pop()?;
            let failed = CommandError { code: "busy".into(), message: String::new() };
            let result = if input.byte() & 1 == 1 { Ok(input.part().to_vec()) } else { Err(failed) };
            Happens::Finished { id, result }
        }
        4 => {
            let json = input.text().to_owned();
            Happens::Raise(RaisedEvent { kind: "log".into(), json, unix_ms: 1 })
        }
        _ => Happens::Frame(input.message::<GatewayFrame>().frame?),
    })
}

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input::new(bytes);
    let config = Config {
        node_id: "n".into(),
        role: Role::Ramdisk,
        boot_id: "b".into(),
        agent_version: "0".into(),
        site: String::new(),
        address: String::new(),
        kinds: vec![kinds::DISK_ERASE, kinds::IMAGE_DEPLOY, kinds::NODE_REBOOT],
        sections: vec!["a", "b"],
    };
    let mut durable = journal(&mut input);
    let mut agent = Agent::new(config, durable.clone(), StdRng::seed_from_u64(7));
    let mut now = Duration::ZERO;
    let mut started = Vec::new();
    let mut effects = agent.step(Happens::Start, now);
    loop {
        for effect in effects {
            match effect {
                Effect::Persist(record) => durable.apply(&record),
                Effect::Start(order) => started.push(order.id.clone()),
                _ => {}
            }
        }
        if input.is_empty() {
            return;
        }
        now += Duration::from_secs(u64::from(input.byte()));
        let Some(happens) = happens(&mut input, &mut started) else { return };
        effects = agent.step(happens, now);
    }
});
