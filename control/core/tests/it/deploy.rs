//! Deploy runs: the straight way, retries, failures, cancelling, limits.

use ironwright_proto::{
    api::{NodeState, RunState},
    kinds,
};

use crate::world::{Entry, Machine, START_MS, World};

fn started() -> (World, String) {
    let mut world = World::new();
    let run = world.deploy();
    world.machine = Machine::Booting;
    (world, run)
}

#[test]
fn a_machine_is_deployed_and_the_run_has_evidence() {
    let (mut world, id) = started();
    let run = world.until_ended(&id, 5);
    world.assert_succeeded(&id);
    let names: Vec<_> = run.steps.iter().map(|step| step.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "boot.prepare",
            "ramdisk.join",
            "inventory.collect",
            "disk.erase",
            "image.deploy",
            "boot.finish",
            "boot.local",
            "node.reboot",
            "node.join"
        ]
    );
    let evidence = &run.evidence;
    assert_eq!(evidence["requested_by"], "alice");
    assert_eq!(evidence["image_digest"], format!("sha256:{}", "01".repeat(32)));
    assert_eq!(evidence["bytes_written"], 2u64 << 30);
    assert_eq!(evidence["ramdisk_proof"], "token");
    assert!(evidence["timings_ms"]["image.deploy"].as_i64().unwrap() >= 2_000);
    for key in ["node_id", "ek_fingerprint", "ramdisk_pcrs", "node_pcrs"] {
        assert!(evidence.contains_key(key), "{key}");
    }
    let machine = world.control().machine("web-1").unwrap();
    assert_eq!(machine.inventory.unwrap()["disks"][0]["size_bytes"], 8u64 << 30);
    assert_eq!(machine.node_id.as_deref(), evidence["node_id"].as_str());
    let node = world.control().node(&machine.node_id.unwrap()).unwrap();
    assert_eq!((node.state, node.connected), (NodeState::Active, true));
    assert_eq!(world.sent_of(kinds::IMAGE_DEPLOY), 1);
}

#[test]
fn no_secret_reaches_the_audit_log_or_outlives_its_use() {
    let (mut world, id) = started();
    world.until_ended(&id, 5);
    let events = world.control().events_after(0, 1000).unwrap();
    assert!(!serde_json::to_string(&events).unwrap().contains("iwj_"));
    // Of all that is stored, only orders that are still under way may hold tokens.
    let everything = ironwright_control_core::store::Store::read::<_, ironwright_control_core::Error>(
        world.store.data(),
        |txn| Ok(txn.range(b"", b"\xff", 100_000)?),
    );
    for (key, value) in everything.unwrap() {
        let text = String::from_utf8_lossy(&value).into_owned();
        let hex_of_token = "69776a5f"; // "iwj_"
        assert!(!text.contains("iwj_") && !text.contains(hex_of_token), "{}", String::from_utf8_lossy(&key));
    }
}

#[test]
fn a_retriable_failure_is_tried_again_after_two_then_four_seconds() {
    let (mut world, id) = started();
    world.failing.insert(kinds::IMAGE_DEPLOY.into(), vec!["source_unreachable".into(), "busy".into()]);
    let run = world.until_ended(&id, 5);
    world.assert_succeeded(&id);
    assert_eq!(world.sent_of(kinds::IMAGE_DEPLOY), 3);
    let step = &run.steps[4];
    let took = step.ended_ms.unwrap() - step.started_ms.unwrap();
    assert!(took >= 2_000 + 4_000 + 2_000, "{took}");
}

#[test]
fn retries_end_after_five() {
    let (mut world, id) = started();
    world.failing.insert(kinds::DISK_ERASE.into(), vec!["interrupted".into(); 10]);
    let run = world.until_ended(&id, 10);
    assert_eq!(run.state, RunState::Failed);
    assert_eq!(world.sent_of(kinds::DISK_ERASE), 1 + 5);
    assert_eq!(run.error.unwrap().code, "interrupted");
}

