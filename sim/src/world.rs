//! Everything that is simulated, and the loop that takes one event after the other.
//!
//! ```text
//!   calendar ──event──▶ machine: agent core step ──effects──▶ disk, links, executors ──events──▶ calendar
//!                └────▶ gateway: control core call ──output──▶ links, facts ──────────events──────┘
//! ```
//! The cores are the ones that the programs run. What is simulated is what the shells and the world do.

mod agents;
mod faults;
mod gateways;
mod links;

use std::collections::BTreeMap;

use ironwright_control_core::{audit, session::Peer, store::MemStore, testing};
use ironwright_proto::{
    kinds::Role,
    wire::{SpecSection, agent_frame, gateway_frame},
};

use crate::{
    bugs::Bug,
    calendar::{At, Calendar},
    chaos::{self, Fault, FaultKind},
    facts::{Counts, Fact, Facts, Log},
    gateway::Gateway,
    link::{Link, LinkId},
    machine::Machine,
    plan::Plan,
    streams::Streams,
    workload::{self, Job},
};

/// What can happen.
enum Event {
    /// The machine is switched on, or its agent is started again.
    Start {
        node: u32,
    },
    Tick {
        node: u32,
        process: u64,
    },
    LinkUp(LinkId),
    /// There is no way to the gateway.
    LinkRefused {
        node: u32,
        process: u64,
    },
    ToGateway(LinkId, agent_frame::Frame),
    ToAgent(LinkId, gateway_frame::Frame),
    /// A side learns that the link is gone.
    GatewayEnd(LinkId),
    AgentEnd(LinkId),
    /// The effect of a command is complete.
    Effect {
        node: u32,
        process: u64,
        command: String,
        kind: String,
    },
    GatewayStart(u32),
    /// The run for a section of the spec has ended.
    Applied {
        node: u32,
        process: u64,
        section: SpecSection,
    },
    GatewayTick {
        gateway: u32,
        incarnation: u64,
    },
    Fault(usize),
    Job(Box<Job>),
}

pub(crate) struct World<'p> {
    plan: &'p Plan,
    calendar: Calendar<Event>,
    store: MemStore,
    machines: Vec<Machine>,
    by_node: BTreeMap<String, u32>,
    gateways: Vec<Gateway>,
    links: BTreeMap<LinkId, Link>,
    next_link: LinkId,
    /// Gateway, machines, until when.
    partitions: Vec<(u32, std::ops::Range<u32>, At)>,
    schedule: Vec<Fault>,
    facts: Facts,
    counts: Counts,
    log: Log,
}

/// What a simulation leaves behind.
pub(crate) struct Outcome {
    pub(crate) facts: Facts,
    pub(crate) counts: Counts,
    pub(crate) digest: String,
    pub(crate) log_lines: u64,
    pub(crate) schedule: Vec<Fault>,
}

impl<'p> World<'p> {
    /// Machines that have joined and are switched off; everything that is known beforehand is in the calendar.
    pub(crate) fn new(plan: &'p Plan, log: Log) -> Self {
        let streams = Streams(plan.seed);
        let store = MemStore::new();
        let schedule = plan.schedule.clone().unwrap_or_else(|| chaos::schedule(plan));
        let mut world = Self {
            plan,
            calendar: Calendar::new(),
            machines: Vec::new(),
            by_node: BTreeMap::new(),
            gateways: (0..plan.gateways).map(|index| Gateway::new(index, streams)).collect(),
            store,
            links: BTreeMap::new(),
            next_link: 0,
            partitions: Vec::new(),
            schedule,
            facts: Vec::new(),
            counts: Counts::new(),
            log,
        };
        world.join_all(streams);
        for gateway in 0..plan.gateways {
            world.calendar.enter(At::default(), Event::GatewayStart(gateway));
        }
        for (index, fault) in world.schedule.iter().enumerate() {
            world.calendar.enter(fault.at, Event::Fault(index));
        }
        for job in workload::jobs(plan) {
            world.calendar.enter(job.at, Event::Job(Box::new(job)));
        }
        world
    }

