//! What the gateway calls: sessions, their frames, and time.

use ironwright_proto::{
    api::{NodeState, Progress},
    wire::{self, agent_frame, gateway_frame::Frame},
};
use rand::{CryptoRng, RngCore};
use subtle::ConstantTimeEq;

use super::{Control, MAX_PROGRESS};
use crate::{
    commands::{self, Ingested},
    error::Error,
    gateways, nodes,
    output::{Output, SessionRef},
    runs,
    session::{self, HEARTBEAT_INTERVAL_MS, Opened, Peer},
    specs,
    store::Store,
    tx::{Effects, Tx},
};

/// Longest text of a progress report, in characters.
const MAX_PHASE: usize = 64;

impl<S: Store> Control<S> {
    /// Whether the peer's key is the one that its node has joined with last.
    pub fn peer_is_current(&self, peer: &Peer) -> Result<bool, Error> {
        let record = self.store.read(|txn| nodes::get(txn, &peer.node_id))?;
        Ok(record.is_some_and(|record| record.spki_der.ct_eq(&peer.spki_der).into()))
    }

    /// The first frame of a session.
    pub fn session_open(
        &mut self,
        peer: &Peer,
        hello: &wire::Hello,
        now_ms: i64,
        rng: &mut (impl RngCore + CryptoRng),
    ) -> Result<Opened, Error> {
        let (greeted, effects) = self
            .commit::<_, Error>(now_ms, rng, |tx| session::greet(tx, &self.settings.gateway, peer, hello))?;
        let greeted = match greeted {
            Ok(greeted) => greeted,
            Err(rejected) => return Ok(Opened::Rejected(rejected)),
        };
        let (node, epoch) = (peer.node_id.as_str(), greeted.epoch);
        let mut output = Output::default();
        let to = SessionRef { node: node.to_owned(), epoch };
        let welcome = wire::Welcome {
            session_epoch: epoch,
            server_unix_ms: now_ms,
            heartbeat_interval_ms: HEARTBEAT_INTERVAL_MS,
            lease: greeted.lease,
        };
        output.send(&to, Frame::Welcome(welcome));
        for id in greeted.acks {
            output.send(&to, Frame::CommandAck(wire::CommandAck { id }));
        }
        let older = self.sessions.open(node, epoch, greeted.role, &hello.boot_id, greeted.site, now_ms);
        if let Some(older) = older {
            output.send(&older, fenced());
            output.close.push(older);
        }
        self.memory.version += 1;
        output.append(self.deliver(effects, now_ms, rng)?);
        Ok(Opened::Welcome { epoch, output })
    }

    /// A later frame of a session.
    pub fn session_frame(
        &mut self,
        node: &str,
        epoch: u64,
        frame: &wire::AgentFrame,
        now_ms: i64,
        rng: &mut (impl RngCore + CryptoRng),
    ) -> Result<Output, Error> {
        let to = SessionRef { node: node.to_owned(), epoch };
        let Some(live) = self.sessions.current(node, epoch) else { return Ok(self.fence(&to)) };
        let site = live.site.clone();
        self.sessions.heard(node, now_ms);
        let mut output = self.beat(now_ms, rng)?;
        if self.sessions.current(node, epoch).is_none() {
            return Ok(output);
        }
        match &frame.frame {
            Some(agent_frame::Frame::Command(update)) => {
                output.append(self.command_update(&to, update, now_ms, rng)?);
            }
            Some(agent_frame::Frame::Status(report)) => {
                output.append(self.status_report(&to, report, now_ms, rng)?);
            }
            Some(agent_frame::Frame::SpecRequest(_)) => {
                let effects = Effects { specs: [node.to_owned()].into(), ..Effects::default() };
                output.append(self.deliver(effects, now_ms, rng)?);
            }
            Some(agent_frame::Frame::Event(event)) => output.append(self.event(&to, event, now_ms, rng)?),
            Some(agent_frame::Frame::Progress(progress)) => self.progress(node, progress)?,
            Some(agent_frame::Frame::Heartbeat(_)) => {
                if let Some(site) = site {
                    output.append(self.lease(&to, &site, now_ms, rng)?);
                }
            }
            Some(agent_frame::Frame::Hello(_)) => {
                let message = "a session has one Hello".to_owned();
                let code = "bad_hello".to_owned();
                output.send(&to, Frame::Rejected(wire::Rejected { code, message }));
                output.close.push(to);
                self.session_closed(node, epoch);
            }
            // A pong has done its work by coming; frames of a newer agent are passed over.
            Some(agent_frame::Frame::Pong(_)) | None => {}
        }
        Ok(output)
    }

