//! Acceptance, lanes, duplicates, results.

use ironwright_agent_core::{
    CommandEntry, Effect, Input, Journal, KEEP_DONE, MAX_COMMANDS, MAX_RESULT, Order, Record, Stage, fail,
};
use ironwright_proto::{
    kinds,
    wire::{
        Cancel, Command, CommandState, CommandUpdate, Progress, agent_frame::Frame as ToGateway,
        gateway_frame::Frame as FromGateway,
    },
};

use crate::rig::{BOOT, Rig, T0, command, is_persist, sent, starts, updates};

fn refused(rig: &mut Rig, command: Command) -> String {
    let id = command.id.clone();
    let before = rig.disk.clone();
    let effects = rig.deliver(command);
    assert!(starts(&effects).is_empty());
    assert_eq!(rig.disk, before, "a refusal leaves nothing");
    let [(of, CommandState::Refused, code)] = &updates(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!(*of, id);
    code.clone()
}

#[test]
fn accepted_is_durable_before_anything_can_see_it() {
    let mut rig = Rig::open();
    let effects = rig.deliver(command("c1", kinds::IMAGE_DEPLOY));
    assert!(is_persist(&effects[0]), "{effects:?}");
    assert_eq!(rig.stage("c1"), Some(&Stage::Accepted));
    assert_eq!(updates(&effects), [("c1".into(), CommandState::Running, String::new())]);
    let order = Order { id: "c1".into(), kind: kinds::IMAGE_DEPLOY.into(), args: vec![1, 2, 3] };
    assert_eq!(effects.last(), Some(&Effect::Start(order)));
}

#[test]
fn running_is_durable_right_before_a_self_terminating_command() {
    let mut rig = Rig::open();
    let effects = rig.deliver(command("c1", kinds::NODE_REBOOT));
    let stages: Vec<_> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Persist(Record::Command(entry)) => Some(entry.stage.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(stages, [Stage::Accepted, Stage::Running { boot_id: BOOT.into() }]);
    assert_eq!(starts(&effects[2..]), ["c1"], "the start comes after both: {effects:?}");
}

#[test]
fn refusals_come_in_the_order_of_the_contract() {
    let mut rig = Rig::open();
    rig.deliver(command("bulk", kinds::IMAGE_DEPLOY));
    // Everything is wrong with this one; each correction brings up the next reason.
    let mut bad = command("c1", kinds::BOOT_PREPARE);
    bad.node_id = "n-2".into();
    bad.not_after_unix_ms = T0;
    assert_eq!(refused(&mut rig, bad.clone()), "unsupported");
    bad.node_id = crate::rig::NODE.into();
    assert_eq!(refused(&mut rig, bad.clone()), "unsupported");
    bad.kind = kinds::IMAGE_DEPLOY.into();
    assert_eq!(refused(&mut rig, bad.clone()), "expired");
    bad.not_after_unix_ms = T0 + 1;
    assert_eq!(refused(&mut rig, bad.clone()), "busy");
    rig.finish("bulk", Ok(vec![]));
    assert_eq!(starts(&rig.deliver(bad)), ["c1"]);
}

#[test]
fn a_full_journal_is_the_last_reason() {
    let mut full = Journal::new("j-1".into());
    for n in 0..MAX_COMMANDS {
        let entry = CommandEntry { command: command(&format!("done-{n}"), kinds::DISK_ERASE), stage: done() };
        full.apply(&Record::Command(entry));
    }
    let mut rig = Rig::on(full, BOOT);
    rig.step(Input::Start);
    rig.open_session(T0);
    let mut bad = command("c1", kinds::BOOT_PREPARE);
    bad.not_after_unix_ms = T0;
    assert_eq!(refused(&mut rig, bad.clone()), "unsupported");
    bad.kind = kinds::INVENTORY_COLLECT.into();
    assert_eq!(refused(&mut rig, bad.clone()), "expired");
    bad.not_after_unix_ms = T0 + 1;
    assert_eq!(refused(&mut rig, bad), "busy");
}

fn done() -> Stage {
    Stage::Done { update: CommandUpdate::default(), at_unix_ms: T0, acked: true }
}

#[test]
fn unknown_kinds_and_malformed_orders_are_refused_by_name() {
    let mut rig = Rig::open();
    assert_eq!(refused(&mut rig, command("c1", "disk.paint")), "unsupported");
    assert_eq!(refused(&mut rig, command("", kinds::DISK_ERASE)), "malformed");
    let large = Command { args: vec![0; (1 << 20) + 1], ..command("c2", kinds::IMAGE_DEPLOY) };
    assert_eq!(refused(&mut rig, large), "malformed");
}

#[test]
fn expiry_is_judged_by_controls_time() {
    let mut rig = Rig::open();
    rig.now = std::time::Duration::from_millis(59_999);
    assert_eq!(starts(&rig.deliver(command("c1", kinds::DISK_ERASE))), ["c1"]);
    rig.now = std::time::Duration::from_secs(60);
    assert_eq!(refused(&mut rig, command("c2", kinds::DISK_ERASE)), "expired");
}

#[test]
fn lanes_have_credits_of_their_own() {
    let mut rig = Rig::open();
    for (kind, credits) in [(kinds::INVENTORY_COLLECT, 4), (kinds::DISK_ERASE, 2), (kinds::IMAGE_DEPLOY, 1)] {
        for n in 0..credits {
            let id = format!("{kind}-{n}");
            assert_eq!(starts(&rig.deliver(command(&id, kind))), [id]);
        }
        assert_eq!(refused(&mut rig, command("more", kind)), "busy");
    }
    rig.finish("inventory.collect-0", Ok(vec![]));
    assert_eq!(starts(&rig.deliver(command("more", kinds::INVENTORY_COLLECT))), ["more"]);
}

#[test]
fn a_duplicate_of_a_running_command_reattaches() {
    let mut rig = Rig::open();
    rig.deliver(command("c1", kinds::IMAGE_DEPLOY));
    let effects = rig.deliver(command("c1", kinds::IMAGE_DEPLOY));
    assert_eq!(updates(&effects), [("c1".into(), CommandState::Running, String::new())]);
    assert_eq!(effects.len(), 1, "{effects:?}");
}

#[test]
fn a_duplicate_of_a_finished_command_gets_the_stored_result() {
    let mut rig = Rig::open();
    rig.deliver(command("c1", kinds::IMAGE_DEPLOY));
    let first = rig.finish("c1", Ok(vec![42]));
    assert!(is_persist(&first[0]), "durable before it is sent: {first:?}");
    rig.ack("c1");
    let mut again = command("c1", kinds::IMAGE_DEPLOY);
    again.not_after_unix_ms = 0;
    let effects = rig.deliver(again);
    assert_eq!(sent(&effects), sent(&first), "even past its time");
    assert!(matches!(sent(&effects)[..], [ToGateway::Command(update)] if update.result == [42]));
    assert!(starts(&effects).is_empty());
}

#[test]
fn results_are_kept_seven_days() {
    let mut rig = Rig::open();
    rig.deliver(command("acked", kinds::INVENTORY_COLLECT));
    rig.finish("acked", Ok(vec![]));
    rig.ack("acked");
    rig.deliver(command("unacked", kinds::INVENTORY_COLLECT));
    rig.finish("unacked", Ok(vec![]));
    rig.now = KEEP_DONE;
    rig.step(Input::Tick);
    assert!(rig.disk.command("acked").is_some());
    rig.now = KEEP_DONE + std::time::Duration::from_secs(3601);
    rig.step(Input::Tick);
    assert!(rig.disk.command("acked").is_none());
    assert!(rig.disk.command("unacked").is_some(), "control has not heard of it yet");
}

#[test]
fn what_control_has_not_acknowledged_is_in_hello_and_sent_again() {
    let mut rig = Rig::open();
    rig.deliver(command("running", kinds::IMAGE_DEPLOY));
    for id in ["acked", "done"] {
        rig.deliver(command(id, kinds::DISK_ERASE));
        rig.finish(id, Err(fail("no_disk", "nothing fits")));
    }
    rig.ack("acked");
    rig.step(Input::LinkLost);
    rig.wait();
    let effects = rig.step(Input::Connected);
    let [ToGateway::Hello(hello)] = sent(&effects)[..] else { panic!("{effects:?}") };
    let listed: Vec<_> = hello.commands.iter().map(|update| (update.id.as_str(), update.state())).collect();
    assert_eq!(listed, [("running", CommandState::Running), ("done", CommandState::Failed)]);
    let effects = rig.frame(FromGateway::Welcome(crate::rig::welcome(T0)));
    assert_eq!(updates(&effects), [("done".into(), CommandState::Failed, "no_disk".into())]);
}

#[test]
fn a_result_that_ends_without_a_session_waits_for_one() {
    let mut rig = Rig::open();
    rig.deliver(command("c1", kinds::IMAGE_DEPLOY));
    rig.step(Input::LinkLost);
    let effects = rig.finish("c1", Ok(vec![1]));
    assert!(matches!(effects[..], [Effect::Persist(_)]), "{effects:?}");
    let effects = rig.open_session(T0 + 1000);
    assert_eq!(updates(&effects), [("c1".into(), CommandState::Succeeded, String::new())]);
}

#[test]
fn many_results_are_sent_again_in_a_window() {
    let mut rig = Rig::open();
    for n in 0..40 {
        rig.deliver(command(&format!("c{n:02}"), kinds::INVENTORY_COLLECT));
        rig.finish(&format!("c{n:02}"), Ok(vec![]));
    }
    rig.step(Input::LinkLost);
    let mut waiting = updates(&rig.open_session(T0));
    assert_eq!(waiting.len(), 16);
    let mut told = 0;
    while let Some((id, _, _)) = waiting.pop() {
        told += 1;
        waiting.extend(updates(&rig.ack(&id)));
    }
    assert_eq!(told, 40);
    assert_eq!(rig.disk.unacked().count(), 0);
}

#[test]
fn a_hello_stays_within_its_limits() {
    for (results, bytes, listed) in [(1100, 0, 1024), (12, 100_000, 10)] {
        let mut rig = Rig::open();
        for n in 0..results {
            rig.deliver(command(&format!("c{n:04}"), kinds::INVENTORY_COLLECT));
            rig.finish(&format!("c{n:04}"), Ok(vec![0; bytes]));
        }
        rig.step(Input::LinkLost);
        rig.wait();
        let effects = rig.step(Input::Connected);
        let [ToGateway::Hello(hello)] = sent(&effects)[..] else { panic!("one frame") };
        assert_eq!(hello.commands.len(), listed);
    }
}

#[test]
fn a_cancel_reaches_only_what_runs() {
    let mut rig = Rig::open();
    rig.deliver(command("c1", kinds::IMAGE_DEPLOY));
    let cancel = |id: &str| FromGateway::Cancel(Cancel { id: id.into() });
    assert_eq!(rig.frame(cancel("c1")), [Effect::Cancel("c1".into())]);
    assert!(rig.frame(cancel("c2")).is_empty());
    rig.finish("c1", Err(fail("cancelled", "")));
    assert!(rig.frame(cancel("c1")).is_empty());
}

#[test]
fn results_and_errors_are_bounded() {
    let mut rig = Rig::open();
    let kind = kinds::INVENTORY_COLLECT;
    rig.deliver(command("large", kind));
    assert_eq!(updates(&rig.finish("large", Ok(vec![0; MAX_RESULT + 1])))[0].2, "result_too_large");
    rig.deliver(command("wordy", kind));
    let effects = rig.finish("wordy", Err(fail("", "é".repeat(5000))));
    let [ToGateway::Command(update)] = sent(&effects)[..] else { panic!("{effects:?}") };
    let error = update.error.as_ref().unwrap();
    assert_eq!((error.code.as_str(), error.message.len()), ("failed", 4096));
}

#[test]
fn arguments_are_forgotten_with_the_end_of_a_command() {
    let mut rig = Rig::open();
    rig.deliver(command("c1", kinds::IMAGE_DEPLOY));
    assert!(!rig.disk.command("c1").unwrap().command.args.is_empty());
    rig.finish("c1", Ok(vec![]));
    assert!(rig.disk.command("c1").unwrap().command.args.is_empty());
}

#[test]
fn an_end_that_nobody_waits_for_changes_nothing() {
    let mut rig = Rig::open();
    assert!(rig.finish("ghost", Ok(vec![])).is_empty());
    rig.deliver(command("c1", kinds::IMAGE_DEPLOY));
    rig.finish("c1", Ok(vec![1]));
    assert!(rig.finish("c1", Ok(vec![2])).is_empty());
    assert!(rig.ack("ghost").is_empty());
}

#[test]
fn progress_is_sent_in_a_session_and_never_journaled() {
    let mut rig = Rig::open();
    let progress = || Input::Progress(Progress { command_id: "c1".into(), ..Progress::default() });
    let effects = rig.step(progress());
    assert!(matches!(effects[..], [Effect::Send(ToGateway::Progress(_))]));
    rig.step(Input::LinkLost);
    assert!(rig.step(progress()).is_empty());
}