    fn join_all(&mut self, streams: Streams) {
        for index in 0..self.plan.nodes {
            // Nothing here is encrypted: any distinct bytes will do for a key.
            let spki_der = index.to_be_bytes().to_vec();
            let mut rng = streams.stream("join", index.into());
            let joined = testing::join_unproven(&self.store, Role::Node, &spki_der, 0, &mut rng);
            let node_id = match joined {
                Ok(node_id) => node_id,
                Err(error) => return self.fact(Fact::Failed { what: format!("joining: {error}") }),
            };
            let mut machine = Machine::new(index, Peer { node_id: node_id.clone(), spki_der }, streams);
            machine.disk.loses_synced_writes = self.plan.bug == Some(Bug::LoseSyncedWrite);
            self.machines.push(machine);
            self.by_node.insert(node_id, index);
            let at = self.plan.power_on_within * index / self.plan.nodes.max(1);
            self.calendar.enter(At::default() + at, Event::Start { node: index });
        }
    }

    /// Runs to the end, and looks at what is left.
    pub(crate) fn run(mut self) -> Outcome {
        let end = At::seconds(u64::from(self.plan.minutes) * 60) + self.plan.settle;
        while let Some(event) = self.calendar.next(end) {
            self.take(event);
        }
        self.judge_the_rest();
        let (digest, log_lines) = self.log.end();
        Outcome { facts: self.facts, counts: self.counts, digest, log_lines, schedule: self.schedule }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Start { node } => self.start_agent(node),
            Event::Tick { node, process } => self.tick_agent(node, process),
            Event::LinkUp(link) => self.link_up(link),
            Event::LinkRefused { node, process } => self.link_refused(node, process),
            Event::ToGateway(link, frame) => self.arrive_at_gateway(link, frame),
            Event::ToAgent(link, frame) => self.arrive_at_agent(link, frame),
            Event::GatewayEnd(link) => self.gateway_end(link),
            Event::AgentEnd(link) => self.agent_end(link),
            Event::Effect { node, process, command, kind } => self.effect(node, process, command, &kind),
            Event::Applied { node, process, section } => self.applied(node, process, section),
            Event::GatewayStart(gateway) => self.start_gateway(gateway),
            Event::GatewayTick { gateway, incarnation } => self.tick_gateway(gateway, incarnation),
            Event::Fault(index) => self.strike(index),
            Event::Job(job) => self.ask(*job),
        }
    }

    /// What only the end can show.
    fn judge_the_rest(&mut self) {
        if let Err(error) = audit::verify(&self.store) {
            self.fact(Fact::AuditBroken { why: error.to_string() });
        }
        for node in 0..self.plan.nodes {
            self.compare_journals(node);
        }
        for node in 0..self.plan.nodes {
            self.compare_with_spec(node);
        }
        let mut connected = 0;
        for machine in &self.machines {
            let open = |gateway: &Gateway| {
                let control = gateway.control.as_ref()?;
                control.node(&machine.peer.node_id).ok().filter(|node| node.connected)
            };
            connected += u64::from(self.gateways.iter().any(|gateway| open(gateway).is_some()));
        }
        self.counts.insert("nodes connected at the end", connected);
    }

    fn fact(&mut self, fact: Fact) {
        let at = self.calendar.now();
        self.log.line(at, format_args!("{fact:?}"));
        self.facts.push((at, fact));
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn compare_journals(&mut self, node: u32) {
        let machine = &self.machines[node as usize];
        if machine.process.as_ref().is_some_and(|process| !machine.disk.holds(process.agent.journal())) {
            self.fact(Fact::JournalDiffers { node });
        }
    }

    /// Whether nothing gets from the machine to the gateway now.
    fn is_cut(&self, node: u32, gateway: u32) -> bool {
        let now = self.calendar.now();
        self.partitions
            .iter()
            .any(|(of, nodes, until)| *of == gateway && nodes.contains(&node) && now < *until)
    }

    fn has_bug(&self, bug: Bug) -> bool {
        self.plan.bug == Some(bug)
    }
}
