//! Links: how they come to be, and how both sides learn of their end.

use std::time::Duration;

use ironwright_agent_core::Input;
use ironwright_proto::wire::gateway_frame;
use rand::Rng;

use super::{Event, World};
use crate::{
    facts::Fact,
    link::{Link, LinkId, latency, notice},
};

/// How long an agent tries to reach a gateway that does not answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

impl World<'_> {
    /// Opens a link to any of the gateways.
    pub(super) fn connect(&mut self, node: u32) {
        let count = self.plan.gateways;
        let machine = &mut self.machines[node as usize];
        let Some(process) = machine.process.as_ref().map(|process| process.id) else { return };
        let gateway = machine.rng.gen_range(0..count.max(1));
        let after = latency(&mut machine.rng);
        let refused = Event::LinkRefused { node, process };
        if self.is_cut(node, gateway) {
            return self.calendar.enter_after(CONNECT_TIMEOUT, refused);
        }
        if self.gateways[gateway as usize].control.is_none() {
            return self.calendar.enter_after(after, refused);
        }
        let id = self.next_link;
        self.next_link += 1;
        self.links.insert(id, Link::new(node, gateway));
        self.machines[node as usize].link = Some(id);
        self.calendar.enter_after(after, Event::LinkUp(id));
    }

    /// The link of the event, if the agent still has it.
    fn is_agents(&self, id: LinkId) -> Option<u32> {
        let link = self.links.get(&id).filter(|link| link.agent_has_it)?;
        Some(link.node).filter(|node| self.machines[*node as usize].link == Some(id))
    }

    pub(super) fn link_up(&mut self, id: LinkId) {
        if let Some(node) = self.is_agents(id) {
            self.count("links");
            self.step(node, Input::Connected);
        }
    }

    pub(super) fn link_refused(&mut self, node: u32, id: u64) {
        if self.machines[node as usize].process.as_ref().is_some_and(|process| process.id == id) {
            self.step(node, Input::LinkLost);
        }
    }

    pub(super) fn arrive_at_agent(&mut self, id: LinkId, frame: gateway_frame::Frame) {
        if let Some(node) = self.is_agents(id) {
            if let gateway_frame::Frame::Spec(spec) = &frame {
                self.fact(Fact::SpecDelivered { node, generation: spec.generation });
            }
            self.step(node, Input::Frame(crate::bugs::seen_by_agent(self.plan.bug, frame)));
        }
    }

    /// The agent ends its link; the gateway learns it after what was sent before.
    pub(super) fn drop_link(&mut self, node: u32) {
        let machine = &mut self.machines[node as usize];
        let Some(id) = machine.link.take() else { return };
        let Some(link) = self.links.get_mut(&id) else { return };
        self.facts.push((self.calendar.now(), Fact::LinkTroubled { node }));
        link.agent_has_it = false;
        match link.up.arrivals(self.calendar.now(), &mut machine.rng).first() {
            Some(at) => self.calendar.enter(*at, Event::GatewayEnd(id)),
            None => self.calendar.enter_after(notice(&mut machine.rng), Event::GatewayEnd(id)),
        }
        self.forget(id);
    }

    /// The agent's side of the link is gone without a word.
    pub(super) fn forget_link(&mut self, node: u32) {
        let machine = &mut self.machines[node as usize];
        let Some(id) = machine.link.take() else { return };
        if let Some(link) = self.links.get_mut(&id) {
            link.agent_has_it = false;
        }
        self.calendar.enter_after(notice(&mut machine.rng), Event::GatewayEnd(id));
        self.forget(id);
    }

    pub(super) fn agent_end(&mut self, id: LinkId) {
        let node = self.is_agents(id);
        if let Some(link) = self.links.get_mut(&id).filter(|link| link.agent_has_it) {
            link.agent_has_it = false;
            // Whoever gives a link up says so, where anything gets through.
            let rng = &mut self.machines[link.node as usize].rng;
            if let Some(at) = link.up.arrivals(self.calendar.now(), rng).first() {
                self.calendar.enter(*at, Event::GatewayEnd(id));
            }
        }
        self.forget(id);
        if let Some(node) = node {
            self.machines[node as usize].link = None;
            self.step(node, Input::LinkLost);
            self.compare_journals(node);
        }
    }

    /// The gateway ends the link; the agent learns it after what was sent before.
    pub(super) fn hang_up(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(&id).filter(|link| link.gateway_has_it) else { return };
        self.facts.push((self.calendar.now(), Fact::LinkTroubled { node: link.node }));
        link.gateway_has_it = false;
        let rng = &mut self.machines[link.node as usize].rng;
        match link.down.arrivals(self.calendar.now(), rng).first() {
            Some(at) => self.calendar.enter(*at, Event::AgentEnd(id)),
            None => self.calendar.enter_after(notice(rng), Event::AgentEnd(id)),
        }
        self.forget(id);
    }

    /// Forgets a link of which both sides know that it is gone.
    pub(super) fn forget(&mut self, id: LinkId) {
        if self.links.get(&id).is_some_and(Link::is_over) {
            self.links.remove(&id);
        }
    }
}
