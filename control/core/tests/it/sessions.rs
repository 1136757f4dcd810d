//! Sessions: epochs, fencing, rejections, keep-alive, acknowledgements, progress.

use ironwright_control_core::{
    Output,
    session::{Opened, Peer},
};
use ironwright_proto::wire::{self, agent_frame, gateway_frame::Frame};

use crate::{
    agents::Key,
    world::{Machine, World},
};

fn frame(frame: agent_frame::Frame) -> wire::AgentFrame {
    wire::AgentFrame { frame: Some(frame) }
}

fn open(world: &mut World) -> (Peer, wire::Hello, u64) {
    let site = world.site.as_ref().unwrap();
    let (peer, hello, now) = (site.peer.clone(), site.hello(), world.now_ms);
    match world.call(|control, rng| control.session_open(&peer, &hello, now, rng)).unwrap() {
        Opened::Welcome { epoch, .. } => (peer, hello, epoch),
        Opened::Rejected(rejected) => panic!("{rejected:?}"),
    }
}

#[test]
fn welcome_comes_first_and_gives_the_lease() {
    let mut world = World::new();
    let site = world.site.as_ref().unwrap();
    let (peer, hello, now) = (site.peer.clone(), site.hello(), world.now_ms);
    let opened = world.call(|control, rng| control.session_open(&peer, &hello, now, rng)).unwrap();
    let Opened::Welcome { epoch: 1, output } = opened else { panic!("{opened:?}") };
    let Some(Frame::Welcome(welcome)) = &output.frames[0].1.frame else { panic!("{output:?}") };
    assert_eq!(
        (welcome.session_epoch, welcome.server_unix_ms, welcome.heartbeat_interval_ms),
        (1, now, 10_000)
    );
    let lease = wire::Lease { site: "lab".into(), epoch: 1, ttl_ms: 30_000 };
    assert_eq!(welcome.lease, Some(lease));
    assert_eq!(world.control().sites().unwrap()[0].address.as_deref(), Some("http://10.0.0.2:8080"));
}

#[test]
fn a_newer_session_fences_the_older_one() {
    let mut world = World::new();
    let (peer, hello, first) = open(&mut world);
    let now = world.now_ms;
    let opened = world.call(|control, rng| control.session_open(&peer, &hello, now, rng)).unwrap();
    let Opened::Welcome { epoch, output } = opened else { panic!() };
    assert_eq!(epoch, first + 1);
    assert_eq!(output.close.len(), 1);
    assert_eq!(output.close[0].epoch, first);
    let late = frame(agent_frame::Frame::Heartbeat(wire::Heartbeat { seq: 1 }));
    let output =
        world.call(|control, rng| control.session_frame(&peer.node_id, first, &late, now, rng)).unwrap();
    assert_eq!(output.close.len(), 1);
    assert!(matches!(&output.frames[0].1.frame, Some(Frame::Rejected(r)) if r.code == "old_epoch"));
    // Also after a restart, the epoch goes on.
    world.crash();
    assert_eq!(open(&mut world).2, first + 2);
}

#[test]
fn wrong_hellos_are_rejected_by_code() {
    let mut world = World::new();
    let site = world.site.as_ref().unwrap();
    let (peer, hello, now) = (site.peer.clone(), site.hello(), world.now_ms);
    let stranger = Key::new(&mut world.rng).spki_der();
    let cases = [
        (Peer { node_id: "node-x".into(), ..peer.clone() }, hello.clone(), "node_unknown"),
        (Peer { spki_der: stranger, ..peer.clone() }, hello.clone(), "revoked"),
        (peer.clone(), wire::Hello { version: 2, ..hello.clone() }, "bad_hello"),
        (peer.clone(), wire::Hello { role: "node".into(), ..hello.clone() }, "bad_hello"),
        (peer.clone(), wire::Hello { site: "other".into(), ..hello.clone() }, "bad_hello"),
        (peer, wire::Hello { commands: vec![wire::CommandUpdate::default(); 5000], ..hello }, "bad_hello"),
    ];
    for (peer, hello, code) in cases {
        let current = world.call(|control, _| control.peer_is_current(&peer)).unwrap();
        assert_eq!(current, code == "bad_hello", "{code}");
        let opened = world.call(|control, rng| control.session_open(&peer, &hello, now, rng)).unwrap();
        assert!(matches!(&opened, Opened::Rejected(r) if r.code == code), "{code}: {opened:?}");
    }
}