#[test]
fn any_other_failure_ends_the_run_and_the_machine_falls_back_to_its_disk() {
    let (mut world, id) = started();
    world.failing.insert(kinds::IMAGE_DEPLOY.into(), vec!["digest_mismatch".into()]);
    let run = world.until_ended(&id, 5);
    assert_eq!(run.state, RunState::Failed);
    assert_eq!(run.error.as_ref().unwrap().code, "digest_mismatch");
    assert_eq!(run.steps[4].state, RunState::Failed);
    assert_eq!(run.steps[5].state, RunState::Pending);
    world.until(2, |world| matches!(world.machine, Machine::Booting));
    assert_eq!(world.entry, Some(Entry::Local));
    assert_eq!((world.sent_of(kinds::BOOT_LOCAL), world.sent_of(kinds::NODE_REBOOT)), (1, 1));
    assert_eq!(world.sent_of(kinds::IMAGE_DEPLOY), 1);
    assert_eq!(world.control().status("0").unwrap().active_runs, 0);
}

#[test]
fn a_machine_that_never_boots_fails_after_an_hour_and_a_site_that_never_answers_after_half_of_one() {
    let mut world = World::new();
    let id = world.deploy();
    let run = world.until_ended(&id, 70);
    let minutes = (run.ended_ms.unwrap() - START_MS) / 60_000;
    assert_eq!((run.state, minutes), (RunState::Failed, 60));
    let error = run.error.unwrap();
    assert_eq!(error.code, "step_timed_out");
    assert!(error.message.contains("52:54:00:12:34:56"), "{}", error.message);
    assert_eq!(world.sent_of(kinds::NODE_REBOOT), 0, "there is no ramdisk to reboot");

    let mut silent = World::new();
    silent.site = None;
    let id = silent.deploy();
    let run = silent.until_ended(&id, 40);
    assert_eq!((run.ended_ms.unwrap() - START_MS) / 60_000, 30);
    assert_eq!(run.error.unwrap().code, "step_timed_out");
}

#[test]
fn a_cancelled_run_stops_its_orders_and_sets_local_boot() {
    let (mut world, id) = started();
    world.until(5, |world| world.step_of(&id).as_deref() == Some("image.deploy"));
    world.round();
    world.cancel(&id);
    assert_eq!(world.run(&id).state, RunState::Cancelled);
    world.until(5, |world| world.entry == Some(Entry::Local) && matches!(world.machine, Machine::Booting));
    let run = world.run(&id);
    assert_eq!(run.steps[4].state, RunState::Cancelled);
    let now = world.now_ms;
    let again = world.call(|control, rng| control.cancel_run("bob", &id, now, rng));
    assert_eq!(again.unwrap_err().code(), "run_ended");
}

#[test]
fn one_run_at_a_time_for_a_machine() {
    let (mut world, id) = started();
    let now = world.now_ms;
    let new = ironwright_proto::api::NewDeploy {
        machine: "web-1".parse().unwrap(),
        image: "debian-12".parse().unwrap(),
        user_data: None,
        disk: ironwright_proto::api::DiskHint::default(),
        extra_cmdline: String::new(),
        replace: false,
    };
    let busy = world.call(|control, rng| control.start_deploy("bob", &new, now, rng)).unwrap_err();
    assert_eq!((busy.code(), busy.field()), ("machine_busy", Some("machine")));
    assert!(busy.to_string().contains(&id));
}

#[test]
fn a_machine_whose_system_runs_is_erased_only_where_that_is_said() {
    let (mut world, first) = started();
    let again = |world: &mut World, replace| {
        let new = ironwright_proto::api::NewDeploy {
            machine: "web-1".parse().unwrap(),
            image: "debian-12".parse().unwrap(),
            user_data: None,
            disk: ironwright_proto::api::DiskHint::default(),
            extra_cmdline: String::new(),
            replace,
        };
        let now = world.now_ms;
        world.call(|control, rng| control.start_deploy("bob", &new, now, rng)).map(|(run, output)| {
            world.inbox.push(output);
            run.id
        })
    };
    world.until_ended(&first, 5);
    let node = world.control().machine("web-1").unwrap().node_id.unwrap();
    let refused = again(&mut world, false).unwrap_err();
    assert_eq!((refused.code(), refused.field()), ("machine_active", Some("replace")));
    assert!(refused.to_string().contains(&format!("runs as node `{node}`")), "{refused}");

    // Silence does not make it anybody's.
    world.break_sessions();
    world.machine = Machine::Off;
    world.until(2, |world| world.control().node(&node).unwrap().state == NodeState::Unreachable);
    assert_eq!(again(&mut world, false).unwrap_err().code(), "machine_active");

    // Cancelled before its ramdisk was heard of: all is as it was.
    let second = again(&mut world, true).unwrap();
    world.cancel(&second);
    assert_eq!(again(&mut world, false).unwrap_err().code(), "machine_active");
    let started = world.control().events_after(0, 1000).unwrap();
    let replaced: Vec<_> = (started.iter().filter(|event| event.action == "run.started"))
        .map(|event| event.detail["replaces"].as_str())
        .collect();
    assert_eq!(replaced, [None, Some(node.as_str())]);
}

