//! Whole simulations.

use std::{
    io::Write,
    sync::{Arc, Mutex},
};

use ironwright_sim::{Bug, Chaos, Plan, Report, cold_start, run, shrink};

/// Enough machines and time that every fault strikes, often while another one is at work.
fn plan(seed: u64, chaos: Chaos) -> Plan {
    Plan::new(seed, 20, 30, chaos)
}

fn check(plan: &Plan) -> Report {
    let report = run(plan, None);
    assert!(report.violations.is_empty(), "{}\n{:#?}", plan.command(), report.violations);
    assert_eq!(report.counts["nodes connected at the end"], u64::from(plan.nodes), "{}", plan.command());
    assert_eq!(report.counts["commands ended"], report.counts["commands ordered"]);
    report
}

#[test]
fn what_has_to_hold_holds_without_faults() {
    for seed in 0..5 {
        let report = check(&plan(seed, Chaos::None));
        assert!(!report.counts.contains_key("faults"));
    }
}

#[test]
fn what_has_to_hold_holds_with_light_chaos() {
    for seed in 0..30 {
        check(&plan(seed, Chaos::Light));
    }
}

#[test]
fn what_has_to_hold_holds_with_heavy_chaos() {
    for seed in 0..30 {
        let report = check(&plan(seed, Chaos::Heavy));
        assert!(report.counts["faults"] > 100 && report.counts["sessions"] > 100, "{:?}", report.counts);
    }
}

#[test]
fn the_same_plan_gives_the_same_log_byte_for_byte() {
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);
    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let logged = |seed| {
        let kept = Kept::default();
        let report = run(&plan(seed, Chaos::Heavy), Some(Box::new(kept.clone())));
        let bytes = kept.0.lock().unwrap().clone();
        (report.digest, bytes)
    };
    let (first, again, other) = (logged(1), logged(1), logged(2));
    assert!(!first.1.is_empty());
    assert_eq!(first, again);
    assert_ne!(first.0, other.0);
}

#[test]
fn every_mistake_that_is_made_on_purpose_is_found() {
    for bug in Bug::ALL {
        let fails = |seed: &u64| {
            let busy = Plan { orders_per_node_and_hour: 240, ..plan(*seed, Chaos::Heavy) };
            let plan = Plan { bug: Some(bug), ..busy };
            !run(&plan, None).violations.is_empty()
        };
        assert!((0..50).any(|seed| fails(&seed)), "50 seeds do not find {bug:?}");
    }
}

#[test]
fn a_failing_schedule_shrinks_to_faults_that_are_all_needed() {
    let planned = |seed| Plan { bug: Some(Bug::ActBeforeJournal), ..plan(seed, Chaos::Heavy) };
    let failing = (0..50).map(planned).map(|plan| (run(&plan, None), plan));
    let (report, plan) = failing.into_iter().find(|(report, _)| !report.violations.is_empty()).unwrap();
    let invariant = report.violations[0].invariant;
    let smallest = shrink(&plan, report.schedule.clone(), invariant);
    assert!(smallest.len() < report.schedule.len());
    let breaks = |schedule: Vec<_>| {
        let violations = run(&Plan { schedule: Some(schedule), ..plan.clone() }, None).violations;
        violations.iter().any(|violation| violation.invariant == invariant)
    };
    assert!(breaks(smallest.clone()));
    for left_out in 0..smallest.len() {
        let mut fewer = smallest.clone();
        fewer.remove(left_out);
        assert!(!breaks(fewer), "{} is not needed", smallest[left_out]);
    }
}

#[test]
fn a_thousand_machines_are_up_within_five_seconds_of_the_last_power_on() {
    let start = cold_start(1, 1000, 4);
    assert!(start.report.violations.is_empty(), "{:#?}", start.report.violations);
    // The last one is switched on just before 30 s, and nothing is lost on the way.
    let all_up = start.all_up.unwrap().as_secs_f64();
    assert!((29.0..35.0).contains(&all_up), "{all_up}");
    assert_eq!(start.unreachable, 0);
    assert!(start.all_back.unwrap().as_secs_f64() < 35.0, "{:?}", start.all_back);
}
