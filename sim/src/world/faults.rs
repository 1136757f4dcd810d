//! How faults strike.

use std::ops::Range;

use super::{At, Event, FaultKind, World};
use crate::{
    bugs::Bug,
    chaos::{GatewayFault, LinkFault, MachineFault},
    facts::Fact,
    link::{LinkId, latency, notice},
    machine::SECTIONS,
};

impl World<'_> {
    pub(super) fn strike(&mut self, index: usize) {
        let Some(fault) = self.schedule.get(index).cloned() else { return };
        self.log.line(self.calendar.now(), format_args!("fault {:?}", fault.kind));
        self.count("faults");
        match fault.kind {
            FaultKind::Link(node, fault) => {
                if let Some(link) = self.machines[node as usize].link {
                    self.strike_link(link, fault);
                }
            }
            FaultKind::Machine(node, fault) => self.strike_machine(node, fault),
            FaultKind::Gateway(gateway, fault) => self.strike_gateway(gateway, fault),
            FaultKind::Partition { gateway, nodes, lasts } => {
                let until = self.calendar.now() + lasts;
                self.cut(gateway, nodes, until);
            }
        }
    }

    fn strike_link(&mut self, id: LinkId, fault: LinkFault) {
        let now = self.calendar.now();
        let Some(link) = self.links.get_mut(&id) else { return };
        self.facts.push((now, Fact::LinkTroubled { node: link.node }));
        match fault {
            LinkFault::Reset => {
                (link.up.dead, link.down.dead) = (true, true);
                let rng = &mut self.machines[link.node as usize].rng;
                self.calendar.enter_after(latency(rng), Event::AgentEnd(id));
                self.calendar.enter_after(latency(rng), Event::GatewayEnd(id));
            }
            LinkFault::Silence => self.silence(id, true, true),
            LinkFault::HalfOpen { up } => self.silence(id, up, !up),
            LinkFault::Stall(lasts) => {
                for lane in [&mut link.up, &mut link.down] {
                    lane.stalled_until = lane.stalled_until.max(now + lasts);
                }
                let rng = &mut self.machines[link.node as usize].rng;
                for (notices, end) in
                    [(notice(rng), Event::AgentEnd(id)), (notice(rng), Event::GatewayEnd(id))]
                {
                    if notices < lasts {
                        self.calendar.enter_after(notices, end);
                    }
                }
            }
            LinkFault::Duplicate(lasts) => {
                for lane in [&mut link.up, &mut link.down] {
                    lane.duplicates_until = now + lasts;
                }
            }
            LinkFault::Reorder(lasts) => {
                for lane in [&mut link.up, &mut link.down] {
                    lane.reorders_until = now + lasts;
                }
            }
        }
    }

    /// Kills lanes; a keep-alive needs both, so both sides notice in their time.
    fn silence(&mut self, id: LinkId, up: bool, down: bool) {
        let Some(link) = self.links.get_mut(&id) else { return };
        self.facts.push((self.calendar.now(), Fact::LinkTroubled { node: link.node }));
        link.up.dead |= up;
        link.down.dead |= down;
        let rng = &mut self.machines[link.node as usize].rng;
        self.calendar.enter_after(notice(rng), Event::AgentEnd(id));
        self.calendar.enter_after(notice(rng), Event::GatewayEnd(id));
    }

    fn cut(&mut self, gateway: u32, nodes: Range<u32>, until: At) {
        let now = self.calendar.now();
        self.partitions.retain(|(_, _, until)| now < *until);
        let across = |node: u32, of: u32| of == gateway && nodes.contains(&node);
        let links: Vec<LinkId> = (self.links.iter())
            .filter(|(_, link)| across(link.node, link.gateway))
            .map(|(id, _)| *id)
            .collect();
        for id in links {
            self.silence(id, true, true);
        }
        self.partitions.push((gateway, nodes, until));
    }

    fn strike_machine(&mut self, node: u32, fault: MachineFault) {
        let machine = &mut self.machines[node as usize];
        if machine.process.is_none() {
            // It is down already.
            return;
        }
        match fault {
            MachineFault::Crash { boundary, down } => machine.crash = Some((boundary, down)),
            MachineFault::Drift(which) => {
                let section = SECTIONS[usize::from(which) % SECTIONS.len()];
                machine.truth.remove(section);
            }
            MachineFault::DiskError(_) => machine.disk.fails_next = true,
            MachineFault::Reboot(down) => self.power_off(node, down),
            MachineFault::JournalLoss(down) => {
                let keep_id = self.plan.bug == Some(Bug::KeepJournalId);
                self.fact(Fact::JournalLost { node });
                self.power_off(node, down);
                self.machines[node as usize].lose_journal(keep_id);
            }
        }
    }

    fn strike_gateway(&mut self, index: u32, fault: GatewayFault) {
        let now = self.calendar.now();
        let gateway = &mut self.gateways[index as usize];
        match fault {
            GatewayFault::Kill(down) if gateway.control.is_some() => gateway.dying = Some(down),
            GatewayFault::Kill(_) => {}
            GatewayFault::Clock(skew_ms) => gateway.skew_ms = skew_ms,
            GatewayFault::WorkerOutage(lasts) => gateway.workers_out_until = now + lasts,
        }
    }
}
