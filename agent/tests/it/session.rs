//! Sessions over a real stream: commands, results, reconnects, events, the end.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ironwright_agent::{
    Identity, KeySource,
    link::{JournalPlace, LinkError},
};
use ironwright_proto::{
    kinds::Role,
    wire::{
        Cancel, CommandState, Drain, EventAck, Lease, Rejected, Welcome, agent_frame, gateway_frame::Frame,
    },
};
use serde_json::json;

use crate::{
    control::{Control, JoinAnswer},
    rig::{Agent, Held, T0, join_config, order, soon},
};

#[tokio::test]
async fn a_command_is_executed_and_its_result_acknowledged() {
    let mut control = Control::start().await;
    let held = Held::new(1);
    let mut agent = Agent::start(&control, held.clone()).await;
    let mut peer = control.session().await;
    let hello = peer.welcome().await;
    assert_eq!((hello.role.as_str(), hello.boot_id.as_str()), ("ramdisk", "boot-1"));
    assert!(hello.commands.is_empty());
    soon("the session", agent.handle.connected.wait_for(|connected| *connected)).await.unwrap();

    peer.order(order("c1")).await;
    assert_eq!(peer.update().await.state(), CommandState::Running);
    let done = peer.update().await;
    assert_eq!((done.state(), done.result), (CommandState::Succeeded, vec![7]));
    peer.ack("c1").await;

    agent.shutdown.cancel();
    agent.ended().await.unwrap();
    assert_eq!(held.runs(), 1);
    assert!(!*agent.handle.connected.borrow());
}

#[tokio::test]
async fn a_result_survives_a_dropped_stream_and_is_delivered_until_acknowledged() {
    let mut control = Control::start().await;
    let held = Held::new(0);
    let _agent = Agent::start(&control, held.clone()).await;
    let mut peer = control.session().await;
    let journal_id = peer.welcome().await.journal_id;
    peer.order(order("c1")).await;
    assert_eq!(peer.update().await.state(), CommandState::Running);
    drop(peer);
    held.permits.add_permits(1);

    // Not acknowledged: told again in the next session, and not run again when it is sent again.
    let mut peer = control.session().await;
    let hello = peer.welcome().await;
    assert_eq!(hello.journal_id, journal_id);
    assert_eq!(hello.commands.len(), 1);
    assert_eq!(peer.update().await.state(), CommandState::Succeeded);
    peer.order(order("c1")).await;
    let again = peer.update().await;
    assert_eq!((again.state(), again.result), (CommandState::Succeeded, vec![7]));
    peer.ack("c1").await;
    // A frame's answer shows that the acknowledgement before it was taken.
    peer.order(order("c1")).await;
    peer.update().await;
    drop(peer);

    let mut peer = control.session().await;
    assert!(peer.hello().await.commands.is_empty());
    assert_eq!(held.runs(), 1);
}

#[tokio::test]
async fn a_duplicate_of_a_running_command_does_not_run_twice() {
    let mut control = Control::start().await;
    let held = Held::new(0);
    let _agent = Agent::start(&control, held.clone()).await;
    let mut peer = control.session().await;
    peer.welcome().await;
    for _ in 0..3 {
        peer.order(order("c1")).await;
        assert_eq!(peer.update().await.state(), CommandState::Running);
    }
    held.permits.add_permits(3);
    assert_eq!(peer.update().await.state(), CommandState::Succeeded);
    assert_eq!(held.runs(), 1);
}

#[tokio::test]
async fn a_cancelled_command_says_so() {
    let mut control = Control::start().await;
    let _agent = Agent::start(&control, Held::new(0)).await;
    let mut peer = control.session().await;
    peer.welcome().await;
    peer.order(order("c1")).await;
    peer.update().await;
    peer.send(Frame::Cancel(Cancel { id: "c1".into() })).await;
    let done = peer.update().await;
    assert_eq!((done.state(), done.error.unwrap().code.as_str()), (CommandState::Failed, "cancelled"));
}

#[tokio::test]
async fn progress_and_heartbeats_reach_the_gateway() {
    let mut control = Control::start().await;
    let _agent = Agent::start(&control, Held::new(0)).await;
    let mut peer = control.session().await;
    peer.welcome().await;
    peer.order(order("c1")).await;
    let (mut progress, mut heartbeat) = (None, None);
    while progress.is_none() || heartbeat.is_none() {
        match soon("a frame", peer.from_agent.message()).await.unwrap().unwrap().frame {
            Some(agent_frame::Frame::Progress(seen)) => progress = Some(seen),
            Some(agent_frame::Frame::Heartbeat(seen)) => heartbeat = Some(seen),
            _ => {}
        }
    }
    let progress = progress.unwrap();
    assert_eq!((progress.command_id.as_str(), progress.phase.as_str()), ("c1", "hold"));
    assert_eq!((progress.done, progress.total, heartbeat.unwrap().seq), (1, 2, 1));
}

