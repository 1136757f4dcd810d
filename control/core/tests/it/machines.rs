//! Machines that are changed and removed after they were enrolled.

use ironwright_control_core::{Change, NodeOrder, audit, session::Opened};
use ironwright_proto::{
    api::{MachineChange, NewMachine, RunState},
    kinds,
    wire::{CommandState, gateway_frame::Frame},
};

use crate::world::{MAC, Machine, World};

const OTHER_MAC: &str = "52:54:00:12:34:57";

fn new(id: &str, mac: &str) -> NewMachine {
    NewMachine {
        id: id.parse().unwrap(),
        mac: mac.parse().unwrap(),
        product_uuid: None,
        site: None,
        allow_no_tpm: false,
    }
}

fn change(
    world: &mut World,
    change: &MachineChange,
) -> Result<ironwright_proto::api::Machine, ironwright_control_core::Error> {
    let now = world.now_ms;
    world.control().change_machine("alice", "web-1", change, now)
}

fn mac(mac: &str) -> MachineChange {
    MachineChange { mac: Some(mac.parse().unwrap()), ..MachineChange::default() }
}

/// The details of the audit entries of an action.
fn logged(world: &mut World, action: &str) -> Vec<serde_json::Value> {
    let events = world.control().events_after(0, 1000).unwrap();
    audit::verify(world.store.data()).unwrap();
    events.into_iter().filter(|event| event.action == action).map(|event| event.detail).collect()
}

#[test]
fn a_machine_is_changed_and_its_mac_stays_its_own() {
    let mut world = World::new();
    let now = world.now_ms;
    world.control().create_machine("admin", &new("web-2", OTHER_MAC), now).unwrap();
    assert_eq!(change(&mut world, &mac(OTHER_MAC)).unwrap_err().code(), "mac_taken");
    assert_eq!(world.control().machine("web-1").unwrap().mac, MAC.parse().unwrap());

    let third = "52:54:00:12:34:58";
    let uuid = "00112233-4455-6677-8899-aabbccddeeff";
    let all = MachineChange {
        product_uuid: Some(uuid.into()),
        site: Some("lab".parse().unwrap()),
        allow_no_tpm: Some(false),
        forget_tpm: true,
        ..mac(third)
    };
    let changed = change(&mut world, &all).unwrap();
    assert_eq!((changed.mac.to_string().as_str(), changed.product_uuid.as_deref()), (third, Some(uuid)));
    assert!(!changed.allow_no_tpm);
    assert_eq!(change(&mut world, &all).unwrap(), changed);
    assert_eq!(change(&mut world, &MachineChange::default()).unwrap(), changed);
    let said = logged(&mut world, "machine.changed");
    assert_eq!(said.len(), 1, "what changes nothing is not logged");
    assert_eq!(
        (said[0]["before"]["mac"].as_str(), said[0]["after"]["mac"].as_str()),
        (Some(MAC), Some(third))
    );
    world.control().create_machine("admin", &new("web-3", MAC), now).unwrap();

    for (wrong, field) in [
        (MachineChange { product_uuid: Some("x".into()), ..MachineChange::default() }, "product_uuid"),
        (MachineChange { site: Some("none".parse().unwrap()), ..MachineChange::default() }, "site"),
    ] {
        assert_eq!(change(&mut world, &wrong).unwrap_err().field(), Some(field));
    }
    assert_eq!(world.control().machine("web-1").unwrap(), changed);
}

#[test]
fn a_machine_that_was_refused_for_want_of_a_tpm_is_let_in_in_the_middle_of_its_run() {
    let mut world = World::new();
    let allow = |allow| MachineChange { allow_no_tpm: Some(allow), ..MachineChange::default() };
    change(&mut world, &allow(false)).unwrap();
    let id = world.deploy();
    world.machine = Machine::Booting;
    world.until(2, |world| !world.refusals.is_empty());
    assert_eq!(world.refusals[0], "tpm_required");
    let shown = world.run(&id).steps[1].waiting_for.clone().unwrap();
    assert!(shown.contains("tpm_required") && shown.contains("set web-1 --allow-no-tpm true"), "{shown}");

    for change_now in [mac(OTHER_MAC), MachineChange { forget_tpm: true, ..MachineChange::default() }] {
        assert_eq!(change(&mut world, &change_now).unwrap_err().code(), "machine_busy");
    }
    change(&mut world, &allow(true)).unwrap();
    world.until_ended(&id, 10);
    world.assert_succeeded(&id);
}

