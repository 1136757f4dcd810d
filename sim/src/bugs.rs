//! Mistakes that the shells around the cores could make, made on purpose: a simulator that finds none of them would
//! be of no use.

use ironwright_proto::wire::gateway_frame::Frame;

/// A mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// The agent acts before its journal is durable.
    ActBeforeJournal,
    /// The agent's last write before a crash is lost, although it was said to be durable.
    LoseSyncedWrite,
    /// A journal that was lost comes back empty under its old id.
    KeepJournalId,
    /// Every command is taken for one that may run again.
    RetryAnything,
    /// Every session of a node has the same epoch.
    SameEpoch,
    /// The agent's shell loses status reports.
    SwallowReports,
    /// A gateway takes the end of a link for 40 s of silence.
    UnreachableOnDisconnect,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::ActBeforeJournal,
        Self::LoseSyncedWrite,
        Self::KeepJournalId,
        Self::RetryAnything,
        Self::SameEpoch,
        Self::SwallowReports,
        Self::UnreachableOnDisconnect,
    ];
}

/// A frame as an agent with this mistake sees it.
pub(crate) fn seen_by_agent(bug: Option<Bug>, mut frame: Frame) -> Frame {
    if let (Some(Bug::RetryAnything), Frame::Command(command)) = (bug, &mut frame) {
        command.retry_safe = true;
    }
    frame
}
