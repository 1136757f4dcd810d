//! Where the journal is durable: a redb file, or nothing but memory.

mod disk;

use std::path::PathBuf;

use ironwright_agent_core::{Journal, Record};

pub(crate) use disk::Disk;

use crate::link::JournalPlace;

/// Why the journal cannot be used. The agent stops then: it must not act on what it cannot remember.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The folder or the file.
    #[error("{doing} the journal {path}")]
    File {
        /// "creating", "reading", "moving aside".
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// Another agent has it open.
    #[error("the journal {0} is in use by another agent")]
    InUse(PathBuf),
    /// The database.
    #[error("{doing} the journal")]
    Database {
        /// "opening", "writing".
        doing: &'static str,
        /// The cause.
        source: Box<redb::Error>,
    },
    /// The task that wrote it was lost.
    #[error("writing the journal was interrupted")]
    Interrupted,
}

/// Makes records durable.
pub(crate) trait Store: Send {
    /// When it returns, all of `records` survive a crash, or none does.
    fn write(&mut self, records: &[Record]) -> Result<(), JournalError>;
}

/// A journal that ends with the process. A restart shows as a new journal id.
struct Memory;

impl Store for Memory {
    fn write(&mut self, _records: &[Record]) -> Result<(), JournalError> {
        Ok(())
    }
}

/// Opens the journal: what it holds, and where to write on. A lost or corrupt one is a new one.
pub(crate) fn open(place: &JournalPlace) -> Result<(Journal, Box<dyn Store>), JournalError> {
    match place {
        JournalPlace::Memory => Ok((Journal::new(new_id()), Box::new(Memory))),
        JournalPlace::Dir(dir) => {
            let (journal, disk) = Disk::open(dir)?;
            Ok((journal, Box::new(disk)))
        }
    }
}

fn new_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// A store that fails when it is told to, for running error paths.
#[cfg(test)]
pub(crate) mod faulty {
    use std::sync::{Arc, Mutex};

    use super::{JournalError, Record, Store};

    /// Takes `writes_left` writes, keeps their records in `written`, then fails.
    #[derive(Clone)]
    pub(crate) struct Faulty {
        pub(crate) writes_left: usize,
        pub(crate) written: Arc<Mutex<Vec<Record>>>,
    }

    impl Faulty {
        pub(crate) fn after(writes: usize) -> Self {
            Self { writes_left: writes, written: Arc::default() }
        }
    }

    impl Store for Faulty {
        fn write(&mut self, records: &[Record]) -> Result<(), JournalError> {
            self.writes_left = self.writes_left.checked_sub(1).ok_or_else(|| JournalError::File {
                doing: "writing",
                path: "faulty".into(),
                source: std::io::ErrorKind::StorageFull.into(),
            })?;
            self.written.lock().expect("no writer panics").extend_from_slice(records);
            Ok(())
        }
    }
}
