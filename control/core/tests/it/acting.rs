//! What the simulated agents do with the frames that control sends.

use ironwright_proto::{
    Message,
    ids::Digest,
    kinds,
    wire::{self, gateway_frame::Frame},
};

use crate::{
    agents::Agent,
    world::{Entry, MAC, Machine, World, image_facts},
};

/// Rounds that writing the image takes.
const IMAGING_ROUNDS: u32 = 4;

/// Of the only disk.
const DISK_SERIAL: &str = "S-1";

impl World {
    /// Carries frames to the agents, which act on them.
    pub(crate) fn deliver(&mut self) {
        for output in std::mem::take(&mut self.inbox) {
            for (to, frame) in output.frames {
                let Some(frame) = frame.frame else { continue };
                if let Frame::Command(command) = &frame {
                    self.sent.entry(command.kind.clone()).or_default().insert(command.id.clone());
                }
                if let Some(mut site) = self.site.take() {
                    if site.peer.node_id == to.node && site.session == Some(to.epoch) {
                        self.site_takes(&mut site, &frame);
                    }
                    self.site = Some(site);
                }
                let machine = std::mem::replace(&mut self.machine, Machine::Off);
                self.machine = match machine {
                    Machine::Joined(agent)
                        if agent.peer.node_id == to.node && agent.session == Some(to.epoch) =>
                    {
                        self.machine_takes(agent, &frame)
                    }
                    other => other,
                };
            }
        }
    }

    fn housekeeping(agent: &mut Agent, frame: &Frame) {
        match frame {
            Frame::CommandAck(ack) => agent.acknowledged(&ack.id),
            Frame::EventAck(ack) => agent.events_acknowledged(ack.through_seq),
            Frame::Lease(lease) => agent.lease_epoch = lease.epoch,
            Frame::Welcome(welcome) => {
                agent.lease_epoch = welcome.lease.as_ref().map_or(0, |lease| lease.epoch);
            }
            _ => {}
        }
    }

    /// Whether a command is to be carried out; notes it, and fails it where the test wants that.
    fn begins(&mut self, agent: &mut Agent, command: &wire::Command) -> bool {
        if !agent.accept(command) {
            return false;
        }
        self.carried_out.push((command.kind.clone(), command.id.clone()));
        let failing = self.failing.get_mut(&command.kind).filter(|codes| !codes.is_empty());
        if let Some(code) = failing.map(|codes| codes.remove(0)) {
            agent.fail(&command.id, &code);
            return false;
        }
        !self.stuck.contains(&command.kind)
    }

    fn site_takes(&mut self, site: &mut Agent, frame: &Frame) {
        Self::housekeeping(site, frame);
        let command = match frame {
            Frame::Command(command) => command,
            Frame::Cancel(cancel) if !is_final(site, &cancel.id) => {
                return site.fail(&cancel.id, "cancelled");
            }
            _ => return,
        };
        if !self.begins(site, command) {
            return;
        }
        let result = match command.kind.as_str() {
            kinds::BOOT_PREPARE => {
                let args = wire::BootPrepareArgs::decode(command.args.as_slice()).unwrap();
                assert_eq!((args.mac.as_str(), args.machine_id.as_str()), (MAC, "web-1"));
                self.entry = Some(Entry::Ramdisk { token: Some(args.join_token) });
                wire::BootPrepareResult {
                    base_url: "http://10.0.0.2:8080".into(),
                    kernel: Digest([2; 32]).to_string(),
                    ramdisk: Digest([3; 32]).to_string(),
                    agent_bundle: Digest([4; 32]).to_string(),
                }
                .encode_to_vec()
            }
            kinds::BOOT_LOCAL => {
                self.entry = Some(Entry::Local);
                Vec::new()
            }
            other => panic!("a site got {other}"),
        };
        site.succeed(&command.id, result);
    }

    fn machine_takes(&mut self, mut agent: Box<Agent>, frame: &Frame) -> Machine {
        Self::housekeeping(&mut agent, frame);
        let command = match frame {
            Frame::Command(command) => command,
            Frame::Cancel(cancel) => {
                self.imaging.remove(&cancel.id);
                if !is_final(&agent, &cancel.id) {
                    agent.fail(&cancel.id, "cancelled");
                }
                return Machine::Joined(agent);
            }
            _ => return Machine::Joined(agent),
        };
        assert_eq!(agent.role, "ramdisk", "{} for an operating system", command.kind);
        if !self.begins(&mut agent, command) {
            return Machine::Joined(agent);
        }
        let result = match command.kind.as_str() {
            kinds::INVENTORY_COLLECT => {
                let disk = wire::Disk { name: "vda".into(), size_bytes: 8 << 30, ..wire::Disk::default() };
                wire::Inventory { disks: vec![disk], cpus: 2, ..wire::Inventory::default() }.encode_to_vec()
            }
            kinds::DISK_ERASE => {
                self.imaged = false;
                wire::DiskEraseResult {
                    path: "/dev/vda".into(),
                    size_bytes: 8 << 30,
                    method: "discard".into(),
                    serial: DISK_SERIAL.into(),
                    wwid: String::new(),
                }
                .encode_to_vec()
            }
            kinds::IMAGE_DEPLOY => {
                let args = wire::ImageDeployArgs::decode(command.args.as_slice()).unwrap();
                // Whatever disks there are by now: the image goes to the one that was erased.
                let erased = wire::DiskHint { serial: DISK_SERIAL.into(), ..wire::DiskHint::default() };
                assert_eq!(args.hint, Some(erased));
                self.os_token = token_in_seed(&args);
                self.imaging.insert(command.id.clone(), IMAGING_ROUNDS);
                return Machine::Joined(agent);
            }
            kinds::BOOT_FINISH => Vec::new(),
            // The machine goes down with its journal.
            kinds::NODE_REBOOT => return Machine::Booting,
            other => panic!("a ramdisk got {other}"),
        };
        agent.succeed(&command.id, result);
        Machine::Joined(agent)
    }

    /// One round of imaging.
    pub(crate) fn work(&mut self) {
        let Machine::Joined(agent) = &mut self.machine else { return };
        let Some((id, left)) = self.imaging.iter_mut().next() else { return };
        *left -= 1;
        if *left > 0 {
            return;
        }
        let id = id.clone();
        self.imaging.remove(&id);
        self.imaged = true;
        let result = wire::ImageDeployResult {
            path: "/dev/vda".into(),
            format: "zstd".into(),
            digest: image_facts().digest.to_string(),
            bytes_read: 1 << 20,
            bytes_written: 2 << 30,
            duration_ms: 4_000,
        };
        agent.succeed(&id, result.encode_to_vec());
    }
}

fn is_final(agent: &Agent, id: &str) -> bool {
    let state = agent.journal.get(id).map(wire::CommandUpdate::state);
    !matches!(state, Some(wire::CommandState::Accepted | wire::CommandState::Running))
}

fn token_in_seed(args: &wire::ImageDeployArgs) -> Option<String> {
    let file = args.seed.iter().find(|file| file.name == "agent.toml")?;
    let text = std::str::from_utf8(&file.content).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("join_token = \""))?;
    Some(line.trim_end_matches('"').to_owned())
}
