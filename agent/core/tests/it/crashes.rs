//! Crashes: what each stage means after a restart, and that no interleaving breaks the promises.

use std::collections::BTreeMap;

use ironwright_agent_core::{Effect, Input, Journal, RaisedEvent, Stage, fail};
use ironwright_proto::{
    kinds,
    wire::{Command, CommandAck, CommandState, EventAck, gateway_frame::Frame as FromGateway},
};
use proptest::prelude::*;

use crate::rig::{BOOT, Rig, T0, command, starts, updates, welcome};

fn outcome(rig: &Rig, id: &str) -> (CommandState, String) {
    let Some(Stage::Done { update, .. }) = rig.stage(id) else { panic!("{id} is not done") };
    let code = update.error.as_ref().map(|error| error.code.clone()).unwrap_or_default();
    (update.state(), if code.is_empty() { update.outcome.clone() } else { code })
}

#[test]
fn an_accepted_command_runs_again_if_it_is_retry_safe() {
    let mut rig = Rig::open();
    rig.deliver(command("safe", kinds::IMAGE_DEPLOY));
    rig.deliver(Command { retry_safe: false, ..command("unsafe", kinds::DISK_ERASE) });
    assert_eq!(starts(&rig.restart(BOOT)), ["safe"]);
    assert_eq!(outcome(&rig, "unsafe"), (CommandState::Failed, "interrupted".into()));
    let told = updates(&rig.open_session(T0));
    assert_eq!(told, [("unsafe".into(), CommandState::Failed, "interrupted".into())]);
    rig.finish("safe", Ok(vec![]));
    assert_eq!(outcome(&rig, "safe").0, CommandState::Succeeded);
}

#[test]
fn a_command_past_its_time_is_not_started_again() {
    let mut rig = Rig::open();
    rig.deliver(command("c1", kinds::IMAGE_DEPLOY));
    rig.step(Input::LinkLost);
    rig.open_session(T0 + 60_000);
    assert!(starts(&rig.restart(BOOT)).is_empty());
    assert_eq!(outcome(&rig, "c1"), (CommandState::Failed, "expired".into()));
}

#[test]
fn a_reboot_has_succeeded_when_the_boot_id_changed() {
    let mut rig = Rig::open();
    rig.deliver(command("c1", kinds::NODE_REBOOT));
    assert!(starts(&rig.restart("boot-2")).is_empty());
    assert_eq!(outcome(&rig, "c1"), (CommandState::Succeeded, "rebooted".into()));
}

#[test]
fn a_reboot_in_the_same_boot_was_interrupted() {
    let mut rig = Rig::open();
    rig.deliver(command("c1", kinds::NODE_REBOOT));
    assert!(starts(&rig.restart(BOOT)).is_empty());
    assert_eq!(outcome(&rig, "c1"), (CommandState::Failed, "interrupted".into()));
}

#[test]
fn a_reboot_that_was_accepted_but_not_begun_was_interrupted() {
    let mut rig = Rig::open();
    let effects =
        rig.agent.step(Input::Frame(FromGateway::Command(command("c1", kinds::NODE_REBOOT))), rig.now);
    let Effect::Persist(accepted) = &effects[0] else { panic!("{effects:?}") };
    rig.disk.apply(accepted);
    rig.restart("boot-2");
    assert_eq!(outcome(&rig, "c1"), (CommandState::Failed, "interrupted".into()));
}

/// What can happen to an agent, by small numbers so that collisions are common.
#[derive(Debug, Clone)]
enum Op {
    Deliver(u8),
    Finish(u8, bool),
    Ack(u8),
    Raise(u16),
    EventAck(u8),
    LinkLost,
    Reconnect(u16),
    Wait(u32),
    Cancel(u8),
    /// The process ends after this many effects of its next delivery were performed.
    Crash {
        id: u8,
        performed: u8,
        new_boot: bool,
    },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let id = 0..8u8;
    let op = prop_oneof![
        4 => id.clone().prop_map(Op::Deliver),
        2 => (id.clone(), any::<bool>()).prop_map(|(id, ok)| Op::Finish(id, ok)),
        1 => id.clone().prop_map(Op::Ack),
        1 => (0..200u16).prop_map(Op::Raise),
        1 => any::<u8>().prop_map(Op::EventAck),
        1 => Just(Op::LinkLost),
        2 => any::<u16>().prop_map(Op::Reconnect),
        1 => (0..100_000u32).prop_map(Op::Wait),
        1 => id.clone().prop_map(Op::Cancel),
        2 => (id, 0..5u8, any::<bool>()).prop_map(|(id, performed, new_boot)| Op::Crash { id, performed, new_boot }),
    ];
    proptest::collection::vec(op, 1..60)
}

