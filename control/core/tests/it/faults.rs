//! Machines and sites that fail on the way.

use ironwright_proto::{api::NodeState, kinds, wire};
use proptest::prelude::*;

use crate::{
    agents::Key,
    world::{Entry, MAC, Machine, World},
};

fn started() -> (World, String) {
    let mut world = World::new();
    let run = world.deploy();
    world.machine = Machine::Booting;
    (world, run)
}

#[test]
fn power_lost_while_imaging_starts_the_same_order_over() {
    let (mut world, id) = started();
    world.until(5, |world| world.step_of(&id).as_deref() == Some("image.deploy"));
    world.until(5, |world| world.carried_out.iter().any(|(kind, _)| kind == kinds::IMAGE_DEPLOY));
    world.power_cycle();
    world.until_ended(&id, 10);
    world.assert_succeeded(&id);
    let begun: Vec<_> = world.carried_out.iter().filter(|(kind, _)| kind == kinds::IMAGE_DEPLOY).collect();
    assert_eq!(begun.len(), 2, "begun twice");
    assert_eq!(begun[0], begun[1], "under one id");
}

#[test]
fn a_machine_that_lost_power_before_it_joined_finds_a_fresh_token() {
    let (mut world, id) = started();
    world.until(5, |world| matches!(world.machine, Machine::Starting(_)));
    assert_eq!(world.entry, Some(Entry::Ramdisk { token: None }), "served once");
    world.machine = Machine::Off;
    world.until(1, |world| matches!(world.entry, Some(Entry::Ramdisk { token: Some(_) })));
    world.machine = Machine::Booting;
    world.until_ended(&id, 5);
    world.assert_succeeded(&id);
    assert!(world.refusals.is_empty());
}

#[test]
fn a_run_shows_that_its_machine_was_refused_until_that_is_over() {
    let mut world = World::new();
    let id = world.deploy();
    world.until(5, |world| world.step_of(&id).as_deref() == Some("ramdisk.join"));
    let shown = |world: &mut World| world.run(&id).steps[1].waiting_for.clone().unwrap();
    assert!(shown(&mut world).starts_with("waiting for web-1"), "{}", shown(&mut world));
    let refused = |world: &mut World, machine: &str, mac: &str| {
        let key = Key::new(&mut world.rng);
        let claim = wire::JoinClaim {
            machine_id: machine.into(),
            role: "ramdisk".into(),
            join_token: "iwj_stray".into(),
            mac: mac.into(),
            ..wire::JoinClaim::default()
        };
        world.token_join(&key, &claim).unwrap_err();
    };
    refused(&mut world, "web-2", MAC);
    refused(&mut world, "../web-1", MAC);
    assert!(shown(&mut world).starts_with("waiting for web-1"), "{}", shown(&mut world));
    refused(&mut world, "web-1", MAC);
    let why = "web-1: its join was refused: token_unknown (no token has the hash ";
    assert!(shown(&mut world).starts_with(why), "{}", shown(&mut world));
    let version = world.run(&id).version;
    for _ in 0..1000 {
        refused(&mut world, "web-1", &"x".repeat(5000));
    }
    let why = shown(&mut world);
    assert!(why.starts_with("web-1: its join was refused: unknown_machine (machine web-1 has MAC"), "{why}");
    assert!(why.len() < 300, "{why}");
    assert!(world.run(&id).version - version <= 300, "bounded as the audit log is");
    world.round();
    assert_eq!(shown(&mut world), why, "a look of the run does not hide it");

    world.machine = Machine::Booting;
    world.until(5, |world| world.step_of(&id).as_deref() == Some("image.deploy"));
    world.until(1, |world| world.run(&id).steps[4].waiting_for.is_some());
    let run = world.run(&id);
    assert!(
        run.steps.iter().all(|step| step.waiting_for.as_ref().is_none_or(|why| !why.contains("refused")))
    );
    world.until_ended(&id, 5);
    world.assert_succeeded(&id);
}

#[test]
fn a_run_that_ends_at_its_limit_names_the_last_refusal() {
    let mut world = World::new();
    let id = world.deploy();
    world.until(5, |world| world.step_of(&id).as_deref() == Some("ramdisk.join"));
    let (key, claim) =
        (Key::new(&mut world.rng), wire::JoinClaim { machine_id: "web-1".into(), ..Default::default() });
    world.token_join(&key, &claim).unwrap_err();
    let error = world.until_ended(&id, 70).error.unwrap();
    assert_eq!(error.code, "step_timed_out");
    assert!(error.message.contains("its join was refused: malformed"), "{}", error.message);
}

