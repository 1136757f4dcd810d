//! What control's shell has to do after a call: send frames, close sessions.

use ironwright_proto::wire::{GatewayFrame, gateway_frame::Frame};

/// One session of one node. Frames for a session that is not open any more are dropped.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionRef {
    /// The node.
    pub node: String,
    /// The session's epoch.
    pub epoch: u64,
}

/// Effects of a call, to be carried out in this order: all frames, then all closes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Output {
    /// Frames, in order.
    pub frames: Vec<(SessionRef, GatewayFrame)>,
    /// Sessions to close once the frames before are sent.
    pub close: Vec<SessionRef>,
}

impl Output {
    /// Nothing to do.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty() && self.close.is_empty()
    }

    pub(crate) fn send(&mut self, to: &SessionRef, frame: Frame) {
        self.frames.push((to.clone(), GatewayFrame { frame: Some(frame) }));
    }

    pub(crate) fn append(&mut self, mut other: Self) {
        self.frames.append(&mut other.frames);
        self.close.append(&mut other.close);
    }
}
