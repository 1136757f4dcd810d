//! Faults: what they are, and a schedule of them.

use std::{fmt, ops::Range, time::Duration};

use rand::{Rng, rngs::StdRng};

use crate::{
    calendar::At,
    plan::{Chaos, Plan},
    streams::Streams,
};

/// Largest difference of a gateway's clock from true time.
pub const MAX_SKEW: Duration = Duration::from_secs(90);

/// A fault and its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// When it strikes.
    pub at: At,
    /// What happens.
    pub kind: FaultKind,
}

/// What happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultKind {
    /// To the link that the machine has now.
    Link(u32, LinkFault),
    /// To the machine itself.
    Machine(u32, MachineFault),
    /// To a gateway.
    Gateway(u32, GatewayFault),
    /// Nothing gets from these machines to the gateway or back.
    Partition {
        /// The gateway.
        gateway: u32,
        /// The machines.
        nodes: Range<u32>,
        /// For how long.
        lasts: Duration,
    },
}

/// What happens to a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkFault {
    /// Both ends learn at once that it is gone.
    Reset,
    /// Nothing arrives any more, and nobody is told.
    Silence,
    /// Nothing arrives in one direction any more: to the gateway, or from it.
    HalfOpen {
        /// To the gateway.
        up: bool,
    },
    /// Everything waits. A side that notices it, by the keep-alive, gives the link up; what waits arrives all the same.
    Stall(Duration),
    /// Frames arrive twice.
    Duplicate(Duration),
    /// Frames overtake each other.
    Reorder(Duration),
}

/// What happens to a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachineFault {
    /// The agent's process ends at the next write of its journal: before it, or after so many of the effects that
    /// follow it.
    Crash {
        /// 0: before the write.
        boundary: u8,
        /// Until it is started again.
        down: Duration,
    },
    /// The power fails.
    Reboot(Duration),
    /// The power fails, and the disk comes back empty.
    JournalLoss(Duration),
    /// The next write of the journal fails, which ends the process.
    DiskError(Duration),
    /// Something undoes a section of the spec that was applied: which one, of those that an agent knows.
    Drift(u8),
}

/// What happens to a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GatewayFault {
    /// The process is killed, and started again later.
    Kill(Duration),
    /// Its clock is set to be so far from true time, in ms.
    Clock(i64),
    /// Its time does not pass: no deadlines, no runs. Frames are handled.
    WorkerOutage(Duration),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.at, self.kind)
    }
}

/// Mean time between the faults of one machine, and of one gateway.
const fn means(chaos: Chaos) -> Option<(f64, f64)> {
    match chaos {
        Chaos::None => None,
        Chaos::Light => Some((20.0 * 60.0, 20.0 * 60.0)),
        Chaos::Heavy => Some((3.0 * 60.0, 5.0 * 60.0)),
    }
}

/// Draws all faults of a plan, in the order of their times.
pub(crate) fn schedule(plan: &Plan) -> Vec<Fault> {
    let Some((node_mean, gateway_mean)) = means(plan.chaos) else { return Vec::new() };
    let (streams, end) = (Streams(plan.seed), At::seconds(u64::from(plan.minutes) * 60));
    let mut faults = Vec::new();
    for node in 0..plan.nodes {
        let mut rng = streams.stream("faults of machine", node.into());
        for at in times(&mut rng, node_mean, end) {
            faults.push(Fault { at, kind: of_node(&mut rng, node) });
        }
    }
    for gateway in 0..plan.gateways {
        let mut rng = streams.stream("faults of gateway", gateway.into());
        for at in times(&mut rng, gateway_mean, end) {
            faults.push(Fault { at, kind: of_gateway(&mut rng, gateway, plan.nodes) });
        }
    }
    faults.sort_by_key(|fault| fault.at);
    faults
}

/// Moments with exponentially distributed gaps.
fn times(rng: &mut StdRng, mean_s: f64, end: At) -> Vec<At> {
    let (mut at_s, mut all) = (0.0, Vec::new());
    loop {
        at_s -= mean_s * (1.0 - rng.gen_range(0.0..1.0_f64)).ln();
        let at = At::default() + Duration::from_secs_f64(at_s);
        if at >= end {
            return all;
        }
        all.push(at);
    }
}

fn within(rng: &mut StdRng, seconds: Range<f64>) -> Duration {
    Duration::from_secs_f64(rng.gen_range(seconds))
}

fn of_node(rng: &mut StdRng, node: u32) -> FaultKind {
    let link = |fault| FaultKind::Link(node, fault);
    let machine = |fault| FaultKind::Machine(node, fault);
    match rng.gen_range(0..17) {
        0..3 => link(LinkFault::Reset),
        3 => link(LinkFault::Silence),
        4 => link(LinkFault::HalfOpen { up: rng.gen_bool(0.5) }),
        5 => link(LinkFault::Stall(within(rng, 1.0..60.0))),
        6 => link(LinkFault::Duplicate(within(rng, 5.0..60.0))),
        7 => link(LinkFault::Reorder(within(rng, 5.0..60.0))),
        8..12 => {
            let boundary = rng.gen_range(0..6);
            machine(MachineFault::Crash { boundary, down: within(rng, 0.5..20.0) })
        }
        12..14 => machine(MachineFault::Reboot(within(rng, 5.0..90.0))),
        14 => machine(MachineFault::JournalLoss(within(rng, 5.0..90.0))),
        15 => machine(MachineFault::Drift(rng.gen_range(0..3))),
        _ => machine(MachineFault::DiskError(within(rng, 0.5..20.0))),
    }
}

fn of_gateway(rng: &mut StdRng, gateway: u32, all_nodes: u32) -> FaultKind {
    match rng.gen_range(0..6) {
        0..2 => FaultKind::Gateway(gateway, GatewayFault::Kill(within(rng, 1.0..90.0))),
        2 => {
            let most = i64::try_from(MAX_SKEW.as_millis()).unwrap_or(i64::MAX);
            FaultKind::Gateway(gateway, GatewayFault::Clock(rng.gen_range(-most..=most)))
        }
        3 => FaultKind::Gateway(gateway, GatewayFault::WorkerOutage(within(rng, 1.0..60.0))),
        _ => {
            let first = rng.gen_range(0..all_nodes.max(1));
            let count = rng.gen_range(1..=all_nodes.max(4) / 4);
            let nodes = first..(first + count).min(all_nodes);
            FaultKind::Partition { gateway, nodes, lasts: within(rng, 5.0..120.0) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_further_machine_does_not_shift_the_faults_of_the_others() {
        let of = |nodes| {
            let all = schedule(&Plan::new(7, nodes, 60, Chaos::Heavy));
            all.into_iter()
                .filter(|fault| matches!(fault.kind, FaultKind::Link(2, _) | FaultKind::Machine(2, _)))
        };
        assert!(of(3).count() > 5);
        assert!(of(3).eq(of(4)));
    }

    #[test]
    fn the_means_are_met() {
        // 100 machines for 60 minutes: 2000 expected with heavy chaos, 300 with light; 5 standard deviations each.
        let count = |chaos| {
            let all = schedule(&Plan::new(1, 100, 60, chaos));
            all.iter()
                .filter(|fault| matches!(fault.kind, FaultKind::Link(..) | FaultKind::Machine(..)))
                .count()
        };
        assert!((1776..=2224).contains(&count(Chaos::Heavy)));
        assert!((213..=387).contains(&count(Chaos::Light)));
        assert_eq!(count(Chaos::None), 0);
    }
}
