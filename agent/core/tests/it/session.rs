//! Connecting, Welcome, heartbeats, and when to come back.

use std::time::Duration;

use ironwright_agent_core::{Effect, Input, Notice, WELCOME_TIMEOUT};
use ironwright_proto::wire::{
    Drain, Lease, Ping, Rejected, agent_frame::Frame as ToGateway, gateway_frame::Frame as FromGateway,
};

use crate::rig::{Rig, T0, command, sent, welcome};

fn told(effects: &[Effect]) -> Vec<&Notice> {
    let notices = effects.iter().filter_map(|effect| match effect {
        Effect::Tell(notice) => Some(notice),
        _ => None,
    });
    notices.collect()
}

fn lease(epoch: u64) -> Lease {
    Lease { site: "s".into(), epoch, ttl_ms: 30_000 }
}

#[test]
fn hello_is_the_first_frame_and_carries_the_identity_of_journal_and_boot() {
    let mut rig = Rig::new();
    assert_eq!(rig.step(Input::Start), [Effect::Connect]);
    let effects = rig.step(Input::Connected);
    let [Effect::Send(ToGateway::Hello(hello))] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!((hello.version, hello.role.as_str()), (1, "ramdisk"));
    assert_eq!((hello.boot_id.as_str(), hello.journal_id.as_str()), ("boot-1", "j-1"));
    assert!(hello.commands.is_empty());
}

#[test]
fn a_gateway_that_does_not_answer_hello_is_left_after_30_s() {
    let mut rig = Rig::new();
    rig.step(Input::Start);
    rig.step(Input::Connected);
    assert_eq!(rig.agent.next_deadline(), Some(WELCOME_TIMEOUT));
    rig.now = Duration::from_millis(29_999);
    assert!(rig.step(Input::Tick).is_empty());
    assert!(rig.wait().contains(&Effect::Disconnect));
    let back = rig.agent.next_deadline().unwrap();
    assert!(back <= WELCOME_TIMEOUT + Duration::from_secs(1), "the first wait is within 1 s: {back:?}");
    assert_eq!(rig.wait(), [Effect::Connect]);
}

#[test]
fn heartbeats_follow_the_interval_of_the_welcome() {
    let mut rig = Rig::open();
    for seq in 1..=3 {
        let effects = rig.wait();
        assert_eq!(rig.now.as_secs(), 10 * seq);
        assert!(matches!(sent(&effects)[..], [ToGateway::Heartbeat(beat)] if beat.seq == seq));
    }
}

#[test]
fn an_absurd_heartbeat_interval_is_limited() {
    for (asked_ms, got) in [(0, 1), (u32::MAX, 60)] {
        let mut rig = Rig::new();
        rig.step(Input::Start);
        rig.step(Input::Connected);
        let mut welcome = welcome(T0);
        welcome.heartbeat_interval_ms = asked_ms;
        rig.frame(FromGateway::Welcome(welcome));
        assert_eq!(rig.agent.next_deadline(), Some(Duration::from_secs(got)));
    }
}

#[test]
fn a_ping_is_answered_at_once() {
    let effects = Rig::open().frame(FromGateway::Ping(Ping { seq: 9 }));
    assert!(matches!(sent(&effects)[..], [ToGateway::Pong(pong)] if pong.seq == 9));
}

#[test]
fn a_drain_is_followed_exactly() {
    let mut rig = Rig::open();
    rig.now = Duration::from_secs(3);
    let effects = rig.frame(FromGateway::Drain(Drain { retry_after_ms: 7_500 }));
    assert_eq!(effects, [Effect::Disconnect, Effect::Tell(Notice::Closed)]);
    assert_eq!(rig.agent.next_deadline(), Some(Duration::from_millis(10_500)));
}

