//! What is simulated: how many, how long, what goes wrong.

use std::{fmt, str::FromStr, time::Duration};

use crate::{bugs::Bug, chaos::Fault};

/// How much goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chaos {
    /// Nothing but latency.
    None,
    /// About one fault for each node in 20 minutes.
    Light,
    /// About one fault for each node in 3 minutes.
    Heavy,
}

impl fmt::Display for Chaos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Light => "light",
            Self::Heavy => "heavy",
        })
    }
}

/// Not a level of chaos.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is no level of chaos; expected none, light or heavy")]
pub struct UnknownChaos(String);

impl FromStr for Chaos {
    type Err = UnknownChaos;

    fn from_str(text: &str) -> Result<Self, UnknownChaos> {
        let all = [Self::None, Self::Light, Self::Heavy];
        all.into_iter().find(|chaos| chaos.to_string() == text).ok_or_else(|| UnknownChaos(text.to_owned()))
    }
}

/// One simulation. The same plan gives the same log, byte for byte.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What all randomness comes from.
    pub seed: u64,
    /// Machines.
    pub nodes: u32,
    /// Gateways, each a control on the one store.
    pub gateways: u32,
    /// Simulated time in which things go wrong.
    pub minutes: u32,
    /// Time without faults at the end.
    pub settle: Duration,
    /// How much goes wrong.
    pub chaos: Chaos,
    /// Machines are switched on evenly within this time.
    pub power_on_within: Duration,
    /// Orders that a node gets in an hour.
    pub orders_per_node_and_hour: u32,
    /// The faults; drawn from the seed where absent.
    pub schedule: Option<Vec<Fault>>,
    /// A mistake that is made on purpose, to see that it is found.
    pub bug: Option<Bug>,
}

/// Time in which all that was begun has to end: longer than any deadline.
pub const SETTLE: Duration = Duration::from_secs(15 * 60);

impl Plan {
    /// A plan with what is usual.
    pub const fn new(seed: u64, nodes: u32, minutes: u32, chaos: Chaos) -> Self {
        Self {
            seed,
            nodes,
            gateways: 3,
            minutes,
            settle: SETTLE,
            chaos,
            power_on_within: Duration::from_secs(30),
            orders_per_node_and_hour: 60,
            schedule: None,
            bug: None,
        }
    }

    /// The command that does the same again, where the plan is one that the program can make.
    pub fn command(&self) -> String {
        format!(
            "ironwright sim --seed {} --nodes {} --gateways {} --minutes {} --chaos {}",
            self.seed, self.nodes, self.gateways, self.minutes, self.chaos
        )
    }
}