/// Command `n` is always the same one: some are retry safe, some not, some reboot.
fn numbered(n: u8) -> Command {
    let kind = [kinds::DISK_ERASE, kinds::INVENTORY_COLLECT, kinds::NODE_REBOOT, kinds::IMAGE_DEPLOY];
    let mut command = command(&format!("c{n}"), kind[usize::from(n % 4)]);
    command.retry_safe = n >= 4;
    command.not_after_unix_ms = i64::MAX;
    command
}

fn runs_at_most_once(id: &str) -> bool {
    let n: u8 = id[1..].parse().unwrap();
    n < 4 || numbered(n).kind == kinds::NODE_REBOOT
}

struct World {
    rig: Rig,
    boots: u32,
    started: BTreeMap<String, u32>,
}

impl World {
    /// Performs the first `count` effects, as a process does that ends after them.
    fn perform(&mut self, effects: &[Effect], count: usize) {
        for effect in effects.iter().take(count) {
            match effect {
                Effect::Persist(record) => self.rig.disk.apply(record),
                Effect::Start(order) => {
                    let durable = self.rig.disk.command(&order.id).map(|entry| &entry.stage);
                    assert!(matches!(durable, Some(Stage::Accepted | Stage::Running { .. })), "{durable:?}");
                    *self.started.entry(order.id.clone()).or_default() += 1;
                }
                _ => {}
            }
        }
    }

    fn step(&mut self, input: Input) {
        let effects = self.rig.agent.step(input, self.rig.now);
        self.perform(&effects, usize::MAX);
        assert_eq!(&self.rig.disk, self.rig.agent.journal(), "replay gives the same state");
    }

    fn apply(&mut self, op: &Op) {
        let frame = |frame| Input::Frame(frame);
        match *op {
            Op::Deliver(n) => self.step(frame(FromGateway::Command(numbered(n)))),
            Op::Finish(n, ok) => {
                let result = if ok { Ok(vec![n]) } else { Err(fail("broken", "")) };
                self.step(Input::Finished { id: format!("c{n}"), result });
            }
            Op::Ack(n) => self.step(frame(FromGateway::CommandAck(CommandAck { id: format!("c{n}") }))),
            Op::Raise(bytes) => self.step(Input::Raise(RaisedEvent {
                kind: "log".into(),
                json: "x".repeat(usize::from(bytes) * 100),
                unix_ms: 0,
            })),
            Op::EventAck(seq) => {
                self.step(frame(FromGateway::EventAck(EventAck { through_seq: seq.into() })));
            }
            Op::LinkLost => self.step(Input::LinkLost),
            Op::Reconnect(later) => {
                self.step(Input::LinkLost);
                self.rig.now = self.rig.now.max(self.rig.agent.next_deadline().unwrap_or_default());
                self.step(Input::Tick);
                self.step(Input::Connected);
                self.step(frame(FromGateway::Welcome(welcome(T0 + i64::from(later)))));
            }
            Op::Wait(ms) => {
                self.rig.now += std::time::Duration::from_millis(ms.into());
                self.step(Input::Tick);
            }
            Op::Cancel(n) => {
                let cancel = ironwright_proto::wire::Cancel { id: format!("c{n}") };
                self.step(frame(FromGateway::Cancel(cancel)));
            }
            Op::Crash { id, performed, new_boot } => {
                let delivery = frame(FromGateway::Command(numbered(id)));
                let effects = self.rig.agent.step(delivery, self.rig.now);
                self.perform(&effects, performed.into());
                self.boots += u32::from(new_boot);
                self.rig = Rig::on(self.rig.disk.clone(), &format!("boot-{}", self.boots));
                self.step(Input::Start);
            }
        }
    }
}

proptest! {
    #[test]
    fn no_interleaving_starts_an_unsafe_command_twice_or_loses_a_record(ops in ops()) {
        let rig = Rig::on(Journal::new("j".into()), "boot-0");
        let mut world = World { rig, boots: 0, started: BTreeMap::new() };
        world.step(Input::Start);
        world.apply(&Op::Reconnect(0));
        for op in &ops {
            world.apply(op);
        }
        for (id, count) in &world.started {
            prop_assert!(*count <= 1 || !runs_at_most_once(id), "{} was started {} times", id, count);
        }
        for lane in kinds::Lane::ALL {
            let of_lane = |id: &str| kinds::find(id).is_some_and(|kind| kind.lane == lane);
            let running = world.rig.disk.unfinished().filter(|entry| of_lane(&entry.command.kind)).count();
            prop_assert!(running <= lane.credits());
        }
    }
}
