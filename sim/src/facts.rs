//! What happened, as somebody would know it who sees all machines at once: facts for the invariants, and a log.

use std::{collections::BTreeMap, io::Write};

use ironwright_proto::wire::CommandState;
use sha2::{Digest, Sha256};

use crate::calendar::At;

/// A fact about the world, not about what anybody believes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    /// A command was made.
    Ordered {
        /// The command.
        command: String,
        /// The machine.
        node: u32,
        /// May run again after a crash.
        retry_safe: bool,
        /// Ends the agent that runs it.
        self_terminating: bool,
    },
    /// Its effect begins.
    Started {
        /// The command.
        command: String,
        /// The machine.
        node: u32,
        /// The agent's process: no two have the same number.
        process: u64,
    },
    /// Its effect is complete.
    Completed {
        /// The command.
        command: String,
    },
    /// The agent's process ended.
    ProcessEnded {
        /// The machine.
        node: u32,
        /// The process.
        process: u64,
    },
    /// The machine started anew.
    Booted {
        /// The machine.
        node: u32,
    },
    /// The machine's journal is gone.
    JournalLost {
        /// The machine.
        node: u32,
    },
    /// The journal on disk is not the one in memory.
    JournalDiffers {
        /// The machine.
        node: u32,
    },
    /// Control says that a command ended.
    Ended {
        /// The command.
        command: String,
        /// How.
        state: CommandState,
        /// Code of its error, or its outcome.
        code: String,
    },
    /// A session of the node is open.
    SessionOpened {
        /// The machine.
        node: u32,
    },
    /// The agent has a spec.
    SpecDelivered {
        /// The machine.
        node: u32,
        /// Its generation.
        generation: u64,
    },
    /// Control has the agent's word that it has observed a spec.
    SpecObserved {
        /// The machine.
        node: u32,
        /// Its generation.
        generation: u64,
    },
    /// Something happened to the link, so that nothing can be expected of it.
    LinkTroubled {
        /// The machine.
        node: u32,
    },
    /// At the end, the machine is not as its spec wants it.
    NotConverged {
        /// The machine.
        node: u32,
        /// What is not.
        why: String,
    },
    /// Control marked a node as unreachable.
    Unreachable {
        /// The machine.
        node: u32,
        /// When a live gateway last had a frame of it.
        last_frame: Option<At>,
    },
    /// A frame of a session that is not the node's newest one changed the store, or was not turned away.
    OldSessionHeard {
        /// The machine.
        node: u32,
    },
    /// Control's audit log does not verify.
    AuditBroken {
        /// Why.
        why: String,
    },
    /// A core gave an error where none was to be expected.
    Failed {
        /// What.
        what: String,
    },
}

/// Facts with their times.
pub type Facts = Vec<(At, Fact)>;

/// What was counted.
pub type Counts = BTreeMap<&'static str, u64>;

/// The log of a simulation: lines that go to a hash, and to whoever wants to read them.
pub(crate) struct Log {
    hasher: Sha256,
    lines: u64,
    out: Option<Box<dyn Write>>,
}

impl Log {
    pub(crate) fn new(out: Option<Box<dyn Write>>) -> Self {
        Self { hasher: Sha256::new(), lines: 0, out }
    }

    pub(crate) fn line(&mut self, at: At, text: std::fmt::Arguments<'_>) {
        let line = format!("{at} {text}\n");
        self.hasher.update(line.as_bytes());
        self.lines += 1;
        if let Some(out) = &mut self.out
            && out.write_all(line.as_bytes()).is_err()
        {
            // The log is for reading along; the digest is what counts.
            self.out = None;
        }
    }

    pub(crate) fn end(self) -> (String, u64) {
        (hex::encode(self.hasher.finalize()), self.lines)
    }
}
