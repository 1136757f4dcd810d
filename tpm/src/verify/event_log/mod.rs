//! The firmware's event log: what was measured into the PCRs, in order.
//!
//! Standard: TCG PC Client Platform Firmware Profile 1.05, section 10. A log is only as true as its replay:
//! whoever uses events must have compared [`EventLog::replay`] with quoted PCR values. Even then only the
//! *digest* of an event is known to be true; event data is free text unless it hashes to the digest.

mod parse;
mod replay;
#[cfg(test)]
mod tests;

/// Longest log that is read, in bytes.
pub const MAX_EVENT_LOG: usize = 1 << 20;

/// `EV_NO_ACTION`: information for the reader; nothing is extended.
pub(crate) const EV_NO_ACTION: u32 = 0x0000_0003;

/// A parsed log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventLog {
    /// Banks of the log (`TPM_ALG_ID`) with their digest lengths in bytes.
    banks: Vec<(u16, usize)>,
    /// In the order of the log.
    pub events: Vec<Event>,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Index of the PCR that was extended.
    pub pcr: u32,
    /// Type (`EV_…`).
    pub kind: u32,
    /// One digest for each bank (`TPM_ALG_ID`).
    pub digests: Vec<(u16, Vec<u8>)>,
    /// The event's data.
    pub data: Vec<u8>,
}

/// Why a log cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EventLogError {
    /// Longer than is read.
    #[error("the event log has {0} bytes; at most {MAX_EVENT_LOG} are read")]
    TooLong(usize),
    /// The bytes end inside an event.
    #[error("the event log ends inside the event at byte {0}")]
    Truncated(usize),
    /// The first event's list of banks.
    #[error("the event log's header is not usable: {0}")]
    Header(&'static str),
    /// An event's digests.
    #[error("the event at byte {offset} of the log has unusable digests: {why}")]
    Digests {
        /// Where the event begins.
        offset: usize,
        /// What is wrong.
        why: &'static str,
    },
    /// Measured into a PCR that does not exist.
    #[error("the event log extends PCR {0}, which does not exist")]
    Pcr(u32),
    /// `StartupLocality` has a value that does not exist, or comes after PCR 0 was extended.
    #[error("the event log's startup locality is not usable")]
    StartupLocality,
    /// A bank that the log does not have, or whose algorithm is not known here.
    #[error("the event log cannot be replayed for bank {0:#06x}")]
    Bank(u16),
}
