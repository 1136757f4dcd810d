//! One site, one machine without a TPM, and control, on simulated time.
//!
//! The agents keep their promises (journal, at most once, reconnect); everything else may go wrong.

use std::collections::{BTreeMap, BTreeSet};

use ironwright_control_core::{
    Control, Output, Settings,
    images::ImageFacts,
    join::{Grant, JoinError},
    session::Opened,
};
use ironwright_proto::{
    api::{NewDeploy, NewImage, NewMachine, NewSite, Run, RunState},
    ids::Digest,
    wire,
};
use rand::{SeedableRng, rngs::StdRng};

use crate::{
    agents::{Agent, Key},
    crash::CrashStore,
};

pub(crate) const MAC: &str = "52:54:00:12:34:56";
pub(crate) const START_MS: i64 = 1_764_547_200_000;
/// How far time moves in one round.
pub(crate) const ROUND_MS: i64 = 500;

/// What the site serves to the machine.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Entry {
    Local,
    Ramdisk { token: Option<String> },
}

/// What the machine is doing.
pub(crate) enum Machine {
    Off,
    /// Firmware asks the site.
    Booting,
    /// Started; not joined yet.
    Starting(Box<Starting>),
    Joined(Box<Agent>),
}

/// A ramdisk or an operating system that is about to join.
pub(crate) struct Starting {
    pub(crate) role: &'static str,
    pub(crate) key: Key,
    pub(crate) token: Option<String>,
    pub(crate) assertion: Option<wire::Envelope>,
}

pub(crate) struct World {
    pub(crate) store: CrashStore,
    control: Option<Control<CrashStore>>,
    pub(crate) crashes: u32,
    pub(crate) rng: StdRng,
    pub(crate) now_ms: i64,
    pub(crate) site: Option<Agent>,
    pub(crate) entry: Option<Entry>,
    pub(crate) machine: Machine,
    pub(crate) boots: u64,
    /// The token that the image's seed gave to the operating system.
    pub(crate) os_token: Option<String>,
    pub(crate) imaged: bool,
    pub(crate) imaging: BTreeMap<String, u32>,
    /// Every command that was carried out, in order: kind and id.
    pub(crate) carried_out: Vec<(String, String)>,
    /// Every command id that control ever sent, by kind.
    pub(crate) sent: BTreeMap<String, BTreeSet<String>>,
    /// Codes with which the next commands of a kind fail.
    pub(crate) failing: BTreeMap<String, Vec<String>>,
    /// Kinds that agents accept and never end.
    pub(crate) stuck: BTreeSet<String>,
    pub(crate) refusals: Vec<String>,
    pub(crate) inbox: Vec<Output>,
}

pub(crate) fn settings(gateway: &str) -> Settings {
    Settings {
        gateway: gateway.into(),
        control_url: "https://10.0.0.1:8443".into(),
        ca_pin: Digest([9; 32]),
        ek_roots_pem: String::new(),
    }
}

pub(crate) fn image_facts() -> ImageFacts {
    ImageFacts {
        digest: Digest([1; 32]),
        size_bytes: 1 << 20,
        raw_size_bytes: 4 << 30,
        format: "zstd".into(),
    }
}

impl World {
    /// Control with an enrolled machine and a ready image, a joined site, and the machine switched off.
    pub(crate) fn new() -> Self {
        let mut world = Self {
            control: None,
            store: CrashStore::default(),
            crashes: 0,
            rng: StdRng::seed_from_u64(7),
            now_ms: START_MS,
            site: None,
            entry: None,
            machine: Machine::Off,
            boots: 0,
            os_token: None,
            imaged: false,
            imaging: BTreeMap::new(),
            carried_out: Vec::new(),
            sent: BTreeMap::new(),
            failing: BTreeMap::new(),
            stuck: BTreeSet::new(),
            refusals: Vec::new(),
            inbox: Vec::new(),
        };
        let machine = NewMachine {
            id: "web-1".parse().unwrap(),
            mac: MAC.parse().unwrap(),
            product_uuid: None,
            site: None,
            allow_no_tpm: true,
        };
        let (now, name) = (world.now_ms, "debian-12".parse().unwrap());
        let image = NewImage { name, url: "https://x.example/d.zst".into(), digest: None };
        let site = world.join_site();
        world.site = Some(site);
        let control = world.control();
        control.create_machine("admin", &machine, now).unwrap();
        control.register_image("admin", &image, now).unwrap();
        control.image_fetched(&image.name, &image_facts(), now).unwrap();
        world
    }

