//! Two gateways on one store.

use ironwright_control_core::{
    Change, Control, NodeOrder, Output,
    session::{Opened, Peer},
};
use ironwright_proto::{
    api::NodeState,
    kinds,
    wire::{self, agent_frame, gateway_frame},
};

use crate::{
    crash::CrashStore,
    world::{Machine, World, settings},
};

/// A world whose machine runs its operating system, and a second gateway.
pub(crate) fn two() -> (World, Control<CrashStore>, Peer, wire::Hello) {
    let mut world = World::new();
    let run = world.deploy();
    world.machine = Machine::Booting;
    world.until_ended(&run, 30);
    let Machine::Joined(agent) = &world.machine else { panic!("the machine has not joined") };
    let (peer, hello) = (agent.peer.clone(), agent.hello());
    let other = Control::new(world.store.clone(), settings("other"), world.now_ms).unwrap();
    (world, other, peer, hello)
}

fn open(control: &mut Control<CrashStore>, world: &mut World, peer: &Peer, hello: &wire::Hello) -> u64 {
    match control.session_open(peer, hello, world.now_ms, &mut world.rng).unwrap() {
        Opened::Welcome { epoch, .. } => epoch,
        Opened::Rejected(rejected) => panic!("{rejected:?}"),
    }
}

/// Ticks of one second; what follows from them.
pub(crate) fn ticks(control: &mut Control<CrashStore>, world: &mut World, seconds: u32) -> Output {
    let mut all = Output::default();
    for _ in 0..seconds {
        world.now_ms += 1000;
        let mut output = control.tick(world.now_ms, &mut world.rng).unwrap();
        all.frames.append(&mut output.frames);
        all.close.append(&mut output.close);
        all.changes.append(&mut output.changes);
    }
    all
}

fn unreachable(node: &str) -> Change {
    Change::NodeState { node: node.to_owned(), state: NodeState::Unreachable }
}

#[test]
fn a_node_that_moved_to_another_gateway_is_not_missed_by_the_first() {
    let (mut world, mut other, peer, hello) = two();
    // It watches the node as it knew it.
    let mut first = Control::new(world.store.clone(), settings("control"), world.now_ms).unwrap();
    open(&mut other, &mut world, &peer, &hello);
    let said = ticks(&mut first, &mut world, 100);
    assert!(!said.changes.contains(&unreachable(&peer.node_id)), "{:?}", said.changes);
}

#[test]
fn the_nodes_of_a_dead_gateway_are_adopted_and_then_missed() {
    let (mut world, mut other, peer, hello) = two();
    let mut first = Control::new(world.store.clone(), settings("control"), world.now_ms).unwrap();
    open(&mut first, &mut world, &peer, &hello);
    ticks(&mut first, &mut world, 1);
    // The first one is dead from here on: 30 s, in which the second looks every 10 s, then 40 s of silence.
    let said = ticks(&mut other, &mut world, 70);
    assert!(!said.changes.contains(&unreachable(&peer.node_id)));
    let said = ticks(&mut other, &mut world, 11);
    assert!(said.changes.contains(&unreachable(&peer.node_id)));
}

#[test]
fn a_gateway_that_was_taken_for_dead_ends_its_sessions() {
    let (mut world, mut other, peer, hello) = two();
    let mut first = Control::new(world.store.clone(), settings("control"), world.now_ms).unwrap();
    let epoch = open(&mut first, &mut world, &peer, &hello);
    ticks(&mut first, &mut world, 1);
    ticks(&mut other, &mut world, 60);
    let pong = wire::AgentFrame { frame: Some(agent_frame::Frame::Pong(wire::Pong { seq: 1 })) };
    let now = world.now_ms;
    let output = first.session_frame(&peer.node_id, epoch, &pong, now, &mut world.rng).unwrap();
    assert_eq!(output.close.len(), 1);
    assert!(!first.node(&peer.node_id).unwrap().connected);
}

#[test]
fn an_order_given_at_one_gateway_reaches_the_node_at_the_other() {
    let (mut world, mut other, peer, hello) = two();
    let epoch = open(&mut other, &mut world, &peer, &hello);
    ticks(&mut other, &mut world, 1);
    let order = NodeOrder {
        node: peer.node_id.clone(),
        kind: kinds::INVENTORY_COLLECT.to_owned(),
        at_most_once: true,
        min_generation: 0,
        not_after_ms: world.now_ms + 60_000,
    };
    let mut first = Control::new(world.store.clone(), settings("control"), world.now_ms).unwrap();
    let (id, output) = first.order("alice", &order, world.now_ms, &mut world.rng).unwrap();
    assert!(output.frames.is_empty());
    let said = ticks(&mut other, &mut world, 1);
    let [(to, wire::GatewayFrame { frame: Some(gateway_frame::Frame::Command(command)) })] = &said.frames[..]
    else {
        panic!("{:?}", said.frames)
    };
    assert_eq!((to.epoch, &command.id, command.retry_safe), (epoch, &id, false));
    assert!(ticks(&mut other, &mut world, 5).frames.is_empty(), "sent once");
}