#[test]
fn a_machine_is_removed_with_its_node_and_its_mac_is_free() {
    let mut world = World::new();
    let id = world.deploy();
    let remove = |world: &mut World| {
        let now = world.now_ms;
        world.call(|control, rng| control.remove_machine("alice", "web-1", now, rng))
    };
    let busy = remove(&mut world).unwrap_err();
    assert!(busy.code() == "machine_busy" && busy.to_string().contains(&id), "{busy}");
    world.machine = Machine::Booting;
    world.until_ended(&id, 10);
    let Machine::Joined(agent) = &world.machine else { panic!("the machine has not joined") };
    let (peer, hello, epoch) = (agent.peer.clone(), agent.hello(), agent.session.unwrap());
    let now = world.now_ms;
    let order = NodeOrder {
        node: peer.node_id.clone(),
        kind: kinds::INVENTORY_COLLECT.into(),
        at_most_once: false,
        min_generation: 0,
        not_after_ms: now + 600_000,
    };
    let (command, _) = world.call(|control, rng| control.order("alice", &order, now, rng)).unwrap();
    world.call(|control, rng| control.set_section("alice", &order.node, "x", Some(b"1"), now, rng)).unwrap();

    let (removed, output) = remove(&mut world).unwrap();
    assert_eq!(removed.node_id.as_deref(), Some(peer.node_id.as_str()));
    let frames: Vec<_> = output.frames.iter().filter_map(|(_, frame)| frame.frame.as_ref()).collect();
    assert!(
        matches!(frames.as_slice(), [Frame::Rejected(rejected)] if rejected.code == "revoked"),
        "{frames:?}"
    );
    assert_eq!((output.close.len(), output.close[0].epoch), (1, epoch));
    let control = world.control();
    assert!(!control.peer_is_current(&peer).unwrap());
    assert_eq!(control.node(&peer.node_id).unwrap_err().code(), "unknown_node");
    assert_eq!(control.machine("web-1").unwrap_err().code(), "unknown_machine");
    let ended =
        Change::CommandEnded { id: command, state: CommandState::Failed, code: "node_removed".into() };
    assert_eq!(output.changes, [ended]);
    assert_eq!(control.status("0").unwrap().sessions, 1, "the site's");
    let opened = world.call(|control, rng| control.session_open(&peer, &hello, now, rng)).unwrap();
    assert!(matches!(opened, Opened::Rejected(rejected) if rejected.code == "node_unknown"));
    assert_eq!(world.run(&id).state, RunState::Succeeded, "what was done stays known");
    let said = logged(&mut world, "machine.removed");
    assert_eq!((said.len(), said[0]["mac"].as_str()), (1, Some(MAC)));

    // Its silence means nothing to anybody, and its name and MAC are free.
    world.machine = Machine::Off;
    for _ in 0..200 {
        world.round();
    }
    let now = world.now_ms;
    let again = world.control().create_machine("alice", &new("web-1", MAC), now).unwrap();
    assert_eq!((again.node_id, again.ek_fingerprint), (None, None));
    assert_eq!(remove(&mut world).unwrap().0.id, again.id);
}

#[test]
fn a_machine_is_removed_only_after_a_cancelled_run_has_cleaned_up() {
    let mut world = World::new();
    let id = world.deploy();
    world.machine = Machine::Booting;
    world.until(5, |world| world.step_of(&id).as_deref() == Some("image.deploy"));
    world.cancel(&id);
    let removed = |world: &mut World| {
        let now = world.now_ms;
        world.call(|control, rng| control.remove_machine("alice", "web-1", now, rng)).map(|_| ())
    };
    assert_eq!(removed(&mut world).unwrap_err().code(), "machine_busy");
    // The machine goes on working while it is waited for.
    world.until(10, |world| removed(world).is_ok());
    for _ in 0..10 {
        world.round();
    }
}

#[test]
fn a_run_that_still_cleans_up_after_a_newer_one_outlives_its_machine() {
    let mut world = World::new();
    let first = world.deploy();
    world.machine = Machine::Booting;
    world.until(5, |world| world.step_of(&first).as_deref() == Some("image.deploy"));
    // The machine hangs, so the order that is called back does not end; the newer run waits for that.
    world.machine = Machine::Off;
    world.cancel(&first);
    let second = world.deploy();
    world.cancel(&second);
    let now = world.now_ms;
    world.call(|control, rng| control.remove_machine("alice", "web-1", now, rng)).unwrap();
    for _ in 0..600 {
        world.now_ms += 1000;
        let now = world.now_ms;
        world.call(|control, rng| control.tick(now, rng)).unwrap();
    }
    assert_eq!(world.run(&first).state, RunState::Cancelled);
}
