//! How fast a whole fleet comes up, and comes back.
//!
//! ```text
//!   0 s ─ all machines are switched on within 30 s ─ all have sessions ─┐
//!  60 s ─ all gateways die, and all machines with them ─────────────────┘
//!  70 s ─ gateways are back; machines are on again between 70 s and 100 s ─ all have sessions
//! 180 s ─ end
//! ```

use std::{collections::BTreeMap, time::Duration};

use rand::Rng;

use crate::{
    Report,
    calendar::At,
    chaos::{Fault, FaultKind, GatewayFault, MachineFault},
    facts::Fact,
    plan::{Chaos, Plan},
    run,
    streams::Streams,
};

/// When everything goes down.
const DOWN: At = At::seconds(60);
/// How long the gateways stay away.
const GATEWAYS_AWAY: Duration = Duration::from_secs(10);
/// After the gateways, machines come back within this time, as they came at first.
const SPREAD: Duration = Duration::from_secs(30);

/// What a cold start showed. Times are simulated.
#[derive(Debug, Clone)]
pub struct ColdStart {
    /// From the first machine's power on to the last one's first session; `None` where one has none.
    pub all_up: Option<Duration>,
    /// From the gateways' return to the last machine's next session.
    pub all_back: Option<Duration>,
    /// Nodes that were marked unreachable before everything went down.
    pub unreachable: usize,
    /// The simulation.
    pub report: Report,
}

/// Starts `nodes` machines behind `gateways` gateways, takes everything down, and lets it come back.
pub fn cold_start(seed: u64, nodes: u32, gateways: u32) -> ColdStart {
    let plan = Plan {
        gateways,
        power_on_within: SPREAD,
        orders_per_node_and_hour: 0,
        schedule: Some(everything_goes_down(seed, nodes, gateways)),
        settle: Duration::ZERO,
        ..Plan::new(seed, nodes, 3, Chaos::None)
    };
    let report = run(&plan, None);
    let (mut first, mut next) = (BTreeMap::new(), BTreeMap::new());
    let mut unreachable = 0;
    for (at, fact) in &report.facts {
        match fact {
            Fact::SessionOpened { node } if *at < DOWN => {
                first.entry(*node).or_insert(*at);
            }
            Fact::SessionOpened { node } => {
                next.entry(*node).or_insert(*at);
            }
            Fact::Unreachable { .. } if *at < DOWN => unreachable += 1,
            _ => {}
        }
    }
    let last = |of: &BTreeMap<u32, At>, since: At| {
        let all = of.len() == nodes as usize;
        of.values().max().filter(|_| all).map(|last| *last - since)
    };
    let all_up = last(&first, At::default());
    let all_back = last(&next, DOWN + GATEWAYS_AWAY);
    ColdStart { all_up, all_back, unreachable, report }
}

fn everything_goes_down(seed: u64, nodes: u32, gateways: u32) -> Vec<Fault> {
    let gateway = |index| FaultKind::Gateway(index, GatewayFault::Kill(GATEWAYS_AWAY));
    let machine = |index: u32| {
        let mut rng = Streams(seed).stream("cold start", index.into());
        let down = GATEWAYS_AWAY + rng.gen_range(Duration::ZERO..SPREAD);
        FaultKind::Machine(index, MachineFault::Reboot(down))
    };
    let all = (0..gateways).map(gateway).chain((0..nodes).map(machine));
    all.map(|kind| Fault { at: DOWN, kind }).collect()
}
