//! Events: kept until acknowledged, bounded, and what is dropped is reported.

use ironwright_agent_core::{DROPPED, Effect, Input, MAX_EVENTS, MAX_JSON, RaisedEvent};
use ironwright_proto::wire::{
    Event, EventAck, agent_frame::Frame as ToGateway, gateway_frame::Frame as FromGateway,
};

use crate::rig::{BOOT, Rig, T0, is_persist, sent};

fn raise(json: &str) -> Input {
    Input::Raise(RaisedEvent { kind: "log".into(), json: json.into(), unix_ms: 5 })
}

fn events(effects: &[Effect]) -> Vec<&Event> {
    let events = sent(effects).into_iter().filter_map(|frame| match frame {
        ToGateway::Event(event) => Some(event),
        _ => None,
    });
    events.collect()
}

fn ack(rig: &mut Rig, through_seq: u64) -> Vec<Effect> {
    rig.frame(FromGateway::EventAck(EventAck { through_seq }))
}

#[test]
fn an_event_is_durable_before_it_is_sent() {
    let mut rig = Rig::open();
    let effects = rig.step(raise("{}"));
    assert!(is_persist(&effects[0]));
    let expected = Event { seq: 1, kind: "log".into(), unix_ms: 5, json: "{}".into() };
    assert_eq!(events(&effects), [&expected]);
}

#[test]
fn unacknowledged_events_are_sent_again_after_a_restart_and_acknowledged_ones_are_not() {
    let mut rig = Rig::new();
    rig.step(Input::Start);
    for _ in 0..3 {
        assert!(events(&rig.step(raise("{}"))).is_empty(), "no session yet");
    }
    rig.open_session(T0);
    ack(&mut rig, 1);
    rig.restart(BOOT);
    let effects = rig.open_session(T0);
    assert_eq!(events(&effects).iter().map(|event| event.seq).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(events(&rig.step(raise("{}")))[0].seq, 4);
}

#[test]
fn events_travel_in_a_window() {
    let mut rig = Rig::new();
    rig.step(Input::Start);
    for _ in 0..100 {
        rig.step(raise("{}"));
    }
    assert_eq!(events(&rig.open_session(T0)).len(), 64);
    assert!(events(&rig.step(raise("{}"))).is_empty());
    let more = ack(&mut rig, 10);
    assert_eq!(
        events(&more).iter().map(|event| event.seq).collect::<Vec<_>>(),
        (65..=74).collect::<Vec<_>>()
    );
}

#[test]
fn nothing_is_acknowledged_that_was_not_sent() {
    let mut rig = Rig::new();
    rig.step(Input::Start);
    for _ in 0..70 {
        rig.step(raise("{}"));
    }
    rig.open_session(T0);
    ack(&mut rig, u64::MAX);
    assert_eq!(rig.disk.event_count(), 6);
}

#[test]
fn beyond_ten_thousand_the_oldest_go_and_the_loss_is_reported() {
    let mut rig = Rig::new();
    rig.step(Input::Start);
    for _ in 0..MAX_EVENTS + 3 {
        rig.step_unchecked(raise("{}"));
    }
    assert_eq!(rig.disk.event_count(), MAX_EVENTS);
    let effects = rig.open_session(T0);
    assert_eq!(events(&effects)[0].seq, 4);
    ack(&mut rig, 10);
    let report = rig.disk.events_after(0).last().unwrap();
    assert_eq!((report.kind.as_str(), report.json.as_str()), (DROPPED, r#"{"count":3}"#));
    assert_eq!(rig.disk.mark().events_dropped, 0);
}

#[test]
fn oversized_and_lost_events_are_reported() {
    let mut rig = Rig::open();
    let effects = rig.step(raise(&"x".repeat(MAX_JSON + 1)));
    assert!(matches!(events(&effects)[..], [event] if event.kind == DROPPED), "{effects:?}");
    let effects = rig.step(Input::EventsLost { count: 7, unix_ms: 5 });
    assert!(matches!(events(&effects)[..], [event] if event.json == r#"{"count":7}"#), "{effects:?}");
}
