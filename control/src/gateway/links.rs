//! The outgoing ends of the open sessions.

use std::collections::HashMap;

use ironwright_control_core::{Output, SessionRef};
use ironwright_proto::wire::{Drain, GatewayFrame, gateway_frame::Frame};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::Status;

/// Frames that may wait for one agent. One that does not take them is cut: it comes back and is told the newest state.
pub(crate) const OUTBOX_LEN: usize = 256;

/// What a session's stream sends.
pub(crate) type Outgoing = Result<GatewayFrame, Status>;

/// The outgoing end of one session; dropping it ends the stream once the frames that wait are sent.
pub(crate) struct Outbox {
    frames: mpsc::Sender<Outgoing>,
    /// Tells the incoming end.
    _cut: DropGuard,
}

impl Outbox {
    /// An outbox, what the stream sends, and a token that is cancelled when the outbox is dropped.
    pub(crate) fn new() -> (Self, mpsc::Receiver<Outgoing>, CancellationToken) {
        let (frames, sent) = mpsc::channel(OUTBOX_LEN);
        let cut = CancellationToken::new();
        (Self { frames, _cut: cut.clone().drop_guard() }, sent, cut)
    }

    /// Whether there was room for the frame.
    pub(crate) fn send(&self, frame: GatewayFrame) -> bool {
        self.frames.try_send(Ok(frame)).is_ok()
    }
}

/// All open sessions.
#[derive(Default)]
pub(crate) struct Links(HashMap<SessionRef, Outbox>);

impl Links {
    /// Adds a session that was just opened.
    pub(crate) fn add(&mut self, session: SessionRef, outbox: Outbox) {
        self.0.insert(session, outbox);
    }

    /// Forgets a session whose stream has ended.
    pub(crate) fn remove(&mut self, session: &SessionRef) {
        self.0.remove(session);
    }

    /// Sends all frames, then ends what is to be closed.
    pub(crate) fn carry_out(&mut self, output: Output) {
        for (session, frame) in output.frames {
            let Some(outbox) = self.0.get(&session) else { continue };
            if !outbox.send(frame) {
                tracing::warn!(
                    node = session.node,
                    epoch = session.epoch,
                    "cutting a session that is too slow"
                );
                self.0.remove(&session);
            }
        }
        for session in output.close {
            self.0.remove(&session);
        }
    }

    /// Asks every agent to come back later, and ends all sessions.
    pub(crate) fn drain(&mut self, retry_after_ms: u32) {
        for (_, outbox) in self.0.drain() {
            outbox.send(GatewayFrame { frame: Some(Frame::Drain(Drain { retry_after_ms })) });
        }
    }
}

#[cfg(test)]
mod tests {
    use ironwright_proto::wire::Ping;

    use super::*;

    fn session(epoch: u64) -> SessionRef {
        SessionRef { node: "n-1".into(), epoch }
    }

    fn ping(seq: u64) -> GatewayFrame {
        GatewayFrame { frame: Some(Frame::Ping(Ping { seq })) }
    }

    #[test]
    fn frames_are_sent_before_the_close_and_not_to_another_epoch() {
        let mut links = Links::default();
        let (outbox, mut sent, cut) = Outbox::new();
        links.add(session(2), outbox);
        let frames = vec![(session(1), ping(1)), (session(2), ping(2))];
        links.carry_out(Output { frames, close: vec![session(2)], ..Output::default() });
        assert!(cut.is_cancelled());
        assert_eq!(sent.try_recv().unwrap().unwrap(), ping(2));
        assert_eq!(sent.try_recv().unwrap_err(), mpsc::error::TryRecvError::Disconnected);
    }

    #[test]
    fn an_agent_that_takes_no_frames_is_cut() {
        let mut links = Links::default();
        let (outbox, _sent, cut) = Outbox::new();
        links.add(session(1), outbox);
        let flood = |count: usize| Output {
            frames: (0..count as u64).map(|seq| (session(1), ping(seq))).collect(),
            ..Output::default()
        };
        links.carry_out(flood(OUTBOX_LEN));
        assert!(!cut.is_cancelled());
        links.carry_out(flood(1));
        assert!(cut.is_cancelled());
    }

    #[test]
    fn a_drain_tells_each_agent_when_to_come_back() {
        let mut links = Links::default();
        let (outbox, mut sent, _cut) = Outbox::new();
        links.add(session(1), outbox);
        links.drain(2_000);
        let frame = sent.try_recv().unwrap().unwrap().frame;
        assert_eq!(frame, Some(Frame::Drain(Drain { retry_after_ms: 2_000 })));
    }
}