    fn lease(
        &mut self,
        to: &SessionRef,
        site: &str,
        now_ms: i64,
        rng: &mut (impl RngCore + CryptoRng),
    ) -> Result<Output, Error> {
        let (lease, effects) = self.commit::<_, Error>(now_ms, rng, |tx| {
            if !nodes::is_current(tx.txn, &to.node, to.epoch)? {
                return Ok(None);
            }
            session::renew_lease(tx, site, &to.node).map(Some)
        })?;
        let Some(lease) = lease else { return Ok(self.fence(to)) };
        let mut output = Output::default();
        output.send(to, Frame::Lease(lease));
        output.append(self.deliver(effects, now_ms, rng)?);
        Ok(output)
    }

    /// Ends a session that a newer one of its node has replaced.
    fn fence(&mut self, to: &SessionRef) -> Output {
        self.session_closed(&to.node, to.epoch);
        let mut output = Output::default();
        output.send(to, fenced());
        output.close.push(to.clone());
        output
    }

    /// Ends the session of a node that was removed.
    pub(super) fn revoke(&mut self, node: &str) -> Output {
        let mut output = Output::default();
        if let Some(epoch) = self.sessions.of(node).map(|live| live.epoch) {
            let to = SessionRef { node: node.to_owned(), epoch };
            self.session_closed(node, epoch);
            let message = "the machine of this node was removed".to_owned();
            output.send(&to, Frame::Rejected(wire::Rejected { code: "revoked".to_owned(), message }));
            output.close.push(to);
        }
        output
    }

    fn command_update(
        &mut self,
        to: &SessionRef,
        update: &wire::CommandUpdate,
        now_ms: i64,
        rng: &mut (impl RngCore + CryptoRng),
    ) -> Result<Output, Error> {
        let (ingested, effects) = self.commit::<_, Error>(now_ms, rng, |tx| {
            if !nodes::is_current(tx.txn, &to.node, to.epoch)? {
                return Ok(None);
            }
            let ingested = commands::ingest(tx, &to.node, update)?;
            if let Ingested::Moved { run } | Ingested::Ended { run } = &ingested {
                runs::step(tx, run)?;
            }
            Ok(Some(ingested))
        })?;
        let Some(ingested) = ingested else { return Ok(self.fence(to)) };
        let mut output = Output::default();
        if commands::is_final_on_wire(update) {
            output.send(to, Frame::CommandAck(wire::CommandAck { id: update.id.clone() }));
        }
        if ingested == Ingested::Unwanted {
            output.send(to, Frame::Cancel(wire::Cancel { id: update.id.clone() }));
        }
        output.append(self.deliver(effects, now_ms, rng)?);
        Ok(output)
    }

    fn status_report(
        &mut self,
        to: &SessionRef,
        report: &wire::StatusReport,
        now_ms: i64,
        rng: &mut (impl RngCore + CryptoRng),
    ) -> Result<Output, Error> {
        let (current, effects) = self.commit::<_, Error>(now_ms, rng, |tx| {
            let current = nodes::is_current(tx.txn, &to.node, to.epoch)?;
            if current {
                specs::report(tx, &to.node, report)?;
            }
            Ok(current)
        })?;
        if current { self.deliver(effects, now_ms, rng) } else { Ok(self.fence(to)) }
    }

    fn event(
        &mut self,
        to: &SessionRef,
        event: &wire::Event,
        now_ms: i64,
        rng: &mut (impl RngCore + CryptoRng),
    ) -> Result<Output, Error> {
        let mut output = Output::default();
        output.send(to, Frame::EventAck(wire::EventAck { through_seq: event.seq }));
        if self.limits.events_by_node.admit(&to.node, now_ms) {
            let (current, effects) = self.commit::<_, Error>(now_ms, rng, |tx| {
                let current = nodes::is_current(tx.txn, &to.node, to.epoch)?;
                if current {
                    session::take_event(tx, &to.node, event)?;
                }
                Ok(current)
            })?;
            if !current {
                return Ok(self.fence(to));
            }
            output.append(self.deliver(effects, now_ms, rng)?);
        }
        Ok(output)
    }

    fn progress(&mut self, node: &str, progress: &wire::Progress) -> Result<(), Error> {
        let id = &progress.command_id;
        let command = self.store.read(|txn| commands::get(txn, id))?;
        let open = command.is_some_and(|command| command.node == node && !command.state.is_final());
        if open && (self.memory.progress.len() < MAX_PROGRESS || self.memory.progress.contains_key(id)) {
            let phase = progress.phase.chars().take(MAX_PHASE).collect();
            let newest = Progress { phase, done: progress.done, total: progress.total };
            self.memory.progress.insert(id.clone(), newest);
            self.memory.version += 1;
        }
        Ok(())
    }

