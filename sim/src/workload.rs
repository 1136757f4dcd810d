//! Orders that people give.

use std::time::Duration;

use ironwright_proto::kinds;
use rand::Rng;

use crate::{calendar::At, plan::Plan, streams::Streams};

/// An order to be given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) at: At,
    pub(crate) node: u32,
    pub(crate) kind: &'static str,
    pub(crate) at_most_once: bool,
    /// How long it may take until it is started.
    pub(crate) deadline: Duration,
    /// At which gateway it is given, if that one is up.
    pub(crate) gateway: u32,
}

/// All orders of a plan, in the order of their times.
pub(crate) fn jobs(plan: &Plan) -> Vec<Job> {
    if plan.orders_per_node_and_hour == 0 {
        return Vec::new();
    }
    let mean_s = 3600.0 / f64::from(plan.orders_per_node_and_hour);
    let end = At::seconds(u64::from(plan.minutes) * 60);
    let mut jobs = Vec::new();
    for node in 0..plan.nodes {
        let mut rng = Streams(plan.seed).stream("orders", node.into());
        let mut at_s = plan.power_on_within.as_secs_f64();
        loop {
            at_s -= mean_s * (1.0 - rng.gen_range(0.0..1.0_f64)).ln();
            let at = At::default() + Duration::from_secs_f64(at_s);
            if at >= end {
                break;
            }
            let kind = if rng.gen_bool(0.05) { kinds::NODE_REBOOT } else { kinds::INVENTORY_COLLECT };
            let at_most_once = rng.gen_bool(0.5);
            let deadline = Duration::from_secs(rng.gen_range(30..480));
            jobs.push(Job {
                at,
                node,
                kind,
                at_most_once,
                deadline,
                gateway: rng.gen_range(0..plan.gateways),
            });
        }
    }
    jobs.sort_by_key(|job| job.at);
    jobs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Chaos;

    #[test]
    fn the_rate_is_met_and_machines_are_independent() {
        let jobs_of = |nodes| jobs(&Plan::new(1, nodes, 60, Chaos::None));
        // 20 machines, 59.5 minutes, one order a minute: 1190 expected; 5 standard deviations.
        assert!((1018..=1362).contains(&jobs_of(20).len()));
        let of_first = |nodes| jobs_of(nodes).into_iter().filter(|job| job.node == 0);
        assert!(of_first(2).eq(of_first(20)));
    }
}
