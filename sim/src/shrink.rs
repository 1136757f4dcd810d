//! Makes the schedule of a failing simulation smaller, by leaving out faults as long as it still fails.

use crate::{chaos::Fault, plan::Plan, run};

/// Simulations that are run for it at most.
const MAX_RUNS: usize = 200;

/// The fewest faults found with which `plan` still breaks `invariant`: halves are left out first, then quarters, and
/// so on (Zeller's ddmin).
pub fn shrink(plan: &Plan, schedule: Vec<Fault>, invariant: &str) -> Vec<Fault> {
    let mut runs = 0;
    let fails = |schedule: &[Fault]| {
        let plan = Plan { schedule: Some(schedule.to_vec()), ..plan.clone() };
        run(&plan, None).violations.iter().any(|violation| violation.invariant == invariant)
    };
    let (mut smallest, mut parts) = (schedule, 2);
    while smallest.len() > 1 && parts <= smallest.len() {
        let size = smallest.len().div_ceil(parts);
        let mut smaller = None;
        for start in (0..smallest.len()).step_by(size) {
            if runs == MAX_RUNS {
                return smallest;
            }
            runs += 1;
            let end = (start + size).min(smallest.len());
            let rest = [&smallest[..start], &smallest[end..]].concat();
            if fails(&rest) {
                smaller = Some(rest);
                break;
            }
        }
        match smaller {
            Some(rest) => {
                smallest = rest;
                parts = (parts - 1).max(2);
            }
            None if size == 1 => break,
            None => parts = (parts * 2).min(smallest.len()),
        }
    }
    smallest
}