    /// The stream of a session ended. Changes nothing but whether the node is connected.
    pub fn session_closed(&mut self, node: &str, epoch: u64) {
        self.sessions.closed(node, epoch);
        self.memory.version += 1;
    }

    /// Time has passed; to be called about once a second.
    pub fn tick(&mut self, now_ms: i64, rng: &mut (impl RngCore + CryptoRng)) -> Result<Output, Error> {
        let mut output = self.silence(now_ms, rng)?;
        output.append(self.beat(now_ms, rng)?);
        output.append(self.elsewhere(now_ms, rng)?);
        for run in self.store.read(|txn| runs::due(txn, now_ms))? {
            let ((), effects) = self.commit::<_, Error>(now_ms, rng, |tx| runs::step(tx, &run))?;
            output.append(self.deliver(effects, now_ms, rng)?);
        }
        if self.store.read(|txn| commands::sweep_is_due(txn, now_ms))? {
            let ((), effects) = self.commit(now_ms, rng, sweep)?;
            output.append(self.deliver(effects, now_ms, rng)?);
        }
        Ok(output)
    }

    /// Sends what other gateways have left for nodes that are here.
    fn elsewhere(&mut self, now_ms: i64, rng: &mut (impl RngCore + CryptoRng)) -> Result<Output, Error> {
        let version = self.store.version();
        if std::mem::replace(&mut self.memory.looked_at, version) == version {
            return Ok(Output::default());
        }
        let here = |node: &str| self.sessions.of(node).is_some();
        let mut effects = self.store.read(|txn| commands::waiting(txn, here))?;
        effects.specs = self.store.read(specs::due)?.into_iter().collect();
        self.deliver(effects, now_ms, rng)
    }

    /// Tells the other gateways that this one is alive, and adopts the nodes of those that are not.
    fn beat(&mut self, now_ms: i64, rng: &mut (impl RngCore + CryptoRng)) -> Result<Output, Error> {
        let mut output = Output::default();
        if !self.pulse.is_due(now_ms) {
            return Ok(output);
        }
        let me = self.settings.gateway.clone();
        let (beaten, _) = self.commit(now_ms, rng, |tx| self.pulse.beat(tx, &me))?;
        if beaten.taken_for_dead {
            // Others watch its nodes now, and would hear nothing of them.
            output.close = self.sessions.end_all();
        }
        let lived_ms = self.sessions.lived_ms(now_ms);
        for gone in self.pulse.beaten(beaten, now_ms, lived_ms) {
            loop {
                let (adopted, _) = self.commit(now_ms, rng, |tx| gateways::adopt(tx, &gone, &me))?;
                if adopted.is_empty() {
                    break;
                }
                for (node, epoch) in adopted {
                    self.sessions.watch(&node, epoch, now_ms);
                }
            }
        }
        Ok(output)
    }

    /// Pings and closes silent sessions, and marks silent nodes.
    fn silence(&mut self, now_ms: i64, rng: &mut (impl RngCore + CryptoRng)) -> Result<Output, Error> {
        let mut output = Output::default();
        let silence = self.sessions.silence(now_ms);
        for to in &silence.ping {
            output.send(to, Frame::Ping(wire::Ping { seq: u64::try_from(now_ms).unwrap_or(0) }));
        }
        output.close.extend(silence.close);
        for (node, epoch) in silence.unreachable {
            let ((), effects) = self.commit::<_, Error>(now_ms, rng, |tx| {
                let record = nodes::get(tx.txn, &node)?;
                // Another gateway may have heard of it since.
                let held = record.filter(|record| record.is_held_by(&self.settings.gateway, epoch));
                let Some(mut record) = held else { return Ok(()) };
                nodes::set_state(tx, &mut record, NodeState::Unreachable)?;
                nodes::put(tx, &record)
            })?;
            output.append(self.deliver(effects, now_ms, rng)?);
        }
        Ok(output)
    }
}

fn sweep(tx: &mut Tx<'_>) -> Result<(), Error> {
    for run in commands::sweep(tx)? {
        runs::step(tx, &run)?;
    }
    Ok(())
}

fn fenced() -> Frame {
    let message = "a newer session of this node has taken over".to_owned();
    Frame::Rejected(wire::Rejected { code: "old_epoch".to_owned(), message })
}