#[test]
fn final_updates_are_always_acknowledged_also_unknown_ones() {
    let mut world = World::new();
    let (peer, hello, epoch) = open(&mut world);
    let update = wire::CommandUpdate {
        id: "cmd-unknown".into(),
        state: wire::CommandState::Failed.into(),
        ..wire::CommandUpdate::default()
    };
    let now = world.now_ms;
    let acked = |frames: &[(ironwright_control_core::SessionRef, wire::GatewayFrame)]| {
        frames.iter().any(|(_, f)| matches!(&f.frame, Some(Frame::CommandAck(a)) if a.id == "cmd-unknown"))
    };
    let sent = frame(agent_frame::Frame::Command(update.clone()));
    let output =
        world.call(|control, rng| control.session_frame(&peer.node_id, epoch, &sent, now, rng)).unwrap();
    assert!(acked(&output.frames));
    let hello = wire::Hello { commands: vec![update], ..hello };
    let opened = world.call(|control, rng| control.session_open(&peer, &hello, now, rng)).unwrap();
    let Opened::Welcome { output, .. } = opened else { panic!() };
    assert!(acked(&output.frames));
}

#[test]
fn a_silent_session_is_pinged_and_closed() {
    let mut world = World::new();
    let (peer, _, epoch) = open(&mut world);
    let start = world.now_ms;
    // What is said from one second to another one.
    let ticks = |world: &mut World, seconds: std::ops::RangeInclusive<i64>| {
        let mut said = Output::default();
        for second in seconds {
            let now = start + second * 1000;
            let mut output = world.call(|control, rng| control.tick(now, rng)).unwrap();
            said.frames.append(&mut output.frames);
            said.close.append(&mut output.close);
        }
        said
    };
    assert!(ticks(&mut world, 0..=19).is_empty());
    let ping = ticks(&mut world, 20..=20);
    assert!(matches!(ping.frames[0].1.frame, Some(Frame::Ping(_))));
    let pong = frame(agent_frame::Frame::Pong(wire::Pong { seq: 1 }));
    world
        .call(|control, rng| control.session_frame(&peer.node_id, epoch, &pong, start + 21_000, rng))
        .unwrap();
    assert!(ticks(&mut world, 21..=40).is_empty());
    assert_eq!(ticks(&mut world, 41..=61).close.len(), 1);
    assert!(!world.control().node(&peer.node_id).unwrap().connected);
}

#[test]
fn progress_is_shown_on_the_step_and_not_stored() {
    let mut world = World::new();
    let run = world.deploy();
    world.machine = Machine::Booting;
    world.stuck.insert("image.deploy".into());
    world.until(5, |world| world.step_of(&run).as_deref() == Some("image.deploy"));
    world.until(5, |world| world.sent_of("image.deploy") == 1);
    let Machine::Joined(agent) = &world.machine else { panic!() };
    let (node, epoch, now) = (agent.peer.node_id.clone(), agent.session.unwrap(), world.now_ms);
    let step = world.run(&run).steps[4].clone();
    let progress = wire::Progress {
        command_id: step.command_id.unwrap(),
        phase: "write".into(),
        done: 5,
        total: 10,
        unit: "bytes".into(),
    };
    let (commits, version) = (world.store.commits(), world.control().version());
    let sent = frame(agent_frame::Frame::Progress(progress.clone()));
    world.call(|control, rng| control.session_frame(&node, epoch, &sent, now, rng)).unwrap();
    let shown = world.run(&run).steps[4].progress.clone().unwrap();
    assert_eq!((shown.phase.as_str(), shown.done, shown.total), ("write", 5, 10));
    assert_eq!(world.store.commits(), commits);
    assert!(world.control().version() > version);
    let foreign = frame(agent_frame::Frame::Progress(wire::Progress { done: 9, ..progress }));
    let site = world.site.as_ref().unwrap();
    let (other, epoch) = (site.peer.node_id.clone(), site.session.unwrap());
    world.call(|control, rng| control.session_frame(&other, epoch, &foreign, now, rng)).unwrap();
    assert_eq!(world.run(&run).steps[4].progress.as_ref().unwrap().done, 5, "only of the node that runs it");
}
