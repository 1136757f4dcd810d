//! One gateway: a control on the store that all share, with a clock of its own.

use std::{collections::BTreeMap, time::Duration};

use ironwright_control_core::{Control, SessionRef, Settings, store::MemStore};
use ironwright_proto::ids::Digest;
use rand::rngs::StdRng;

use crate::{calendar::At, link::LinkId, streams::Streams};

/// True time at the start of a simulation, in ms since the Unix epoch.
const START_MS: i64 = 1_764_547_200_000;

/// A gateway.
pub(crate) struct Gateway {
    pub(crate) index: u32,
    pub(crate) control: Option<Control<MemStore>>,
    pub(crate) rng: StdRng,
    /// Counts its processes.
    pub(crate) incarnation: u64,
    pub(crate) sessions: BTreeMap<SessionRef, LinkId>,
    /// Its clock's difference from true time.
    pub(crate) skew_ms: i64,
    /// Its time does not pass before this.
    pub(crate) workers_out_until: At,
    /// It dies when it next has something to send, or at its next tick, and stays away so long.
    pub(crate) dying: Option<Duration>,
    streams: Streams,
}

pub(crate) fn settings(index: u32) -> Settings {
    Settings {
        control_url: "https://control.example:8443".to_owned(),
        ca_pin: Digest([0; 32]),
        gateway: format!("gateway-{index}"),
        ek_roots_pem: String::new(),
    }
}

impl Gateway {
    pub(crate) fn new(index: u32, streams: Streams) -> Self {
        Self {
            index,
            control: None,
            rng: streams.stream("gateway", index.into()),
            incarnation: 0,
            sessions: BTreeMap::new(),
            skew_ms: 0,
            workers_out_until: At::default(),
            dying: None,
            streams,
        }
    }

    /// The time as its clock shows it.
    pub(crate) fn clock_ms(&self, now: At) -> i64 {
        START_MS + now.millis() + self.skew_ms
    }

    /// Starts its process.
    pub(crate) fn start(
        &mut self,
        store: &MemStore,
        now: At,
    ) -> Result<(), ironwright_control_core::SetupError> {
        self.incarnation += 1;
        self.rng = self.streams.stream("gateway", (self.incarnation << 32) | u64::from(self.index));
        self.control = Some(Control::new(store.clone(), settings(self.index), self.clock_ms(now))?);
        Ok(())
    }

    /// Its process ends; gives the links that it had.
    pub(crate) fn die(&mut self) -> Vec<LinkId> {
        self.control = None;
        self.dying = None;
        self.workers_out_until = At::default();
        std::mem::take(&mut self.sessions).into_values().collect()
    }
}
