//! Control is killed after any transaction; the run goes on as if nothing had been.

use std::collections::BTreeSet;

use ironwright_proto::kinds;
use proptest::prelude::*;

use crate::world::{Machine, World};

/// Deploys with control dying after these commits.
fn deploy(crash_after: impl IntoIterator<Item = u64>) -> World {
    let mut world = World::crashing(crash_after);
    let run = world.deploy();
    world.machine = Machine::Booting;
    world.until_ended(&run, 10);
    world.assert_succeeded(&run);
    let run = world.run(&run);

    // Every order of the run was made once, and carried out once.
    for step in run.steps.iter().filter(|step| kinds::find(&step.name).is_some()) {
        let id = step.command_id.as_ref().unwrap();
        assert!(world.sent[&step.name].contains(id));
        if step.name != kinds::BOOT_PREPARE {
            assert_eq!(world.sent_of(&step.name), 1, "{}", step.name);
        }
    }
    let ids: Vec<&String> = world.carried_out.iter().map(|(_, id)| id).collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "{:?}", world.carried_out);
    world
}

#[test]
fn a_crash_after_each_single_transaction_changes_nothing() {
    let commits = deploy([]).store.commits();
    assert!((20..100).contains(&commits), "{commits}");
    for crash in 1..=commits {
        assert_eq!(deploy([crash]).crashes, 1, "after commit {crash}");
    }
}

#[test]
fn crashes_all_the_time_change_nothing() {
    for every in [5, 7, 11] {
        let world = deploy((1..1000).step_by(every));
        assert!(world.crashes > 2, "{} crashes, one after every {every} transactions", world.crashes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn crashes_after_any_transactions_change_nothing(crashes in proptest::collection::btree_set(1u64..80, 0..25)) {
        deploy(crashes);
    }
}