    /// The same; control dies after the commits with these numbers, counted from now on.
    pub(crate) fn crashing(crash_after: impl IntoIterator<Item = u64>) -> Self {
        let world = Self::new();
        world.store.arm(crash_after);
        world
    }

    /// A new agent of the site, with the token of a new `sites add`.
    pub(crate) fn join_site(&mut self) -> Agent {
        let (now, new) = (self.now_ms, NewSite { name: "lab".parse().unwrap() });
        let created = self.call(|control, rng| control.create_site("admin", &new, now, rng)).unwrap();
        let key = Key::new(&mut self.rng);
        let claim = wire::JoinClaim {
            role: "site".into(),
            join_token: created.join_token,
            ..wire::JoinClaim::default()
        };
        let grant = self.token_join(&key, &claim).unwrap();
        let mut agent = Agent::new(grant.node_id, key, "site", 1000 + self.boots);
        agent.site = "lab".into();
        agent
    }

    /// The running control; started where it is not.
    pub(crate) fn control(&mut self) -> &mut Control<CrashStore> {
        let (store, now_ms) = (self.store.clone(), self.now_ms);
        self.control.get_or_insert_with(|| Control::new(store, settings("control"), now_ms).unwrap())
    }

    /// One call, in which control may die.
    pub(crate) fn call<R, E>(
        &mut self,
        f: impl FnOnce(&mut Control<CrashStore>, &mut StdRng) -> Result<R, E>,
    ) -> Result<R, E> {
        let commits = self.store.commits();
        let mut rng = self.rng.clone();
        let result = f(self.control(), &mut rng);
        self.rng = rng;
        if result.is_err() && self.store.commits() > commits {
            self.crash();
        }
        result
    }

    /// Control loses everything but its store; every session breaks.
    pub(crate) fn crash(&mut self) {
        self.control = None;
        self.crashes += 1;
        self.inbox.clear();
        if let Some(site) = &mut self.site {
            site.disconnected();
        }
        if let Machine::Joined(agent) = &mut self.machine {
            agent.disconnected();
        }
    }

    /// Starts a run, also where control dies in the middle of it.
    pub(crate) fn deploy(&mut self) -> String {
        let new = NewDeploy {
            machine: "web-1".parse().unwrap(),
            image: "debian-12".parse().unwrap(),
            user_data: Some("#cloud-config\nruncmd: [[true]]\n".into()),
            disk: ironwright_proto::api::DiskHint::default(),
            extra_cmdline: "console=ttyS0".into(),
            replace: false,
        };
        let now = self.now_ms;
        let started = self.call(|control, rng| control.start_deploy("alice", &new, now, rng));
        if let Ok((run, output)) = started {
            self.inbox.push(output);
            return run.id;
        }
        let run = self.control().runs().unwrap().pop();
        run.expect("a commit was made before the crash").id
    }

    pub(crate) fn cancel(&mut self, run: &str) {
        let now = self.now_ms;
        if let Ok((_, output)) = self.call(|control, rng| control.cancel_run("bob", run, now, rng)) {
            self.inbox.push(output);
        }
    }

    pub(crate) fn run(&mut self, id: &str) -> Run {
        self.control().run(id).unwrap()
    }

    /// Name of the step at hand.
    pub(crate) fn step_of(&mut self, id: &str) -> Option<String> {
        let run = self.run(id);
        run.steps.into_iter().find(|step| !step.state.is_final()).map(|step| step.name)
    }

    /// Lets rounds pass until the run has ended; panics after `minutes` of simulated time.
    pub(crate) fn until_ended(&mut self, id: &str, minutes: i64) -> Run {
        self.until(minutes, |world| world.run(id).state.is_final());
        self.run(id)
    }

    pub(crate) fn until(&mut self, minutes: i64, mut done: impl FnMut(&mut Self) -> bool) {
        let end = self.now_ms + minutes * 60_000;
        while !done(self) {
            assert!(
                self.now_ms < end,
                "{minutes} minutes have passed: {:#?}",
                self.control().runs().unwrap()
            );
            self.round();
        }
    }