#[test]
fn waits_grow_while_sessions_fail_and_start_small_after_one_that_lasted() {
    let mut rig = Rig::new();
    rig.step(Input::Start);
    for window in [1, 2, 4, 8, 16, 32, 60, 60] {
        rig.step(Input::LinkLost);
        let wait = rig.next_wait();
        assert!(wait <= Duration::from_secs(window), "{wait:?} of {window} s");
        rig.wait();
    }
    rig.open_session(T0);
    rig.now += Duration::from_secs(10);
    rig.step(Input::LinkLost);
    assert!(rig.next_wait() <= Duration::from_secs(1));
}

#[test]
fn a_rejection_is_told_and_retried_later() {
    let mut rig = Rig::new();
    rig.step(Input::Start);
    rig.step(Input::Connected);
    let rejected = Rejected { code: "revoked".into(), message: "by alice".into() };
    let effects = rig.frame(FromGateway::Rejected(rejected));
    assert!(effects.contains(&Effect::Disconnect));
    let notice = Notice::Rejected { code: "revoked".into(), message: "by alice".into() };
    assert!(told(&effects).contains(&&notice), "{effects:?}");
    assert!(rig.agent.next_deadline().is_some());
}

#[test]
fn server_time_only_moves_forward() {
    let five_minutes = 300_000;
    let mut rig = Rig::open();
    rig.step(Input::LinkLost);
    let effects = rig.open_session(T0 - five_minutes - 1);
    assert!(effects.contains(&Effect::Disconnect), "{effects:?}");
    assert_eq!(rig.disk.mark().server_unix_ms, T0);

    let effects = rig.open_session(T0 - five_minutes);
    assert!(matches!(told(&effects)[..], [Notice::Open(_)]), "{effects:?}");
    assert_eq!(rig.disk.mark().server_unix_ms, T0, "the mark never goes back");

    rig.step(Input::LinkLost);
    rig.open_session(T0 + 5);
    assert_eq!(rig.disk.mark().server_unix_ms, T0 + 5);
    rig.restart("boot-1");
    assert!(rig.open_session(T0 - five_minutes).contains(&Effect::Disconnect), "the mark survives a restart");
}

#[test]
fn frames_out_of_order_end_the_session() {
    let mut rig = Rig::new();
    rig.step(Input::Start);
    rig.step(Input::Connected);
    let effects = rig.deliver(command("c1", "inventory.collect"));
    assert!(effects.contains(&Effect::Disconnect));
    assert!(rig.disk.command("c1").is_none());

    let mut rig = Rig::open();
    let effects = rig.frame(FromGateway::Welcome(welcome(T0)));
    assert!(effects.contains(&Effect::Disconnect));
}

#[test]
fn a_lease_counts_from_when_it_was_asked_for() {
    let mut rig = Rig::new();
    rig.step(Input::Start);
    rig.now = Duration::from_secs(2);
    rig.step(Input::Connected);
    rig.now = Duration::from_secs(5);
    let mut first = welcome(T0);
    first.lease = Some(lease(1));
    let effects = rig.frame(FromGateway::Welcome(first));
    let asked_with_hello = Notice::Lease { lease: lease(1), asked: Duration::from_secs(2) };
    assert!(told(&effects).contains(&&asked_with_hello), "{effects:?}");

    rig.wait();
    assert_eq!(rig.now.as_secs(), 15);
    rig.wait();
    let effects = rig.frame(FromGateway::Lease(lease(1)));
    let at_15 = Notice::Lease { lease: lease(1), asked: Duration::from_secs(15) };
    assert_eq!(told(&effects), [&at_15], "of two unanswered heartbeats the earlier one counts");
    let effects = rig.frame(FromGateway::Lease(lease(1)));
    assert_eq!(told(&effects), [&at_15], "a lease that was not asked for lengthens nothing");
}

#[test]
fn after_stop_only_results_are_still_kept() {
    let mut rig = Rig::open();
    rig.deliver(command("c1", "inventory.collect"));
    assert_eq!(rig.step(Input::Stop), [Effect::Disconnect]);
    assert_eq!(rig.agent.next_deadline(), None);
    assert!(rig.step(Input::Tick).is_empty());
    let effects = rig.finish("c1", Ok(vec![]));
    assert!(matches!(effects[..], [Effect::Persist(_)]), "{effects:?}");
}
