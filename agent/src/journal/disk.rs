//! The journal as one redb file.
//!
//! | table | key | value |
//! |---|---|---|
//! | `commands` | command id | `JournalCommand` |
//! | `events` | number | `Event` |
//! | `meta` | `id`, `mark`, `spec` | the journal's id, `JournalMark`, `Spec` |

use std::{
    fs, io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use ironwright_agent_core::{CommandEntry, Journal, Record};
use ironwright_proto::{
    Message,
    wire::{Event, JournalCommand, JournalMark, Spec},
};
use redb::{Database, DatabaseError, ReadableTable, StorageBackend, TableDefinition, backends::FileBackend};

use super::{JournalError, Store, new_id};
use crate::contain;

const FILE: &str = "journal.redb";
/// The journal is read once and then only written.
const CACHE_BYTES: usize = 4 << 20;

const COMMANDS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("commands");
const EVENTS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("events");
const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
const ID: &str = "id";
const MARK: &str = "mark";
const SPEC: &str = "spec";

/// An open journal file.
pub(crate) struct Disk {
    database: Database,
}

/// Why a file was not read.
enum Unread {
    /// It holds something else than a journal; a new one takes its place.
    Corrupt(String),
    /// Another agent has it.
    InUse,
    /// It may well be a good one.
    Failed(JournalError),
}

impl From<redb::Error> for Unread {
    fn from(source: redb::Error) -> Self {
        match source {
            redb::Error::Corrupted(why) => Self::Corrupt(why),
            redb::Error::Io(err) if is_nonsense(&err) => Self::Corrupt(err.to_string()),
            source @ (redb::Error::UpgradeRequired(_)
            | redb::Error::RepairAborted
            | redb::Error::TableTypeMismatch { .. }
            | redb::Error::TableIsMultimap(_)) => Self::Corrupt(source.to_string()),
            source => Self::Failed(JournalError::Database { doing: "opening", source: Box::new(source) }),
        }
    }
}

fn is_nonsense(err: &io::Error) -> bool {
    matches!(err.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}

impl Disk {
    /// Opens the journal in `dir`. A corrupt file is moved aside and a new journal begun.
    pub(crate) fn open(dir: &Path) -> Result<(Journal, Self), JournalError> {
        let path = dir.join(FILE);
        match Self::read(&path) {
            Ok(opened) => return Ok(opened),
            Err(Unread::InUse) => return Err(JournalError::InUse(path)),
            Err(Unread::Failed(err)) => return Err(err),
            Err(Unread::Corrupt(why)) => {
                let aside = move_aside(&path)?;
                tracing::error!(%why, moved_to = %aside.display(), "the journal was corrupt; beginning a new one");
            }
        }
        Self::read(&path).map_err(|unread| match unread {
            Unread::InUse => JournalError::InUse(path),
            Unread::Failed(err) => err,
            Unread::Corrupt(why) => {
                JournalError::File { doing: "creating", path, source: io::Error::other(why) }
            }
        })
    }

    fn read(path: &Path) -> Result<(Journal, Self), Unread> {
        let creating = |source| JournalError::File { doing: "creating", path: path.to_owned(), source };
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(|source| Unread::Failed(creating(source)))?;
        Self::on(FileBackend::new(file).map_err(redb::Error::from)?)
    }

    /// Reads the journal on whatever keeps its bytes; begins one where there are none.
    fn on(backend: impl StorageBackend) -> Result<(Journal, Self), Unread> {
        // What redb finds impossible in a file it answers with a panic; here it only means corrupt.
        let opened = contain::call(|| {
            let database = Database::builder()
                .set_cache_size(CACHE_BYTES)
                .create_with_backend(backend)
                .map_err(|err| match err {
                    DatabaseError::DatabaseAlreadyOpen => Unread::InUse,
                    err => Unread::from(redb::Error::from(err)),
                })?;
            let journal = load(&database)?;
            Ok((journal, Self { database }))
        });
        opened.unwrap_or_else(|| Err(Unread::Corrupt("its structure is impossible".to_owned())))
    }
}

fn load(database: &Database) -> Result<Journal, Unread> {
    let transaction = database.begin_write().map_err(redb::Error::from)?;
    let journal = {
        let mut meta = transaction.open_table(META).map_err(redb::Error::from)?;
        let id = match meta.get(ID).map_err(redb::Error::from)? {
            Some(id) => String::from_utf8(id.value().to_vec()).map_err(|_| corrupt("id"))?,
            None => new_id(),
        };
        meta.insert(ID, id.as_bytes()).map_err(redb::Error::from)?;
        let mut journal = Journal::new(id);
        if let Some(mark) = meta.get(MARK).map_err(redb::Error::from)? {
            journal.apply(&Record::Mark(decode::<JournalMark>(mark.value())?));
        }
        if let Some(spec) = meta.get(SPEC).map_err(redb::Error::from)? {
            journal.apply(&Record::Spec(decode::<Spec>(spec.value())?));
        }
        let commands = transaction.open_table(COMMANDS).map_err(redb::Error::from)?;
        for row in commands.iter().map_err(redb::Error::from)? {
            let (_, value) = row.map_err(redb::Error::from)?;
            let entry = CommandEntry::from_wire(decode::<JournalCommand>(value.value())?);
            journal.apply(&Record::Command(entry.ok_or_else(|| corrupt("command"))?));
        }
        let events = transaction.open_table(EVENTS).map_err(redb::Error::from)?;
        for row in events.iter().map_err(redb::Error::from)? {
            let (_, value) = row.map_err(redb::Error::from)?;
            journal.apply(&Record::Event(decode::<Event>(value.value())?));
        }
        journal
    };
    transaction.commit().map_err(redb::Error::from)?;
    Ok(journal)
}

fn decode<M: Message + Default>(bytes: &[u8]) -> Result<M, Unread> {
    M::decode(bytes).map_err(|_| corrupt("record"))
}

fn corrupt(what: &str) -> Unread {
    Unread::Corrupt(format!("a {what} in it is malformed"))
}

fn move_aside(path: &Path) -> Result<PathBuf, JournalError> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let free = |n: &u32| !path.with_extension(format!("redb.corrupt-{seconds}-{n}")).exists();
    let n = (0..u32::MAX).find(free).unwrap_or_default();
    let aside = path.with_extension(format!("redb.corrupt-{seconds}-{n}"));
    fs::rename(path, &aside).map_err(|source| JournalError::File {
        doing: "moving aside",
        path: path.to_owned(),
        source,
    })?;
    Ok(aside)
}

impl Store for Disk {
    fn write(&mut self, records: &[Record]) -> Result<(), JournalError> {
        self.transact(records)
            .map_err(|source| JournalError::Database { doing: "writing", source: Box::new(source) })
    }
}

impl Disk {
    /// One transaction; redb syncs the file before the commit returns.
    fn transact(&self, records: &[Record]) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        {
            let mut commands = transaction.open_table(COMMANDS)?;
            let mut events = transaction.open_table(EVENTS)?;
            let mut meta = transaction.open_table(META)?;
            for record in records {
                match record {
                    Record::Command(entry) => {
                        commands
                            .insert(entry.command.id.as_str(), entry.to_wire().encode_to_vec().as_slice())?;
                    }
                    Record::Forget(id) => drop(commands.remove(id.as_str())?),
                    Record::Event(event) => {
                        events.insert(event.seq, event.encode_to_vec().as_slice())?;
                    }
                    Record::Spec(spec) => drop(meta.insert(SPEC, spec.encode_to_vec().as_slice())?),
                    Record::Mark(mark) => {
                        events.retain_in(..=mark.events_through_seq, |_, _| false)?;
                        meta.insert(MARK, mark.encode_to_vec().as_slice())?;
                    }
                }
            }
        }
        transaction.commit()?;
        Ok(())
    }
}

