//! Desired state: sent until it is observed.

use ironwright_control_core::{Control, Error, NodeOrder, Output, SpecStatus, session::Opened};
use ironwright_proto::{
    kinds,
    wire::{self, agent_frame, gateway_frame::Frame},
};

use crate::{crash::CrashStore, gateways::two, world::World};

fn specs(output: &Output) -> Vec<u64> {
    let generation = |frame: &wire::GatewayFrame| match &frame.frame {
        Some(Frame::Spec(spec)) => Some(spec.generation),
        _ => None,
    };
    output.frames.iter().filter_map(|(_, frame)| generation(frame)).collect()
}

fn set(control: &mut Control<CrashStore>, world: &mut World, node: &str, body: &[u8]) -> Output {
    let now = world.now_ms;
    control.set_section("alice", node, "network", Some(body), now, &mut world.rng).unwrap().1
}

/// What a session opens with.
fn greet(
    control: &mut Control<CrashStore>,
    world: &mut World,
    peer: &ironwright_control_core::session::Peer,
    hello: &wire::Hello,
) -> (u64, Output) {
    match control.session_open(peer, hello, world.now_ms, &mut world.rng).unwrap() {
        Opened::Welcome { epoch, output } => (epoch, output),
        Opened::Rejected(rejected) => panic!("{rejected:?}"),
    }
}

#[test]
fn a_spec_is_sent_once_in_a_session_and_again_until_it_is_observed() {
    let (mut world, mut control, peer, hello) = two();
    let node = peer.node_id.clone();
    greet(&mut control, &mut world, &peer, &hello);
    assert_eq!(specs(&set(&mut control, &mut world, &node, b"1")), [1]);
    assert_eq!(specs(&set(&mut control, &mut world, &node, b"1")), [0; 0], "nothing has changed");
    assert_eq!(specs(&set(&mut control, &mut world, &node, b"2")), [2]);
    let (epoch, output) = greet(&mut control, &mut world, &peer, &hello);
    assert_eq!(specs(&output), [2], "it was not observed");

    let section = wire::SectionStatus {
        name: "network".into(),
        state: wire::SectionState::Failed.into(),
        reason: "no such device".into(),
    };
    let stray = wire::SectionStatus { name: "never asked for".into(), ..section.clone() };
    let report = wire::StatusReport { observed_generation: 2, sections: vec![section, stray] };
    let frame = wire::AgentFrame { frame: Some(agent_frame::Frame::Status(report)) };
    let now = world.now_ms;
    control.session_frame(&node, epoch, &frame, now, &mut world.rng).unwrap();
    let SpecStatus { generation, observed, sections } = control.spec_status(&node).unwrap();
    assert_eq!((generation, observed, sections.len()), (2, 2, 1));
    assert_eq!((&*sections["network"].state, &*sections["network"].reason), ("failed", "no such device"));

    let hello = wire::Hello { observed_generation: 2, ..hello };
    assert_eq!(specs(&greet(&mut control, &mut world, &peer, &hello).1), [0; 0]);
    let hello = wire::Hello { observed_generation: 0, journal_id: "new".into(), ..hello };
    assert_eq!(specs(&greet(&mut control, &mut world, &peer, &hello).1), [2], "it was lost with the journal");
}

#[test]
fn a_spec_that_is_set_at_one_gateway_is_sent_by_the_other() {
    let (mut world, mut other, peer, hello) = two();
    greet(&mut other, &mut world, &peer, &hello);
    let mut first =
        Control::new(world.store.clone(), crate::world::settings("control"), world.now_ms).unwrap();
    assert_eq!(specs(&set(&mut first, &mut world, &peer.node_id, b"1")), [0; 0]);
    assert_eq!(specs(&crate::gateways::ticks(&mut other, &mut world, 3)), [1], "once");
}

#[test]
fn what_a_spec_cannot_be_is_refused_by_name() {
    let (mut world, mut control, peer, _) = two();
    let (now, node) = (world.now_ms, peer.node_id);
    let mut refused = |node: &str, name: &str, body: &[u8]| {
        control.set_section("alice", node, name, Some(body), now, &mut world.rng).unwrap_err()
    };
    assert!(matches!(refused("nobody", "network", b""), Error::UnknownNode(_)));
    assert!(matches!(refused(&node, "", b""), Error::BadRequest { field: "name", .. }));
    assert!(matches!(refused(&node, "network", &vec![0; 300_000]), Error::BadRequest { field: "body", .. }));
    let order = NodeOrder {
        node,
        kind: kinds::INVENTORY_COLLECT.into(),
        at_most_once: false,
        min_generation: 1,
        not_after_ms: now + 60_000,
    };
    let error = control.order("alice", &order, now, &mut world.rng).unwrap_err();
    assert!(matches!(error, Error::BadRequest { field: "min_generation", .. }));
}