#[test]
fn a_refill_ends_with_imaging() {
    let (mut world, id) = started();
    world.until_ended(&id, 5);
    let sent = world.sent_of(kinds::BOOT_PREPARE);
    let site = world.site.as_mut().unwrap();
    site.raise("boot.fetched", r#"{"mac":"52:54:00:12:34:56"}"#);
    for _ in 0..5 {
        world.round();
    }
    assert_eq!(world.sent_of(kinds::BOOT_PREPARE), sent);
    assert_eq!(world.entry, Some(Entry::Local));
}

#[test]
fn the_same_event_sent_twice_counts_once() {
    let (mut world, id) = started();
    world.until(5, |world| world.step_of(&id).as_deref() == Some("image.deploy"));
    let before = world.sent_of(kinds::BOOT_PREPARE);
    let site = world.site.as_ref().unwrap();
    let (node, epoch, now) = (site.peer.node_id.clone(), site.session.unwrap(), world.now_ms);
    let event = wire::Event {
        seq: 77,
        kind: "boot.fetched".into(),
        unix_ms: 0,
        json: r#"{"mac":"52-54-00-12-34-56"}"#.into(),
    };
    let frame = wire::AgentFrame { frame: Some(wire::agent_frame::Frame::Event(event)) };
    let mut orders = 0;
    for _ in 0..2 {
        let output =
            world.call(|control, rng| control.session_frame(&node, epoch, &frame, now, rng)).unwrap();
        let kinds: Vec<_> = output.frames.iter().filter_map(|(_, frame)| frame.frame.as_ref()).collect();
        assert!(kinds.iter().any(|frame| matches!(frame,
            wire::gateway_frame::Frame::EventAck(ack) if ack.through_seq == 77)));
        orders += kinds.iter().filter(|f| matches!(f, wire::gateway_frame::Frame::Command(_))).count();
    }
    assert_eq!(orders, 1);
    assert_eq!(world.sent_of(kinds::BOOT_PREPARE), before, "counted by hand here");
}

#[test]
fn when_the_lease_moves_the_new_agent_gets_the_boot_entry() {
    let mut world = World::new();
    let id = world.deploy();
    world.until(5, |world| world.step_of(&id).as_deref() == Some("ramdisk.join"));
    // The first agent is gone for good; a second one joins and takes the lapsed lease.
    let second = world.join_site();
    world.break_sessions();
    world.site = Some(second);
    world.entry = None;
    world.round();
    assert_eq!(world.site.as_ref().unwrap().lease_epoch, 0, "the old lease still holds");
    world.until(2, |world| matches!(world.entry, Some(Entry::Ramdisk { .. })));
    assert_eq!(world.site.as_ref().unwrap().lease_epoch, 2);
    world.machine = Machine::Booting;
    world.until_ended(&id, 5);
    world.assert_succeeded(&id);
}

#[test]
fn a_machine_that_falls_silent_is_unreachable_after_forty_seconds_and_not_before() {
    let (mut world, id) = started();
    world.until_ended(&id, 5);
    let node = world.control().machine("web-1").unwrap().node_id.unwrap();
    world.break_sessions();
    world.machine = Machine::Off;
    let silent_since = world.now_ms;
    world.until(2, |world| world.control().node(&node).unwrap().state == NodeState::Unreachable);
    let silent_ms = world.now_ms - silent_since;
    assert!((30_000..=40_500).contains(&silent_ms), "last heartbeat up to 10 s earlier: {silent_ms}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn the_run_survives_any_mix_of_faults(
        crashes in proptest::collection::btree_set(1u64..100, 0..15),
        faults in proptest::collection::vec((0u8..3, 1u32..12), 0..8),
    ) {
        let mut world = World::crashing(crashes);
        let id = world.deploy();
        world.machine = Machine::Booting;
        for (fault, rounds) in faults {
            for _ in 0..rounds {
                world.round();
            }
            let step = world.step_of(&id).unwrap_or_default();
            let provisioning = ["ramdisk.join", "inventory.collect", "disk.erase", "image.deploy"];
            match fault {
                // Later than imaging a machine without a TPM has no token to boot the ramdisk again.
                0 if provisioning.contains(&step.as_str()) => world.power_cycle(),
                1 => world.break_sessions(),
                2 => world.crash(),
                _ => {}
            }
        }
        world.until_ended(&id, 30);
        world.assert_succeeded(&id);
    }
}
