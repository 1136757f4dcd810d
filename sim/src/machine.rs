//! One machine: its disk, and the agent's process while there is one.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use ironwright_agent_core::{Agent, Config};
use ironwright_control_core::session::Peer;
use ironwright_proto::kinds::{self, Role};
use rand::rngs::StdRng;

use crate::{calendar::At, disk::Disk, link::LinkId, streams::Streams};

/// What its agent runs.
const KINDS: [&str; 2] = [kinds::INVENTORY_COLLECT, kinds::NODE_REBOOT];

/// What its agent applies.
pub(crate) const SECTIONS: [&str; 3] = ["network", "storage", "users"];

/// The agent's process.
pub(crate) struct Process {
    /// No two processes of a simulation have the same.
    pub(crate) id: u64,
    pub(crate) agent: Agent,
    pub(crate) since: At,
    /// When its next tick is entered in the calendar.
    pub(crate) tick_at: Option<At>,
    /// The commands whose effects are under way.
    pub(crate) running: BTreeSet<String>,
}

/// A machine.
pub(crate) struct Machine {
    pub(crate) index: u32,
    pub(crate) peer: Peer,
    pub(crate) disk: Disk,
    pub(crate) process: Option<Process>,
    pub(crate) link: Option<LinkId>,
    /// Ends the process at the next write: after how many effects (0: before the write), and for how long.
    pub(crate) crash: Option<(u8, Duration)>,
    /// When a live gateway last had a frame of it.
    pub(crate) last_frame: Option<At>,
    /// The link of the newest session that was opened for it.
    pub(crate) newest: Option<LinkId>,
    pub(crate) boots: u32,
    /// What people want of it, and what it is, by section.
    pub(crate) wanted: BTreeMap<String, Vec<u8>>,
    pub(crate) truth: BTreeMap<String, Vec<u8>>,
    /// The boot in which the agent was started last.
    started_in: Option<u32>,
    journals: u32,
    processes: u64,
    pub(crate) rng: StdRng,
    streams: Streams,
}

fn journal_id(index: u32, number: u32) -> String {
    format!("journal-{index}-{number}")
}

impl Machine {
    /// A machine that has joined and is switched off.
    pub(crate) fn new(index: u32, peer: Peer, streams: Streams) -> Self {
        Self {
            index,
            peer,
            disk: Disk::new(journal_id(index, 0)),
            process: None,
            link: None,
            crash: None,
            last_frame: None,
            newest: None,
            boots: 0,
            wanted: BTreeMap::new(),
            truth: BTreeMap::new(),
            started_in: None,
            journals: 0,
            processes: 0,
            rng: streams.stream("machine", index.into()),
            streams,
        }
    }

    /// Starts the agent on what the disk holds; whether it is the first one of this boot.
    pub(crate) fn start(&mut self, now: At) -> bool {
        self.processes += 1;
        let id = (u64::from(self.index) << 32) | self.processes;
        let config = Config {
            node_id: self.peer.node_id.clone(),
            role: Role::Node,
            boot_id: format!("boot-{}-{}", self.index, self.boots),
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            site: String::new(),
            address: String::new(),
            kinds: KINDS.to_vec(),
            sections: SECTIONS.to_vec(),
        };
        let agent = Agent::new(config, self.disk.read(), self.streams.stream("agent", id));
        self.process = Some(Process { id, agent, since: now, tick_at: None, running: BTreeSet::new() });
        self.started_in.replace(self.boots) != Some(self.boots)
    }

    /// The disk comes back empty.
    pub(crate) fn lose_journal(&mut self, keep_id: bool) {
        if !keep_id {
            self.journals += 1;
        }
        self.disk.lose(journal_id(self.index, self.journals));
    }
}
