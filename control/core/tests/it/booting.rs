//! How the simulated machine starts: firmware asks the site, then a ramdisk or an operating system joins.

use ironwright_control_core::join::JoinError;
use ironwright_proto::wire;

use crate::{
    agents::{Agent, Key},
    world::{Entry, MAC, Machine, Starting, World},
};

impl World {
    /// Firmware and the start of the ramdisk or the operating system, as far as it gets in one round.
    pub(crate) fn power_on(&mut self) {
        match std::mem::replace(&mut self.machine, Machine::Off) {
            Machine::Booting => self.machine = self.firmware(),
            Machine::Starting(starting) => {
                let claim = wire::JoinClaim {
                    machine_id: "web-1".into(),
                    role: starting.role.into(),
                    join_token: starting.token.clone().unwrap_or_default(),
                    mac: MAC.into(),
                    site_assertion: starting.assertion.clone(),
                    ..wire::JoinClaim::default()
                };
                self.machine = match self.token_join(&starting.key, &claim) {
                    Ok(grant) => {
                        let Starting { key, role, .. } = *starting;
                        let agent = Agent::new(grant.node_id, key, role, self.boots);
                        Machine::Joined(Box::new(agent))
                    }
                    Err(JoinError::Internal(_)) => Machine::Starting(starting),
                    Err(JoinError::Refused(refusal)) => {
                        self.refusals.push(refusal.code.as_str().to_owned());
                        Machine::Booting
                    }
                };
            }
            other => self.machine = other,
        }
    }

    fn firmware(&mut self) -> Machine {
        let Some(site) = &mut self.site else { return Machine::Booting };
        let key = Key::new(&mut self.rng);
        match &mut self.entry {
            Some(Entry::Ramdisk { token }) if site.lease_epoch > 0 => {
                let token = token.take();
                site.raise("boot.fetched", &format!("{{\"mac\":\"{MAC}\"}}"));
                let said = wire::SiteAssertion {
                    site: "lab".into(),
                    lease_epoch: site.lease_epoch,
                    machine_id: "web-1".into(),
                    mac: MAC.into(),
                    issued_unix_ms: self.now_ms,
                    expires_unix_ms: self.now_ms + 3_600_000,
                };
                let assertion = Some(site.key.assertion(&site.peer.node_id, &said));
                self.boots += 1;
                Machine::Starting(Box::new(Starting { role: "ramdisk", key, token, assertion }))
            }
            Some(Entry::Local) if self.imaged => {
                self.boots += 1;
                let token = self.os_token.clone();
                Machine::Starting(Box::new(Starting { role: "node", key, token, assertion: None }))
            }
            _ => Machine::Booting,
        }
    }
}
