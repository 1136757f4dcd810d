//! What follows from a call: frames to send, sessions to close, and what has become different.

use ironwright_proto::{
    api::NodeState,
    wire::{CommandState, GatewayFrame, gateway_frame::Frame},
};

/// One session of one node. Frames for a session that is not open any more are dropped.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionRef {
    /// The node.
    pub node: String,
    /// The session's epoch.
    pub epoch: u64,
}

/// Something that became different, for whoever observes control. It is in the store already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A command ended. It is said once for each command.
    CommandEnded {
        /// The command.
        id: String,
        /// `Succeeded`, `Failed` or `Refused`.
        state: CommandState,
        /// Code of its error, or its outcome.
        code: String,
    },
    /// A node is in another state.
    NodeState {
        /// The node.
        node: String,
        /// The state now.
        state: NodeState,
    },
}

/// Effects of a call, to be carried out in this order: all frames, then all closes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Output {
    /// Frames, in order.
    pub frames: Vec<(SessionRef, GatewayFrame)>,
    /// Sessions to close once the frames before are sent.
    pub close: Vec<SessionRef>,
    /// What became different.
    pub changes: Vec<Change>,
}

impl Output {
    /// Nothing to do; things may have become different all the same.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty() && self.close.is_empty()
    }

    pub(crate) fn send(&mut self, to: &SessionRef, frame: Frame) {
        self.frames.push((to.clone(), GatewayFrame { frame: Some(frame) }));
    }

    pub(crate) fn append(&mut self, mut other: Self) {
        self.frames.append(&mut other.frames);
        self.close.append(&mut other.close);
        self.changes.append(&mut other.changes);
    }
}
