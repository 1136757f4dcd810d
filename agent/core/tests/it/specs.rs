//! Specs: observed, applied, and waited for by commands.

use ironwright_agent_core::{Effect, Input};
use ironwright_proto::{
    kinds,
    wire::{
        Cancel, Command, CommandState, SectionState, Spec, SpecRequest, SpecSection, StatusReport,
        agent_frame::Frame as ToGateway, gateway_frame::Frame as FromGateway,
    },
};

use crate::rig::{BOOT, Rig, T0, command, sent, starts, updates};

fn spec(generation: u64, names: &[&str]) -> FromGateway {
    let section = |name: &&str| SpecSection { name: (*name).into(), body: vec![1] };
    FromGateway::Spec(Spec { generation, sections: names.iter().map(section).collect() })
}

/// A command that waits for a generation.
fn waiting(id: &str, min_generation: u64) -> Command {
    Command { min_generation, ..command(id, kinds::INVENTORY_COLLECT) }
}

fn reports(effects: &[Effect]) -> Vec<&StatusReport> {
    let mut reports = Vec::new();
    for frame in sent(effects) {
        if let ToGateway::Status(report) = frame {
            reports.push(report);
        }
    }
    reports
}

fn applies(effects: &[Effect]) -> Vec<&str> {
    let mut names = Vec::new();
    for effect in effects {
        if let Effect::Apply(section) = effect {
            names.push(section.name.as_str());
        }
    }
    names
}

fn applied(rig: &mut Rig, name: &str) -> Vec<Effect> {
    rig.step(Input::Applied { name: name.into(), result: Ok(()) })
}

#[test]
fn a_spec_is_durable_before_it_is_applied_or_reported() {
    let mut rig = Rig::open();
    let effects = rig.frame(spec(5, &["a", "unheard-of"]));
    assert!(matches!(effects[0], Effect::Persist(_)), "{effects:?}");
    assert_eq!(applies(&effects), ["a"]);
    let report = reports(&effects)[0];
    assert_eq!(report.observed_generation, 5);
    let states: Vec<_> = report.sections.iter().map(|s| (s.state(), s.reason.as_str())).collect();
    assert_eq!(states, [(SectionState::Progressing, ""), (SectionState::Failed, "unknown_section")]);
    let effects = applied(&mut rig, "a");
    assert_eq!(reports(&effects)[0].sections[0].state(), SectionState::Applied);
}

#[test]
fn after_a_restart_the_spec_is_applied_again_and_told_in_hello() {
    let mut rig = Rig::open();
    rig.frame(spec(5, &["a"]));
    let effects = rig.restart(BOOT);
    assert_eq!(applies(&effects), ["a"]);
    let effects = rig.step(Input::Connected);
    let [ToGateway::Hello(hello)] = sent(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!(hello.observed_generation, 5);
    let effects = rig.frame(FromGateway::Welcome(crate::rig::welcome(T0)));
    assert_eq!(reports(&effects)[0].observed_generation, 5);
}

#[test]
fn a_command_above_the_applied_spec_waits_and_asks_for_it() {
    let mut rig = Rig::open();
    let effects = rig.deliver(waiting("c1", 2));
    assert_eq!(sent(&effects), [&ToGateway::SpecRequest(SpecRequest { min_generation: 2 })]);
    assert!(sent(&rig.deliver(waiting("c1", 2))).is_empty(), "it asks once");
    assert!(starts(&rig.frame(spec(2, &["a", "b"]))).is_empty());
    assert!(starts(&applied(&mut rig, "a")).is_empty(), "b is still under way");
    let effects = rig.step(Input::Applied { name: "b".into(), result: Err("broken".into()) });
    assert_eq!(starts(&effects), ["c1"], "the machine has come as far as it can");
}

#[test]
fn what_waits_expires_is_called_back_and_is_forgotten_with_the_session() {
    let mut rig = Rig::open();
    rig.deliver(waiting("late", 9));
    let refused = |id: &str, code: &str| (id.to_owned(), CommandState::Refused, code.to_owned());
    let mut said = Vec::new();
    // `not_after` is 60 s after T0; heartbeats are every 10 s.
    for _ in 0..6 {
        said.extend(updates(&rig.wait()));
    }
    assert_eq!(said, [refused("late", "expired")]);

    rig.deliver(Command { not_after_unix_ms: T0 + 1_000_000, ..waiting("back", 9) });
    let effects = rig.frame(FromGateway::Cancel(Cancel { id: "back".into() }));
    assert_eq!(updates(&effects), [refused("back", "cancelled")]);

    rig.deliver(Command { not_after_unix_ms: T0 + 1_000_000, ..waiting("gone", 9) });
    rig.step(Input::LinkLost);
    rig.open_session(T0 + 70_000);
    assert!(starts(&rig.frame(spec(9, &[]))).is_empty());
}

#[test]
fn waiting_comes_after_unsupported_and_before_busy_and_has_a_limit() {
    let mut rig = Rig::open();
    let wrong = Command { kind: "no.such".into(), ..waiting("c0", 9) };
    assert_eq!(updates(&rig.deliver(wrong))[0].2, "unsupported");
    for n in 0..4 {
        rig.deliver(command(&format!("full-{n}"), kinds::INVENTORY_COLLECT));
    }
    for n in 0..64 {
        assert!(
            updates(&rig.deliver(waiting(&format!("w-{n}"), 9))).is_empty(),
            "the lane is full, yet it waits"
        );
    }
    assert_eq!(updates(&rig.deliver(waiting("w-64", 9)))[0].2, "busy");
}
