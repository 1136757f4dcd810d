//! Links between agents and gateways.
//!
//! ```text
//!              latency                    either side ends it, or a fault
//!   (asked) ───────────▶ Up, two lanes ──────────────────────────────────▶ one side knows ──▶ both know: forgotten
//!      └─ refused, or no way: the agent is told, at once or after a time-out
//! ```
//! A lane keeps the order of its frames, as a stream does, unless a fault lets them overtake each other. A lane that is
//! dead drops everything and tells nobody; each side then notices by itself, by the keep-alive of the transport.

use std::time::Duration;

use ironwright_control_core::SessionRef;
use rand::{Rng, rngs::StdRng};

use crate::calendar::At;

/// The keep-alive of HTTP/2: 20 s, and 20 s for the answer.
const NOTICE_S: std::ops::Range<f64> = 20.0..40.0;
/// What a frame takes at least and at most, apart from faults.
const LATENCY_MS: std::ops::Range<f64> = 0.2..20.0;
const OVERTAKING_MS: std::ops::Range<f64> = 0.0..500.0;

pub(crate) type LinkId = u64;

/// One direction of a link.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    pub(crate) dead: bool,
    pub(crate) stalled_until: At,
    pub(crate) duplicates_until: At,
    pub(crate) reorders_until: At,
    last: At,
}

impl Lane {
    /// When what is sent now arrives: never, once, or twice.
    pub(crate) fn arrivals(&mut self, now: At, rng: &mut StdRng) -> Vec<At> {
        if self.dead {
            return Vec::new();
        }
        let mut arrivals = vec![self.arrival(now, rng)];
        if now < self.duplicates_until {
            arrivals.push(self.arrival(now, rng));
        }
        arrivals
    }

    fn arrival(&mut self, now: At, rng: &mut StdRng) -> At {
        let mut at = now.max(self.stalled_until) + latency(rng);
        if now < self.reorders_until {
            at = at + millis(rng.gen_range(OVERTAKING_MS));
        } else {
            at = at.max(self.last);
        }
        self.last = self.last.max(at);
        at
    }
}

/// A link.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) node: u32,
    pub(crate) gateway: u32,
    pub(crate) up: Lane,
    pub(crate) down: Lane,
    /// Set by the Welcome.
    pub(crate) session: Option<SessionRef>,
    /// The agent, the gateway, do not know of its end yet.
    pub(crate) agent_has_it: bool,
    pub(crate) gateway_has_it: bool,
}

impl Link {
    pub(crate) fn new(node: u32, gateway: u32) -> Self {
        Self {
            node,
            gateway,
            up: Lane::default(),
            down: Lane::default(),
            session: None,
            agent_has_it: true,
            gateway_has_it: true,
        }
    }

    pub(crate) const fn is_over(&self) -> bool {
        !self.agent_has_it && !self.gateway_has_it
    }
}

pub(crate) fn latency(rng: &mut StdRng) -> Duration {
    millis(rng.gen_range(LATENCY_MS))
}

/// How long a side takes to notice that the other one is silent.
pub(crate) fn notice(rng: &mut StdRng) -> Duration {
    Duration::from_secs_f64(rng.gen_range(NOTICE_S))
}

fn millis(ms: f64) -> Duration {
    Duration::from_secs_f64(ms / 1000.0)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    fn arrivals(lane: &mut Lane) -> Vec<At> {
        let mut rng = StdRng::seed_from_u64(3);
        (0..100).flat_map(|ms| lane.arrivals(At(ms * 1000), &mut rng)).collect()
    }

    #[test]
    fn a_lane_keeps_its_order_and_loses_nothing() {
        let all = arrivals(&mut Lane::default());
        assert!(all.len() == 100 && all.is_sorted());
    }

    #[test]
    fn faults_do_what_they_say() {
        let until = At::seconds(1);
        assert_eq!(arrivals(&mut Lane { dead: true, ..Lane::default() }), []);
        assert_eq!(arrivals(&mut Lane { duplicates_until: until, ..Lane::default() }).len(), 200);
        assert!(!arrivals(&mut Lane { reorders_until: until, ..Lane::default() }).is_sorted());
        let stalled = arrivals(&mut Lane { stalled_until: until, ..Lane::default() });
        assert!(stalled.len() == 100 && stalled.iter().all(|at| *at > until));
    }
}