#[cfg(test)]
mod crash;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use ironwright_agent_core::Stage;
    use ironwright_proto::wire::{Command, CommandState, CommandUpdate};

    use super::*;

    fn records() -> Vec<Record> {
        let command = |id: &str| Command { id: id.into(), kind: "disk.erase".into(), ..Command::default() };
        let update =
            CommandUpdate { id: "b".into(), state: CommandState::Succeeded.into(), ..Default::default() };
        let event = |seq| Event { seq, kind: "log".into(), unix_ms: 1, json: "{}".into() };
        vec![
            Record::Command(CommandEntry { command: command("a"), stage: Stage::Accepted }),
            Record::Command(CommandEntry {
                command: command("b"),
                stage: Stage::Done { update, at_unix_ms: 9, acked: false },
            }),
            Record::Command(CommandEntry {
                command: command("c"),
                stage: Stage::Running { boot_id: "boot".into() },
            }),
            Record::Forget("a".into()),
            Record::Event(event(1)),
            Record::Event(event(2)),
            Record::Spec(Spec { generation: 4, sections: vec![] }),
            Record::Mark(JournalMark { server_unix_ms: 7, events_through_seq: 1, events_dropped: 3 }),
        ]
    }

    fn written(dir: &Path) -> Journal {
        let (mut journal, mut disk) = Disk::open(dir).unwrap();
        disk.write(&records()).unwrap();
        for record in &records() {
            journal.apply(record);
        }
        journal
    }

    fn set_aside(dir: &Path) -> usize {
        let is_aside = |name: &str| name.contains("corrupt");
        fs::read_dir(dir)
            .unwrap()
            .filter(|e| is_aside(&e.as_ref().unwrap().file_name().to_string_lossy()))
            .count()
    }

    #[test]
    fn what_was_written_is_read_back_with_the_same_id() {
        let dir = tempfile::tempdir().unwrap();
        let expected = written(dir.path());
        let (journal, _disk) = Disk::open(dir.path()).unwrap();
        assert_eq!(journal, expected);
        assert_eq!(fs::metadata(dir.path().join(FILE)).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_lost_journal_is_a_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let old = written(dir.path());
        fs::remove_file(dir.path().join(FILE)).unwrap();
        let (journal, _disk) = Disk::open(dir.path()).unwrap();
        assert_ne!(journal.id(), old.id());
        assert_eq!(journal.commands().count(), 0);
    }

    #[test]
    fn a_corrupt_journal_is_moved_aside_and_is_a_new_one() {
        type Damage = fn(&mut Vec<u8>);
        let damages: [(&str, Damage); 4] = [
            ("text", |bytes| *bytes = b"this was never a journal".to_vec()),
            ("zeros", |bytes| bytes.fill(0)),
            ("cut", |bytes| bytes.truncate(bytes.len() / 2)),
            ("torn", |bytes| bytes[4096..].iter_mut().for_each(|byte| *byte ^= 0x5a)),
        ];
        for (name, damage) in damages {
            let dir = tempfile::tempdir().unwrap();
            let old = written(dir.path());
            let path = dir.path().join(FILE);
            let mut bytes = fs::read(&path).unwrap();
            damage(&mut bytes);
            fs::write(&path, &bytes).unwrap();
            let (journal, _disk) = Disk::open(dir.path()).unwrap();
            assert_ne!(journal.id(), old.id(), "{name}");
            assert_eq!(set_aside(dir.path()), 1, "{name}");
        }
    }

    #[test]
    fn two_agents_cannot_share_a_journal() {
        let dir = tempfile::tempdir().unwrap();
        let _held = Disk::open(dir.path()).unwrap();
        assert!(matches!(Disk::open(dir.path()), Err(JournalError::InUse(_))));
        assert_eq!(set_aside(dir.path()), 0);
    }

    #[test]
    fn a_missing_folder_is_an_error_and_no_loss() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("none");
        assert!(matches!(Disk::open(&missing), Err(JournalError::File { doing: "creating", .. })));
    }
}
