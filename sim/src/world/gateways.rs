//! The shell around control's core: frames in, output out, ticks, deaths.

use std::time::Duration;

use ironwright_control_core::{
    Change, Control, Error, NodeOrder, Output, SessionRef,
    session::Opened,
    store::{MemStore, Store},
    testing,
};
use ironwright_proto::{
    api::NodeState,
    kinds,
    wire::{AgentFrame, Rejected, agent_frame, gateway_frame},
};
use rand::rngs::StdRng;

use super::{Event, World};
use crate::{
    bugs::Bug,
    facts::Fact,
    link::LinkId,
    workload::{Job, UNKNOWN_SECTION, Wish},
};

const TICK: Duration = Duration::from_secs(1);
/// When something is asked again that no gateway could take.
const ASK_AGAIN: Duration = Duration::from_secs(5);

impl World<'_> {
    pub(super) fn start_gateway(&mut self, index: u32) {
        let now = self.calendar.now();
        let gateway = &mut self.gateways[index as usize];
        if gateway.control.is_some() {
            return;
        }
        if let Err(error) = gateway.start(&self.store, now) {
            return self.fact(Fact::Failed { what: format!("starting gateway {index}: {error}") });
        }
        let incarnation = gateway.incarnation;
        self.calendar.enter_after(TICK, Event::GatewayTick { gateway: index, incarnation });
    }

    /// Calls control, if it is up. An error of it is a fact.
    fn call<R>(
        &mut self,
        index: u32,
        f: impl FnOnce(&mut Control<MemStore>, i64, &mut StdRng) -> Result<R, Error>,
    ) -> Option<R> {
        let gateway = &mut self.gateways[index as usize];
        let now_ms = gateway.clock_ms(self.calendar.now());
        match f(gateway.control.as_mut()?, now_ms, &mut gateway.rng) {
            Ok(value) => Some(value),
            Err(error) => {
                self.fact(Fact::Failed { what: format!("gateway {index}: {error}") });
                None
            }
        }
    }

    pub(super) fn tick_gateway(&mut self, index: u32, incarnation: u64) {
        let now = self.calendar.now();
        let gateway = &self.gateways[index as usize];
        if gateway.incarnation != incarnation || gateway.control.is_none() {
            return;
        }
        if gateway.dying.is_some() {
            return self.kill(index);
        }
        if now >= gateway.workers_out_until {
            self.let_time_pass(index);
        }
        self.calendar.enter_after(TICK, Event::GatewayTick { gateway: index, incarnation });
    }

    fn let_time_pass(&mut self, index: u32) {
        if let Some(output) = self.call(index, Control::tick) {
            self.carry_out(index, output);
        }
    }

    /// A frame arrives at the gateway's end of a link.
    pub(super) fn arrive_at_gateway(&mut self, id: LinkId, frame: agent_frame::Frame) {
        let Some(link) = self.links.get(&id).filter(|link| link.gateway_has_it) else { return };
        let (node, index, session) = (link.node, link.gateway, link.session.clone());
        match (session, frame) {
            (None, agent_frame::Frame::Hello(hello)) => self.open(id, node, index, &hello),
            // The real shell waits for a Hello, and hangs up on anything else.
            (None, _) => self.hang_up(id),
            (Some(session), frame) => self.frame(id, node, index, &session, frame),
        }
    }

    fn open(&mut self, id: LinkId, node: u32, index: u32, hello: &ironwright_proto::wire::Hello) {
        let peer = self.machines[node as usize].peer.clone();
        if self.has_bug(Bug::SameEpoch)
            && let Err(error) = testing::forget_epoch(&self.store, &peer.node_id)
        {
            self.fact(Fact::Failed { what: format!("forgetting an epoch: {error}") });
        }
        let opened = self.call(index, |control, now_ms, rng| control.session_open(&peer, hello, now_ms, rng));
        match opened {
            Some(Opened::Welcome { epoch, output }) => {
                let now = self.calendar.now();
                let machine = &mut self.machines[node as usize];
                machine.newest = Some(id);
                machine.last_frame = Some(now);
                let session = SessionRef { node: peer.node_id, epoch };
                if let Some(link) = self.links.get_mut(&id) {
                    link.session = Some(session.clone());
                }
                self.gateways[index as usize].sessions.insert(session, id);
                self.count("sessions");
                self.fact(Fact::SessionOpened { node });
                self.carry_out(index, output);
            }
            Some(Opened::Rejected(Rejected { code, message })) => {
                self.log.line(self.calendar.now(), format_args!("rejected machine {node}: {code}"));
                self.send_down(id, &gateway_frame::Frame::Rejected(Rejected { code, message }));
                self.hang_up(id);
            }
            None => self.hang_up(id),
        }
    }

    fn frame(&mut self, id: LinkId, node: u32, index: u32, session: &SessionRef, frame: agent_frame::Frame) {
        let is_old = self.machines[node as usize].newest != Some(id);
        if is_old {
            // What time alone writes is written before, so that the frame itself can be judged.
            self.let_time_pass(index);
        }
        let version = self.store.version();
        let observed = match &frame {
            agent_frame::Frame::Status(report) => Some(report.observed_generation),
            _ => None,
        };
        // Others change nothing anyway.
        let matters = matches!(frame, agent_frame::Frame::Command(_));
        let frame = AgentFrame { frame: Some(frame) };
        let Some(output) = self.call(index, |control, now_ms, rng| {
            control.session_frame(&session.node, session.epoch, &frame, now_ms, rng)
        }) else {
            return;
        };
        self.count("frames from agents");
        if is_old {
            self.count("frames of older sessions");
        }
        if !is_old {
            self.machines[node as usize].last_frame = Some(self.calendar.now());
            if let Some(generation) = observed {
                self.fact(Fact::SpecObserved { node, generation });
            }
        } else if self.store.version() != version || matters && !output.close.contains(session) {
            self.fact(Fact::OldSessionHeard { node });
        }
        self.carry_out(index, output);
    }

    /// Sends all frames, then ends what is to be closed; unless the gateway dies before.
    fn carry_out(&mut self, index: u32, output: Output) {
        for change in output.changes {
            self.note(change);
        }
        if self.gateways[index as usize].dying.is_some() && !output.frames.is_empty() {
            return self.kill(index);
        }
        for (session, frame) in output.frames {
            let link = self.gateways[index as usize].sessions.get(&session).copied();
            if let (Some(link), Some(frame)) = (link, frame.frame) {
                self.send_down(link, &frame);
            }
        }
        for session in output.close {
            if let Some(link) = self.gateways[index as usize].sessions.remove(&session) {
                self.hang_up(link);
            }
        }
    }

    fn note(&mut self, change: Change) {
        match change {
            Change::CommandEnded { id, state, code } => {
                self.count("commands ended");
                self.fact(Fact::Ended { command: id, state, code });
            }
            Change::NodeState { node, state: NodeState::Unreachable } => {
                if let Some(node) = self.by_node.get(&node).copied() {
                    let last_frame = self.machines[node as usize].last_frame;
                    self.count("nodes marked unreachable");
                    self.fact(Fact::Unreachable { node, last_frame });
                }
            }
            Change::NodeState { .. } => {}
        }
    }

    fn send_down(&mut self, id: LinkId, frame: &gateway_frame::Frame) {
        let Some(link) = self.links.get_mut(&id) else { return };
        let rng = &mut self.machines[link.node as usize].rng;
        for at in link.down.arrivals(self.calendar.now(), rng) {
            self.calendar.enter(at, Event::ToAgent(id, frame.clone()));
        }
    }

    /// The gateway learns that a link is gone.
    pub(super) fn gateway_end(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(&id).filter(|link| link.gateway_has_it) else { return };
        link.gateway_has_it = false;
        let rng = &mut self.machines[link.node as usize].rng;
        if let Some(at) = link.down.arrivals(self.calendar.now(), rng).first() {
            self.calendar.enter(*at, Event::AgentEnd(id));
        }
        let (index, session) = (link.gateway, link.session.clone());
        self.forget(id);
        let Some(session) = session else { return };
        self.gateways[index as usize].sessions.remove(&session);
        self.call(index, |control, _, _| {
            control.session_closed(&session.node, session.epoch);
            Ok(())
        });
        if self.has_bug(Bug::UnreachableOnDisconnect) {
            self.imagine_silence(index);
        }
    }

    /// The mistake of [`Bug::UnreachableOnDisconnect`]: 40 s are said to have passed.
    fn imagine_silence(&mut self, index: u32) {
        for passed_ms in (2_000..=42_000).step_by(2_000) {
            let output = self.call(index, |control, now_ms, rng| control.tick(now_ms + passed_ms, rng));
            if let Some(output) = output {
                self.carry_out(index, output);
            }
        }
    }

    /// The gateway's process ends; what it had not sent is lost.
    pub(super) fn kill(&mut self, index: u32) {
        let gateway = &mut self.gateways[index as usize];
        let down = gateway.dying.unwrap_or(TICK);
        for link in gateway.die() {
            self.hang_up(link);
        }
        // Links without a session yet are gone, too.
        let rest: Vec<LinkId> =
            self.links.iter().filter(|(_, link)| link.gateway == index).map(|(id, _)| *id).collect();
        for id in rest {
            self.hang_up(id);
        }
        self.log.line(self.calendar.now(), format_args!("gateway {index} is dead"));
        self.calendar.enter_after(down, Event::GatewayStart(index));
    }

    /// Asks control for something, at its gateway or, where that is down, at another one.
    pub(super) fn ask(&mut self, job: Job) {
        let count = self.plan.gateways;
        let up = (0..count).map(|n| (job.gateway + n) % count).find(|index| {
            let gateway = &self.gateways[*index as usize];
            gateway.control.is_some()
        });
        let Some(index) = up else { return self.calendar.enter_after(ASK_AGAIN, Event::Job(Box::new(job))) };
        match job.wish {
            Wish::Order { kind, at_most_once, after_spec, deadline } => {
                self.order(index, job.node, kind, at_most_once, after_spec, deadline);
            }
            Wish::Section { name, body } => self.set_section(index, job.node, name, body),
        }
    }

    fn order(
        &mut self,
        index: u32,
        node: u32,
        kind: &'static str,
        at_most_once: bool,
        after_spec: bool,
        deadline: Duration,
    ) {
        let deadline_ms = i64::try_from(deadline.as_millis()).unwrap_or(i64::MAX);
        let node_id = self.machines[node as usize].peer.node_id.clone();
        let made = self.call(index, |control, now_ms, rng| {
            let generation = if after_spec { control.spec_status(&node_id)?.generation } else { 0 };
            let order = NodeOrder {
                node: node_id,
                kind: kind.to_owned(),
                at_most_once,
                min_generation: generation,
                not_after_ms: now_ms + deadline_ms,
            };
            control.order("operator", &order, now_ms, rng)
        });
        if let Some((command, output)) = made {
            let self_terminating = kind == kinds::NODE_REBOOT;
            let retry_safe = !at_most_once && !self_terminating;
            self.count("commands ordered");
            self.fact(Fact::Ordered { command, node, retry_safe, self_terminating });
            self.carry_out(index, output);
        }
    }

    fn set_section(&mut self, index: u32, node: u32, name: &'static str, body: u64) {
        let machine = &mut self.machines[node as usize];
        let (node_id, body) = (machine.peer.node_id.clone(), body.to_string().into_bytes());
        machine.wanted.insert(name.to_owned(), body.clone());
        let set = self.call(index, |control, now_ms, rng| {
            control.set_section("operator", &node_id, name, Some(&body), now_ms, rng)
        });
        if let Some((generation, output)) = set {
            self.count("specs set");
            self.log.line(self.calendar.now(), format_args!("machine {node}: spec {generation}"));
            self.carry_out(index, output);
        }
    }

    /// Whether the machine is as it should be, and control knows it.
    pub(super) fn compare_with_spec(&mut self, node: u32) {
        let node_id = self.machines[node as usize].peer.node_id.clone();
        let status = (0..self.plan.gateways).find_map(|index| {
            let node_id = node_id.clone();
            self.call(index, |control, _, _| control.spec_status(&node_id))
        });
        let Some(status) = status else { return };
        let machine = &self.machines[node as usize];
        let mut faults = Vec::new();
        if status.observed != status.generation {
            faults.push(format!("control wants {} and knows of {}", status.generation, status.observed));
        }
        for (name, body) in &machine.wanted {
            let expected = if name == UNKNOWN_SECTION { "failed" } else { "applied" };
            let reported = status.sections.get(name).map(|section| section.state.as_str());
            let is_so = name == UNKNOWN_SECTION || machine.truth.get(name) == Some(body);
            if reported != Some(expected) || !is_so {
                faults.push(format!("section {name}: reported {reported:?}, so it is: {is_so}"));
            }
        }
        for why in faults {
            self.fact(Fact::NotConverged { node, why });
        }
    }
}
