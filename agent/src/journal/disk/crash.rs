//! The journal on a disk whose power fails at any operation: after it, what was synced is there, and of what was not,
//! any sectors are.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard},
};

use ironwright_agent_core::{CommandEntry, Journal, Record, Stage};
use ironwright_proto::wire::{Command, CommandState, CommandUpdate, Event, JournalMark};
use rand::{Rng, SeedableRng, rngs::StdRng};
use redb::StorageBackend;

use super::{Disk, Store};

const SECTOR: usize = 512;

/// The disk. Clones are the same one.
#[derive(Debug, Clone)]
struct FailingDisk(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    synced: Vec<u8>,
    /// What a reader sees.
    seen: Vec<u8>,
    /// Writes since the last sync: where, and how many bytes.
    unsynced: Vec<(usize, usize)>,
    operations: u64,
    power_fails_at: u64,
}

fn no_power() -> io::Error {
    io::Error::other("the power has failed")
}

impl FailingDisk {
    fn new(content: Vec<u8>, power_fails_at: u64) -> Self {
        let state = State {
            seen: content.clone(),
            synced: content,
            unsynced: Vec::new(),
            operations: 0,
            power_fails_at,
        };
        Self(Arc::new(Mutex::new(state)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Counts an operation that changes something.
    fn change(&self) -> Result<MutexGuard<'_, State>, io::Error> {
        let mut state = self.state();
        state.operations += 1;
        if state.operations >= state.power_fails_at { Err(no_power()) } else { Ok(state) }
    }

    /// What is on the disk when the power is back; each unsynced sector is there with the probability `kept`.
    fn after_power_failure(&self, kept: f64, rng: &mut StdRng) -> Vec<u8> {
        let state = self.state();
        let mut content = state.synced.clone();
        // The length is the file system's, which may have been quicker or slower than the data.
        if rng.gen_bool(kept) {
            content.resize(state.seen.len(), 0);
        }
        for (at, length) in &state.unsynced {
            for sector in (*at..at + length).step_by(SECTOR) {
                let end = (sector + SECTOR).min(at + length).min(content.len()).min(state.seen.len());
                if sector < end && rng.gen_bool(kept) {
                    content[sector..end].copy_from_slice(&state.seen[sector..end]);
                }
            }
        }
        content
    }
}

impl StorageBackend for FailingDisk {
    fn len(&self) -> Result<u64, io::Error> {
        Ok(self.state().seen.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        let from = usize::try_from(offset).unwrap();
        let state = self.state();
        let bytes = state.seen.get(from..from + out.len());
        out.copy_from_slice(bytes.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.change()?.seen.resize(usize::try_from(len).unwrap(), 0);
        Ok(())
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        let mut state = self.change()?;
        state.synced = state.seen.clone();
        state.unsynced.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        let from = usize::try_from(offset).unwrap();
        let mut state = self.change()?;
        state.seen[from..from + data.len()].copy_from_slice(data);
        state.unsynced.push((from, data.len()));
        Ok(())
    }
}

/// A life of a journal, write by write.
fn writes() -> Vec<Vec<Record>> {
    let entry = |id: &str, stage| {
        let args = vec![7; 5000];
        let command = Command { id: id.into(), kind: "disk.erase".into(), args, ..Command::default() };
        Record::Command(CommandEntry { command, stage })
    };
    let done = |acked| {
        let state = CommandState::Succeeded.into();
        let update =
            CommandUpdate { id: "a".into(), state, result: vec![1; 3000], ..CommandUpdate::default() };
        Stage::Done { update, at_unix_ms: 9, acked }
    };
    let event = |seq| Record::Event(Event { seq, kind: "log".into(), unix_ms: 1, json: "{}".into() });
    vec![
        vec![entry("a", Stage::Accepted)],
        vec![event(1), event(2)],
        vec![entry("b", Stage::Accepted), entry("b", Stage::Running { boot_id: "boot".into() })],
        vec![entry("a", done(false))],
        vec![Record::Mark(JournalMark { server_unix_ms: 7, events_through_seq: 1, events_dropped: 0 })],
        vec![entry("a", done(true)), event(3)],
        vec![Record::Forget("a".into())],
    ]
}

/// The journal as it is before the first write and after each one.
fn states(id: &str) -> Vec<Journal> {
    let mut states = vec![Journal::new(id.to_owned())];
    for records in writes() {
        let mut next = states[states.len() - 1].clone();
        for record in &records {
            next.apply(record);
        }
        states.push(next);
    }
    states
}

/// Lives until the power fails: the journal's id if it came to that, and how many writes were said to be durable.
fn live(disk: &FailingDisk) -> (Option<String>, usize) {
    let Ok((journal, mut store)) = Disk::on(disk.clone()) else { return (None, 0) };
    let durable = writes().iter().take_while(|records| store.write(records).is_ok()).count();
    // redb writes once more when it is closed; a process whose power fails does not get to that.
    disk.state().power_fails_at = 0;
    (Some(journal.id().to_owned()), durable)
}

#[test]
fn whatever_was_said_to_be_durable_is_there_after_a_power_failure_at_any_operation() {
    let whole = FailingDisk::new(Vec::new(), u64::MAX);
    let all = writes().len();
    assert_eq!(live(&whole).1, all);
    let operations = whole.state().operations;
    assert!(operations > 40, "{operations}");
    let mut between = 0;
    for power_fails_at in 1..=operations + 1 {
        let disk = FailingDisk::new(Vec::new(), power_fails_at);
        let (id, durable) = live(&disk);
        for (seed, kept) in (0..).zip([0.0, 0.1, 0.5, 0.5, 0.5, 0.9, 0.99, 1.0]) {
            let mut rng = StdRng::seed_from_u64(seed);
            let content = disk.after_power_failure(kept, &mut rng);
            let opened = Disk::on(FailingDisk::new(content, u64::MAX));
            let Some(id) = &id else {
                // Nothing was promised yet: it begins anew, or is moved aside and then begins anew.
                continue;
            };
            let (journal, _) =
                opened.unwrap_or_else(|_| panic!("not readable: operation {power_fails_at}, {seed}"));
            let states = states(id);
            let found = states.iter().position(|state| *state == journal);
            // The write under way may have happened or not, and nothing in between.
            let may_be = durable..=(durable + 1).min(all);
            assert!(
                found.is_some_and(|n| may_be.contains(&n)),
                "operation {power_fails_at}, {seed}: {journal:?}"
            );
            between += usize::from(found == Some(durable + 1));
        }
    }
    assert!(between > 0, "no write was cut off after it had become durable");
}
