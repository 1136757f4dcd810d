//! Simulated agents: keys, journals and sessions, without networks.

use std::collections::{BTreeMap, VecDeque};

use ironwright_control_core::session::Peer;
use ironwright_proto::{
    Message,
    envelope::{self, pre_auth_encoding},
    wire::{
        AgentFrame, Command, CommandError, CommandState, CommandUpdate, Envelope, Event, Hello,
        SiteAssertion, agent_frame::Frame,
    },
};
use p256::{
    ecdsa::{Signature, SigningKey, signature::Signer},
    pkcs8::{EncodePrivateKey, EncodePublicKey},
};

/// A node key.
#[derive(Clone)]
pub(crate) struct Key(SigningKey);

impl Key {
    pub(crate) fn new(rng: &mut (impl rand::RngCore + rand::CryptoRng)) -> Self {
        Self(SigningKey::random(rng))
    }

    pub(crate) fn spki_der(&self) -> Vec<u8> {
        self.0.verifying_key().to_public_key_der().unwrap().into_vec()
    }

    pub(crate) fn csr_der(&self) -> Vec<u8> {
        let pkcs8 = self.0.to_pkcs8_der().unwrap().as_bytes().to_vec();
        let der = rustls_pki_types::PrivatePkcs8KeyDer::from(pkcs8);
        let pair =
            rcgen::KeyPair::from_pkcs8_der_and_sign_algo(&der, &rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let params = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
        params.serialize_request(&pair).unwrap().der().to_vec()
    }

    pub(crate) fn assertion(&self, node: &str, said: &SiteAssertion) -> Envelope {
        let payload = said.encode_to_vec();
        let signature: Signature = self.0.sign(&pre_auth_encoding(envelope::SITE_ASSERTION, &payload));
        Envelope {
            payload_type: envelope::SITE_ASSERTION.into(),
            payload,
            key_id: node.into(),
            signature: signature.to_der().as_bytes().to_vec(),
            chain: vec![],
        }
    }
}

/// An agent with a journal: results wait until they are acknowledged, and a command acts once.
#[derive(Clone)]
pub(crate) struct Agent {
    pub(crate) peer: Peer,
    pub(crate) key: Key,
    pub(crate) role: &'static str,
    pub(crate) site: String,
    pub(crate) boot_id: String,
    pub(crate) journal_id: String,
    /// Epoch of the open session.
    pub(crate) session: Option<u64>,
    pub(crate) lease_epoch: u64,
    /// Newest update of every command that was ever taken.
    pub(crate) journal: BTreeMap<String, CommandUpdate>,
    unacknowledged: BTreeMap<String, CommandUpdate>,
    events: VecDeque<Event>,
    event_seq: u64,
    pub(crate) outbox: VecDeque<AgentFrame>,
}

impl Agent {
    pub(crate) fn new(node_id: String, key: Key, role: &'static str, boot: u64) -> Self {
        Self {
            peer: Peer { node_id, spki_der: key.spki_der() },
            key,
            role,
            site: String::new(),
            boot_id: format!("boot-{boot}"),
            journal_id: format!("journal-{boot}"),
            session: None,
            lease_epoch: 0,
            journal: BTreeMap::new(),
            unacknowledged: BTreeMap::new(),
            events: VecDeque::new(),
            event_seq: 0,
            outbox: VecDeque::new(),
        }
    }

    pub(crate) fn hello(&self) -> Hello {
        Hello {
            version: 1,
            role: self.role.into(),
            boot_id: self.boot_id.clone(),
            journal_id: self.journal_id.clone(),
            agent_version: "0.1.0".into(),
            commands: self.unacknowledged.values().cloned().collect(),
            site: self.site.clone(),
            address: if self.site.is_empty() { String::new() } else { "http://10.0.0.2:8080".into() },
            observed_generation: 0,
        }
    }

    pub(crate) fn opened(&mut self, epoch: u64) {
        self.session = Some(epoch);
        self.outbox.clear();
        for event in &self.events {
            self.outbox.push_back(AgentFrame { frame: Some(Frame::Event(event.clone())) });
        }
    }

    pub(crate) fn disconnected(&mut self) {
        self.session = None;
        self.outbox.clear();
    }

    fn send(&mut self, frame: Frame) {
        if self.session.is_some() {
            self.outbox.push_back(AgentFrame { frame: Some(frame) });
        }
    }

    /// Takes an offer; whether it is to be carried out now.
    pub(crate) fn accept(&mut self, command: &Command) -> bool {
        if let Some(known) = self.journal.get(&command.id).cloned() {
            self.send(Frame::Command(known));
            return false;
        }
        self.update(&command.id, CommandState::Accepted, |_| ());
        self.update(&command.id, CommandState::Running, |_| ());
        true
    }

    fn update(&mut self, id: &str, state: CommandState, fill: impl FnOnce(&mut CommandUpdate)) {
        let mut update = CommandUpdate { id: id.into(), state: state.into(), ..CommandUpdate::default() };
        fill(&mut update);
        self.journal.insert(id.into(), update.clone());
        self.unacknowledged.insert(id.into(), update.clone());
        self.send(Frame::Command(update));
    }

    pub(crate) fn succeed(&mut self, id: &str, result: Vec<u8>) {
        self.update(id, CommandState::Succeeded, |update| update.result = result);
    }

    pub(crate) fn fail(&mut self, id: &str, code: &str) {
        let error = CommandError { code: code.into(), message: format!("simulated {code}") };
        self.update(id, CommandState::Failed, |update| update.error = Some(error));
    }

    pub(crate) fn acknowledged(&mut self, id: &str) {
        self.unacknowledged.remove(id);
    }

    pub(crate) fn raise(&mut self, kind: &str, json: &str) {
        self.event_seq += 1;
        let event = Event { seq: self.event_seq, kind: kind.into(), unix_ms: 0, json: json.into() };
        self.events.push_back(event.clone());
        self.send(Frame::Event(event));
    }

    pub(crate) fn events_acknowledged(&mut self, through_seq: u64) {
        self.events.retain(|event| event.seq > through_seq);
    }
}