#[test]
fn a_machine_whose_run_failed_in_the_ramdisk_is_deployed_again_without_more_words() {
    let (mut world, first) = started();
    world.failing.insert(kinds::IMAGE_DEPLOY.into(), vec!["digest_mismatch".into()]);
    assert_eq!(world.until_ended(&first, 5).state, RunState::Failed);
    world.until(2, |world| matches!(world.machine, Machine::Booting));
    let second = world.deploy();
    world.until_ended(&second, 10);
    world.assert_succeeded(&second);
}

#[test]
fn a_new_run_waits_for_the_old_one_to_clean_up_and_is_not_hit_by_it() {
    let (mut world, first) = started();
    world.until(5, |world| world.step_of(&first).as_deref() == Some("image.deploy"));
    // The machine hangs, so the order that is called back does not end.
    world.machine = Machine::Off;
    world.cancel(&first);
    let second = world.deploy();
    world.round();
    let run = world.run(&second);
    let waiting = run.steps[0].waiting_for.clone().unwrap();
    assert!(waiting.contains(&first), "{waiting}");
    world.until(3, |world| {
        world.sent_of(kinds::BOOT_PREPARE) > 2 && world.run(&second).steps[0].state.is_final()
    });
    world.machine = Machine::Booting;
    world.until_ended(&second, 20);
    world.assert_succeeded(&second);
    assert_eq!(world.run(&first).state, RunState::Cancelled);
}

#[test]
fn requests_that_cannot_work_are_refused_by_field() {
    let mut world = World::new();
    let now = world.now_ms;
    let good = ironwright_proto::api::NewDeploy {
        machine: "web-1".parse().unwrap(),
        image: "debian-12".parse().unwrap(),
        user_data: None,
        disk: ironwright_proto::api::DiskHint::default(),
        extra_cmdline: String::new(),
        replace: false,
    };
    let mut refused = |new: ironwright_proto::api::NewDeploy| {
        let error = world.call(|control, rng| control.start_deploy("bob", &new, now, rng)).unwrap_err();
        (error.code(), error.field())
    };
    let with = |change: fn(&mut ironwright_proto::api::NewDeploy)| {
        let mut new = good.clone();
        change(&mut new);
        new
    };
    assert_eq!(refused(with(|n| n.machine = "web-2".parse().unwrap())), ("unknown_machine", Some("machine")));
    assert_eq!(refused(with(|n| n.image = "nixos".parse().unwrap())), ("unknown_image", Some("image")));
    let long = refused(with(|n| n.user_data = Some("x".repeat((256 << 10) + 1))));
    assert_eq!(long, ("bad_request", Some("user_data")));
    for words in ["a\nb", "${net0/mac}", "iw.token=x", "console=ttyS0 iw.ca=y", "a\"b"] {
        let mut new = good.clone();
        new.extra_cmdline = words.into();
        assert_eq!(refused(new), ("bad_request", Some("extra_cmdline")), "{words}");
    }
    assert!(world.control().runs().unwrap().is_empty());
}

#[test]
fn an_image_larger_than_the_known_disk_is_refused_before_anything_happens() {
    let (mut world, id) = started();
    world.until_ended(&id, 5);
    let now = world.now_ms;
    let big = ironwright_proto::api::NewImage {
        name: "big".parse().unwrap(),
        url: "file:///big.raw".into(),
        digest: None,
    };
    let mut facts = crate::world::image_facts();
    facts.raw_size_bytes = (8 << 30) + 1;
    world.control().register_image("admin", &big, now).unwrap();
    let not_ready = |world: &mut World| {
        let new = ironwright_proto::api::NewDeploy {
            machine: "web-1".parse().unwrap(),
            image: "big".parse().unwrap(),
            user_data: None,
            disk: ironwright_proto::api::DiskHint::default(),
            extra_cmdline: String::new(),
            replace: false,
        };
        world.call(|control, rng| control.start_deploy("bob", &new, now, rng)).unwrap_err().code()
    };
    assert_eq!(not_ready(&mut world), "image_not_ready");
    world.control().image_fetched(&big.name, &facts, now).unwrap();
    assert_eq!(not_ready(&mut world), "image_too_large");
}
