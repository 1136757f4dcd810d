//! The shell around the agent core: processes, the journal's disk, executors.

use std::time::Duration;

use ironwright_agent_core::{Effect, Input, Record, fail};
use ironwright_proto::{
    kinds,
    wire::{SpecSection, agent_frame},
};
use rand::Rng;

use super::{Event, World};
use crate::{bugs::Bug, calendar::At, facts::Fact};

/// How long an effect takes.
const APPLY_S: std::ops::Range<f64> = 0.05..8.0;
const EFFECT_S: std::ops::Range<f64> = 0.01..20.0;
/// How long a machine takes to come back after a reboot.
const REBOOT_S: std::ops::Range<f64> = 10.0..60.0;
/// How many effects fail.
const FAILING: f64 = 0.02;

impl World<'_> {
    /// Starts the agent of a machine that has none.
    pub(super) fn start_agent(&mut self, node: u32) {
        let now = self.calendar.now();
        let machine = &mut self.machines[node as usize];
        if machine.process.is_none() {
            if machine.start(now) {
                self.fact(Fact::Booted { node });
            }
            self.count("processes started");
            self.step(node, Input::Start);
        }
    }

    pub(super) fn tick_agent(&mut self, node: u32, id: u64) {
        let now = self.calendar.now();
        let process = self.machines[node as usize].process.as_mut();
        if let Some(process) = process.filter(|process| process.id == id && process.tick_at == Some(now)) {
            process.tick_at = None;
            self.step(node, Input::Tick);
        }
    }

    /// Steps the core, performs what follows, and what follows from a link that could not take it.
    pub(super) fn step(&mut self, node: u32, input: Input) {
        if !self.step_once(node, input) {
            self.drop_link(node);
            self.step_once(node, Input::LinkLost);
        }
        self.enter_tick(node);
    }

    /// False where a frame could not be sent.
    fn step_once(&mut self, node: u32, input: Input) -> bool {
        let now = self.calendar.now();
        let Some(process) = &mut self.machines[node as usize].process else { return true };
        let effects = process.agent.step(input, now - process.since);
        let (mut records, mut acts) = (Vec::new(), Vec::new());
        for effect in effects {
            match effect {
                Effect::Persist(record) => records.push(record),
                act => acts.push(act),
            }
        }
        self.perform(node, &records, acts)
    }

    /// First all records in one durable write, then the rest in order, as the real shell does. Ends early where the
    /// process ends.
    fn perform(&mut self, node: u32, records: &[Record], acts: Vec<Effect>) -> bool {
        let crash = if records.is_empty() { None } else { self.machines[node as usize].crash.take() };
        let late = self.has_bug(Bug::ActBeforeJournal);
        if let Some((0, down)) = crash.filter(|_| !late) {
            self.crash(node, down);
            return true;
        }
        if !late && !self.write(node, records) {
            return true;
        }
        let mut sent = true;
        for (done, act) in (1_u8..).zip(acts) {
            if let Some((boundary, down)) = crash
                && done == boundary
            {
                self.crash(node, down);
                return true;
            }
            sent &= self.act(node, act);
            if self.machines[node as usize].process.is_none() {
                return true;
            }
        }
        if let Some((_, down)) = crash {
            self.crash(node, down);
            return true;
        }
        if late && !self.write(node, records) {
            return true;
        }
        sent
    }

    /// False where the disk failed, which ends the process.
    fn write(&mut self, node: u32, records: &[Record]) -> bool {
        if records.is_empty() || self.machines[node as usize].disk.write(records).is_ok() {
            return true;
        }
        self.crash(node, Duration::from_secs(5));
        false
    }

    fn act(&mut self, node: u32, act: Effect) -> bool {
        match act {
            Effect::Connect => self.connect(node),
            Effect::Disconnect => self.drop_link(node),
            Effect::Send(frame) => return self.send_up(node, &frame),
            Effect::Start(order) => self.begin_effect(node, order.id, order.kind),
            Effect::Cancel(id) => {
                let process = self.machines[node as usize].process.as_mut();
                if process.is_some_and(|process| process.running.remove(&id)) {
                    let result = Err(fail("cancelled", "as asked"));
                    self.step(node, Input::Finished { id, result });
                }
            }
            Effect::Apply(section) => {
                let machine = &mut self.machines[node as usize];
                let Some(process) = machine.process.as_ref().map(|process| process.id) else { return true };
                let takes = Duration::from_secs_f64(machine.rng.gen_range(APPLY_S));
                self.calendar.enter_after(takes, Event::Applied { node, process, section });
            }
            Effect::Persist(_) | Effect::Tell(_) => {}
        }
        true
    }

    /// A section is applied, unless the process that did it has ended, or it fails.
    pub(super) fn applied(&mut self, node: u32, id: u64, section: SpecSection) {
        let now = self.calendar.now();
        let quiet = now > At::seconds(u64::from(self.plan.minutes) * 60);
        let machine = &mut self.machines[node as usize];
        if machine.process.as_ref().is_none_or(|process| process.id != id) {
            return;
        }
        let fails = machine.rng.gen_bool(FAILING) && !quiet;
        let SpecSection { name, body } = section;
        let result = if fails { Err("simulated".to_owned()) } else { Ok(()) };
        if !fails {
            machine.truth.insert(name.clone(), body);
            self.count("sections applied");
        }
        self.step(node, Input::Applied { name, result });
    }

    fn begin_effect(&mut self, node: u32, command: String, kind: String) {
        let machine = &mut self.machines[node as usize];
        let Some(process) = &mut machine.process else { return };
        let id = process.id;
        process.running.insert(command.clone());
        let takes = Duration::from_secs_f64(machine.rng.gen_range(EFFECT_S));
        self.fact(Fact::Started { command: command.clone(), node, process: id });
        self.calendar.enter_after(takes, Event::Effect { node, process: id, command, kind });
    }

    /// An effect is complete, unless its process ended or it was cancelled.
    pub(super) fn effect(&mut self, node: u32, id: u64, command: String, kind: &str) {
        let machine = &mut self.machines[node as usize];
        let Some(process) = machine.process.as_mut().filter(|process| process.id == id) else { return };
        if !process.running.remove(&command) {
            return;
        }
        if kind == kinds::NODE_REBOOT {
            let down = Duration::from_secs_f64(machine.rng.gen_range(REBOOT_S));
            self.fact(Fact::Completed { command });
            return self.power_off(node, down);
        }
        if machine.rng.gen_bool(FAILING) {
            let result = Err(fail("simulated", "the effect failed"));
            return self.step(node, Input::Finished { id: command, result });
        }
        self.fact(Fact::Completed { command: command.clone() });
        self.step(node, Input::Finished { id: command, result: Ok(Vec::new()) });
    }

    /// The process ends; the machine goes on, and starts it again.
    pub(super) fn crash(&mut self, node: u32, down: Duration) {
        self.drop_link(node);
        self.end_process(node);
        self.calendar.enter_after(down, Event::Start { node });
    }

    /// The machine goes off without a word, and comes back with another boot id.
    pub(super) fn power_off(&mut self, node: u32, down: Duration) {
        self.forget_link(node);
        self.end_process(node);
        self.machines[node as usize].boots += 1;
        self.calendar.enter_after(down, Event::Start { node });
    }

    fn end_process(&mut self, node: u32) {
        let machine = &mut self.machines[node as usize];
        machine.disk.crash();
        if let Some(process) = machine.process.take() {
            self.fact(Fact::ProcessEnded { node, process: process.id });
        }
    }

    fn enter_tick(&mut self, node: u32) {
        let Some(process) = &mut self.machines[node as usize].process else { return };
        let at = process.agent.next_deadline().map(|after| process.since + after);
        if let Some(at) = at.filter(|at| process.tick_at != Some(*at)) {
            // One that is due already happens now, once.
            let at = at.max(self.calendar.now());
            process.tick_at = Some(at);
            let process = process.id;
            self.calendar.enter(at, Event::Tick { node, process });
        }
    }

    /// Whether it was sent; what a dead lane swallows counts as sent.
    fn send_up(&mut self, node: u32, frame: &agent_frame::Frame) -> bool {
        let machine = &mut self.machines[node as usize];
        let Some(id) = machine.link else { return false };
        let Some(link) = self.links.get_mut(&id) else { return false };
        if self.plan.bug == Some(Bug::SwallowReports) && matches!(frame, agent_frame::Frame::Status(_)) {
            return true;
        }
        let arrivals = link.up.arrivals(self.calendar.now(), &mut machine.rng);
        for at in arrivals {
            self.calendar.enter(at, Event::ToGateway(id, frame.clone()));
        }
        true
    }
}