    /// One round: time, agents, machine.
    pub(crate) fn round(&mut self) {
        self.now_ms += ROUND_MS;
        let now = self.now_ms;
        if let Ok(output) = self.call(|control, rng| control.tick(now, rng)) {
            self.inbox.push(output);
        }
        if let Some(mut site) = self.site.take() {
            self.talk(&mut site);
            self.site = Some(site);
        }
        self.power_on();
        match std::mem::replace(&mut self.machine, Machine::Off) {
            Machine::Joined(mut agent) => {
                self.talk(&mut agent);
                self.machine = Machine::Joined(agent);
                self.work();
            }
            other => self.machine = other,
        }
        self.deliver();
    }

    /// Opens the session of an agent where it has none, and sends what waits.
    fn talk(&mut self, agent: &mut Agent) {
        let now = self.now_ms;
        if agent.session.is_none() {
            let (peer, hello) = (agent.peer.clone(), agent.hello());
            match self.call(|control, rng| control.session_open(&peer, &hello, now, rng)) {
                Ok(Opened::Welcome { epoch, output }) => {
                    agent.opened(epoch);
                    self.inbox.push(output);
                }
                Ok(Opened::Rejected(rejected)) => panic!("{rejected:?}"),
                Err(_) => return,
            }
        }
        let heartbeat = wire::agent_frame::Frame::Heartbeat(wire::Heartbeat { seq: 1 });
        if now % 10_000 < ROUND_MS {
            agent.outbox.push_back(wire::AgentFrame { frame: Some(heartbeat) });
        }
        while let (Some(epoch), Some(frame)) = (agent.session, agent.outbox.pop_front()) {
            let node = agent.peer.node_id.clone();
            match self.call(|control, rng| control.session_frame(&node, epoch, &frame, now, rng)) {
                Ok(output) => self.inbox.push(output),
                Err(_) => agent.disconnected(),
            }
        }
    }

    /// The power is cut and comes back: memory, and with it the ramdisk's journal, is gone.
    pub(crate) fn power_cycle(&mut self) {
        if let Machine::Joined(agent) = &self.machine
            && let (node, Some(epoch)) = (agent.peer.node_id.clone(), agent.session)
        {
            self.control().session_closed(&node, epoch);
        }
        self.imaging.clear();
        self.machine = Machine::Booting;
    }

    /// The connection of an agent breaks; the agent goes on.
    pub(crate) fn break_sessions(&mut self) {
        let mut broken = Vec::new();
        if let Some(site) = &mut self.site {
            broken.extend(site.session.map(|epoch| (site.peer.node_id.clone(), epoch)));
            site.disconnected();
        }
        if let Machine::Joined(agent) = &mut self.machine {
            broken.extend(agent.session.map(|epoch| (agent.peer.node_id.clone(), epoch)));
            agent.disconnected();
        }
        self.inbox.clear();
        for (node, epoch) in broken {
            self.control().session_closed(&node, epoch);
        }
    }

    pub(crate) fn token_join(&mut self, key: &Key, claim: &wire::JoinClaim) -> Result<Grant, JoinError> {
        let join = wire::TokenJoin { version: 1, csr_der: key.csr_der(), claim: Some(claim.clone()) };
        let now = self.now_ms;
        self.call(|control, rng| control.join_with_token("10.0.0.50", &join, now, rng))
    }

    /// Ids that were sent for a kind.
    pub(crate) fn sent_of(&self, kind: &str) -> usize {
        self.sent.get(kind).map_or(0, BTreeSet::len)
    }

    /// What has to hold at the end of a run that succeeded, whatever happened on the way.
    pub(crate) fn assert_succeeded(&mut self, id: &str) {
        let run = self.run(id);
        assert_eq!(run.state, RunState::Succeeded, "{run:#?}");
        assert!(run.steps.iter().all(|step| step.state == RunState::Succeeded), "{run:#?}");
        assert_eq!(self.entry, Some(Entry::Local));
        let node = self.control().nodes().unwrap().into_iter().find(|node| node.machine.is_some()).unwrap();
        assert_eq!((node.role.as_str(), node.session_epoch > 1), ("node", true));
        ironwright_control_core::audit::verify(self.store.data()).unwrap();
    }
}
