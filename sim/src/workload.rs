//! What people want: orders, and changes of specs.

use std::time::Duration;

use ironwright_proto::kinds;
use rand::{Rng, rngs::StdRng};

use crate::{calendar::At, machine::SECTIONS, plan::Plan, streams::Streams};

/// Something to be asked of control.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) at: At,
    pub(crate) node: u32,
    /// At which gateway it is asked, if that one is up.
    pub(crate) gateway: u32,
    pub(crate) wish: Wish,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wish {
    Order {
        kind: &'static str,
        at_most_once: bool,
        /// Not before the node has come to its spec as it is now.
        after_spec: bool,
        /// How long it may take until it is started.
        deadline: Duration,
    },
    Section {
        name: &'static str,
        body: u64,
    },
}

/// One wish in so many is for a spec.
const SPECS_OF: u32 = 8;
/// A section that no agent knows.
pub(crate) const UNKNOWN_SECTION: &str = "future";

/// All wishes of a plan, in the order of their times.
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
            let gateway = rng.gen_range(0..plan.gateways);
            jobs.push(Job { at, node, gateway, wish: wish(&mut rng) });
        }
    }
    jobs.sort_by_key(|job| job.at);
    jobs
}

fn wish(rng: &mut StdRng) -> Wish {
    if rng.gen_ratio(1, SPECS_OF) {
        let known = rng.gen_range(0..=SECTIONS.len());
        let name = SECTIONS.get(known).copied().unwrap_or(UNKNOWN_SECTION);
        return Wish::Section { name, body: rng.gen_range(0..1_000_000) };
    }
    Wish::Order {
        kind: if rng.gen_bool(0.05) { kinds::NODE_REBOOT } else { kinds::INVENTORY_COLLECT },
        at_most_once: rng.gen_bool(0.5),
        after_spec: rng.gen_bool(0.2),
        deadline: Duration::from_secs(rng.gen_range(30..480)),
    }
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