#[tokio::test]
async fn events_are_sent_until_acknowledged() {
    let mut control = Control::start().await;
    let agent = Agent::start(&control, Held::new(0)).await;
    agent.handle.events.send("boot.fetched", &json!({ "mac": "52:54:00:12:34:56" }));
    let mut peer = control.session().await;
    peer.welcome().await;
    let event = peer.event().await;
    assert_eq!((event.seq, event.kind.as_str()), (1, "boot.fetched"));
    assert_eq!(event.json, r#"{"mac":"52:54:00:12:34:56"}"#);
    drop(peer);

    let mut peer = control.session().await;
    peer.welcome().await;
    assert_eq!(peer.event().await, event);
    peer.send(Frame::EventAck(EventAck { through_seq: 1 })).await;
    agent.handle.events.send("log", &json!({}));
    assert_eq!(peer.event().await.seq, 2);
    drop(peer);

    let mut peer = control.session().await;
    peer.welcome().await;
    assert_eq!(peer.event().await.seq, 2);
}

#[tokio::test]
async fn a_lease_is_seen_with_the_moment_it_was_asked() {
    let mut control = Control::start().await;
    let identity = Identity::join(&join_config(&control, KeySource::Memory)).await.unwrap();
    let before = Instant::now();
    let mut agent = Agent::start_as(identity, Role::Site, JournalPlace::Memory, Held::new(0));
    let mut peer = control.session().await;
    let hello = peer.hello().await;
    let after = Instant::now();
    assert_eq!((hello.site.as_str(), hello.address.as_str()), ("s-1", "http://s"));
    let lease = Lease { site: "s-1".into(), epoch: 3, ttl_ms: 30_000 };
    let welcome = Welcome {
        session_epoch: 5,
        server_unix_ms: T0,
        heartbeat_interval_ms: 1_000,
        lease: Some(lease.clone()),
    };
    peer.send(Frame::Welcome(welcome.clone())).await;
    let held =
        soon("the lease", agent.handle.lease.wait_for(Option::is_some)).await.unwrap().clone().unwrap();
    assert_eq!(held.lease, lease);
    assert!((before..=after).contains(&held.asked), "asked with Hello");
    assert_eq!(*agent.handle.welcome.borrow(), Some(welcome));

    let beat = soon("a heartbeat", peer.from_agent.message()).await.unwrap().unwrap();
    assert!(matches!(beat.frame, Some(agent_frame::Frame::Heartbeat(_))));
    peer.send(Frame::Lease(Lease { epoch: 4, ..lease })).await;
    let epoch =
        |held: &Option<ironwright_agent::link::HeldLease>| held.as_ref().is_some_and(|h| h.lease.epoch == 4);
    let renewed = soon("the lease", agent.handle.lease.wait_for(epoch)).await.unwrap().clone().unwrap();
    assert!(renewed.asked >= held.asked + Duration::from_secs(1), "asked with the heartbeat");
}

#[tokio::test]
async fn a_drained_agent_comes_back_when_asked() {
    let mut control = Control::start().await;
    let _agent = Agent::start(&control, Held::new(0)).await;
    let mut peer = control.session().await;
    peer.welcome().await;
    let drained = Instant::now();
    peer.send(Frame::Drain(Drain { retry_after_ms: 1_500 })).await;
    control.session().await.welcome().await;
    assert!(drained.elapsed() >= Duration::from_millis(1_500));
}

#[tokio::test]
async fn a_revoked_node_stops_to_join_anew() {
    let mut control = Control::start().await;
    let mut agent = Agent::start(&control, Held::new(0)).await;
    let mut peer = control.session().await;
    peer.hello().await;
    peer.send(Frame::Rejected(Rejected { code: "revoked".into(), message: "by alice".into() })).await;
    assert!(matches!(agent.ended().await, Err(LinkError::Rejected { code, .. }) if code == "revoked"));
}

#[tokio::test]
async fn a_shutdown_delivers_what_is_queued_and_ends_the_stream() {
    let mut control = Control::start().await;
    let held = Held::new(1);
    let mut agent = Agent::start(&control, held.clone()).await;
    let mut peer = control.session().await;
    peer.welcome().await;
    peer.order(order("c1")).await;
    peer.update().await;
    assert_eq!(peer.update().await.state(), CommandState::Succeeded);
    agent.shutdown.cancel();
    assert_eq!(peer.next().await, None, "the agent ends its side");
    drop(peer);
    agent.ended().await.unwrap();
}

#[tokio::test]
async fn a_shutdown_does_not_wait_for_a_gateway_that_hangs() {
    let mut control = Control::start().await;
    let mut agent = Agent::start(&control, Held::new(0)).await;
    let mut peer = control.session().await;
    peer.welcome().await;
    soon("the session", agent.handle.connected.wait_for(|connected| *connected)).await.unwrap();
    let asked = Instant::now();
    agent.shutdown.cancel();
    agent.ended().await.unwrap();
    assert!(asked.elapsed() < Duration::from_secs(10));
    drop(peer);
}

#[tokio::test]
async fn a_certificate_two_thirds_into_its_life_is_renewed() {
    let mut control = Control::start().await;
    let year = 1970
        + i32::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() / 31_556_952)
            .unwrap();
    *control.shared.join.lock().unwrap() = JoinAnswer::Grant((2000, year + 2));
    let identity = Identity::join(&join_config(&control, KeySource::Memory)).await.unwrap();
    let first = identity.chain();
    let _agent = Agent::start_as(identity.clone(), Role::Ramdisk, JournalPlace::Memory, Held::new(0));
    control.session().await.welcome().await;
    let changed = async {
        while identity.chain() == first {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon("the renewed certificate", changed).await;
    assert_eq!(control.shared.renewals.load(std::sync::atomic::Ordering::SeqCst), 1);
}
