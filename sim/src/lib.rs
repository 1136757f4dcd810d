//! A deterministic fleet: the real [agent core](ironwright_agent_core) and [control core](ironwright_control_core) on
//! simulated time, links and disks, with faults and with invariants that are checked from outside.
//!
//! [`run`] takes a [`Plan`] and gives a [`Report`]. The same plan gives the same log, byte for byte; the report has its
//! digest. A report with violations comes with the schedule of faults, which [`shrink`] makes smaller.
//!
//! What is simulated is what surrounds the cores: the transport (as a stream that keeps its order, unless a fault is
//! set to break that), the journal's disk, executors, clocks, and several gateways on one store. Not simulated: TLS,
//! joins, sites and deploy runs.

mod bugs;
mod calendar;
mod chaos;
mod cold_start;
mod disk;
mod facts;
mod gateway;
mod invariants;
mod link;
mod machine;
mod plan;
mod shrink;
mod streams;
mod workload;
mod world;

use std::io::Write;

pub use bugs::Bug;
pub use calendar::At;
pub use chaos::{Fault, FaultKind, GatewayFault, LinkFault, MAX_SKEW, MachineFault};
pub use cold_start::{ColdStart, cold_start};
pub use facts::{Counts, Fact, Facts};
pub use invariants::{Violation, check};
pub use plan::{Chaos, Plan, SETTLE, UnknownChaos};
pub use shrink::shrink;

/// What a simulation showed.
#[derive(Debug, Clone)]
pub struct Report {
    /// SHA-256 of the log, hexadecimal.
    pub digest: String,
    /// Lines of the log.
    pub log_lines: u64,
    /// What does not hold, by time. Empty is what everybody hopes for.
    pub violations: Vec<Violation>,
    /// What was counted.
    pub counts: Counts,
    /// The faults that struck.
    pub schedule: Vec<Fault>,
    /// What happened.
    pub facts: Facts,
}

/// Runs a simulation to its end. `log` gets every line of the log.
pub fn run(plan: &Plan, log: Option<Box<dyn Write>>) -> Report {
    let outcome = world::World::new(plan, facts::Log::new(log)).run();
    Report {
        digest: outcome.digest,
        log_lines: outcome.log_lines,
        violations: check(&outcome.facts),
        counts: outcome.counts,
        schedule: outcome.schedule,
        facts: outcome.facts,
    }
}
