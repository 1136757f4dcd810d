//! The disk under an agent's journal: writes are durable when they return, or fail, or come too late for a crash.

use ironwright_agent_core::{Journal, Record};

/// The write failed, and nothing of it is on the disk.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DiskError;

/// A journal on its disk.
#[derive(Debug)]
pub(crate) struct Disk {
    journal: Journal,
    /// What was there before the last write, where it may be wanted.
    before: Option<Journal>,
    /// The next write fails.
    pub(crate) fails_next: bool,
    pub(crate) loses_synced_writes: bool,
}

impl Disk {
    pub(crate) fn new(journal_id: String) -> Self {
        Self {
            journal: Journal::new(journal_id),
            before: None,
            fails_next: false,
            loses_synced_writes: false,
        }
    }

    /// All records or none: the real one is a transaction of a database.
    pub(crate) fn write(&mut self, records: &[Record]) -> Result<(), DiskError> {
        if std::mem::take(&mut self.fails_next) {
            return Err(DiskError);
        }
        if self.loses_synced_writes {
            self.before = Some(self.journal.clone());
        }
        for record in records {
            self.journal.apply(record);
        }
        Ok(())
    }

    /// What a new process finds.
    pub(crate) fn read(&self) -> Journal {
        self.journal.clone()
    }

    /// Whether this is what the disk holds.
    pub(crate) fn holds(&self, journal: &Journal) -> bool {
        self.journal == *journal
    }

    /// The process has ended in the middle of something.
    pub(crate) fn crash(&mut self) {
        if let Some(before) = self.before.take() {
            self.journal = before;
        }
    }

    /// Everything on the disk is gone.
    pub(crate) fn lose(&mut self, journal_id: String) {
        self.journal = Journal::new(journal_id);
        self.before = None;
    }
}

#[cfg(test)]
mod tests {
    use ironwright_proto::wire::JournalMark;

    use super::*;

    fn mark(server_unix_ms: i64) -> Record {
        Record::Mark(JournalMark { server_unix_ms, ..JournalMark::default() })
    }

    #[test]
    fn a_failed_write_leaves_nothing_and_a_crash_loses_nothing() {
        let mut disk = Disk::new("j".into());
        disk.write(&[mark(1)]).unwrap();
        disk.fails_next = true;
        assert_eq!(disk.write(&[mark(2)]), Err(DiskError));
        disk.crash();
        assert_eq!(disk.read().mark().server_unix_ms, 1);
        disk.write(&[mark(3)]).unwrap();
        assert_eq!(disk.read().mark().server_unix_ms, 3);
    }

    #[test]
    fn a_disk_that_lies_loses_the_last_write_in_a_crash() {
        let mut disk = Disk { loses_synced_writes: true, ..Disk::new("j".into()) };
        disk.write(&[mark(1)]).unwrap();
        disk.write(&[mark(2)]).unwrap();
        disk.crash();
        assert_eq!(disk.read().mark().server_unix_ms, 1);
    }
}
