//! What survives a restart: the image of the journal in memory, and the records that change it.
//!
//! One command's life:
//!
//! ```text
//!   (offered) ──► Accepted ──────────────────► Done ──ack──► Done, acked ──7 days──► (forgotten)
//!                    └─► Running{boot_id} ──────┘
//!                        self-terminating only
//! ```
//!
//! A record is a put, so that applying it twice changes nothing. The shell performs `Persist` before any
//! later effect of the same list; [`Journal::apply`] is what both the running agent and a restart do.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use ironwright_proto::wire::{
    self, Command, CommandState, CommandUpdate, Event, JournalCommand, JournalMark, Spec,
};

/// How long an acknowledged result is kept for duplicate deliveries.
pub const KEEP_DONE: Duration = Duration::from_secs(7 * 24 * 3600);
/// Commands that the journal holds at most; a further one is refused with `busy`.
pub const MAX_COMMANDS: usize = 10_000;
/// Unacknowledged events that the journal holds at most.
pub const MAX_EVENTS: usize = 10_000;
/// Bytes of unacknowledged events (their JSON) that the journal holds at most.
pub const MAX_EVENT_BYTES: usize = 64 << 20;

/// How far a command is.
#[derive(Debug, Clone, PartialEq)]
pub enum Stage {
    /// Will have an effect, or already had some of it.
    Accepted,
    /// A self-terminating command that was started in this boot.
    Running {
        /// The kernel's id of the boot.
        boot_id: String,
    },
    /// Ended.
    Done {
        /// The final state.
        update: CommandUpdate,
        /// Control's time when it ended.
        at_unix_ms: i64,
        /// Control has acknowledged it.
        acked: bool,
    },
}

/// What the journal keeps of a command.
#[derive(Clone, PartialEq)]
pub struct CommandEntry {
    /// As delivered; without its arguments once it is done.
    pub command: Command,
    /// How far it is.
    pub stage: Stage,
}

/// Arguments may carry tokens and user data, so they are not shown.
impl fmt::Debug for CommandEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CommandEntry({} {} {:?})", self.command.id, self.command.kind, self.stage)
    }
}

impl CommandEntry {
    /// What control is told of the command.
    pub fn update(&self) -> CommandUpdate {
        match &self.stage {
            Stage::Done { update, .. } => update.clone(),
            Stage::Accepted | Stage::Running { .. } => CommandUpdate {
                id: self.command.id.clone(),
                state: CommandState::Running.into(),
                ..CommandUpdate::default()
            },
        }
    }

    /// Whether control has acknowledged its end.
    pub fn is_acked(&self) -> bool {
        matches!(self.stage, Stage::Done { acked: true, .. })
    }

    /// The form it has on disk.
    pub fn to_wire(&self) -> JournalCommand {
        let mut stored = JournalCommand { command: Some(self.command.clone()), ..JournalCommand::default() };
        match &self.stage {
            Stage::Accepted => {}
            Stage::Running { boot_id } => stored.running_boot_id.clone_from(boot_id),
            Stage::Done { update, at_unix_ms, acked } => {
                stored.done = Some(update.clone());
                stored.done_unix_ms = *at_unix_ms;
                stored.acked = *acked;
            }
        }
        stored
    }

    /// Reads the form it has on disk; `None` where that is none of ours.
    pub fn from_wire(stored: JournalCommand) -> Option<Self> {
        let stage = match stored.done {
            Some(update) => Stage::Done { update, at_unix_ms: stored.done_unix_ms, acked: stored.acked },
            None if stored.running_boot_id.is_empty() => Stage::Accepted,
            None => Stage::Running { boot_id: stored.running_boot_id },
        };
        Some(Self { command: stored.command.filter(|command| !command.id.is_empty())?, stage })
    }
}

/// A change of the journal.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// Replaces what is kept of the command.
    Command(CommandEntry),
    /// Nothing is kept of the command with this id any more.
    Forget(String),
    /// Adds an event.
    Event(Event),
    /// Replaces the spec.
    Spec(Spec),
    /// Replaces the marks, and removes the events up to `events_through_seq`.
    Mark(JournalMark),
}

/// The journal, as far as it is durable.
#[derive(Debug, Clone, PartialEq)]
pub struct Journal {
    id: String,
    commands: BTreeMap<String, CommandEntry>,
    /// Ids of `commands` that are not done, and of those that are done but not acknowledged.
    unfinished: BTreeSet<String>,
    unacked: BTreeSet<String>,
    events: BTreeMap<u64, Event>,
    event_bytes: usize,
    mark: JournalMark,
    spec: Spec,
}

impl Journal {
    /// An empty journal. `id` is new for every journal that was not there before.
    pub fn new(id: String) -> Self {
        Self {
            id,
            commands: BTreeMap::new(),
            unfinished: BTreeSet::new(),
            unacked: BTreeSet::new(),
            events: BTreeMap::new(),
            event_bytes: 0,
            mark: JournalMark::default(),
            spec: Spec::default(),
        }
    }

    /// Applies a change.
    pub fn apply(&mut self, record: &Record) {
        match record {
            Record::Command(entry) => self.put_command(entry),
            Record::Forget(id) => {
                self.commands.remove(id);
                self.unfinished.remove(id);
                self.unacked.remove(id);
            }
            Record::Event(event) => {
                self.event_bytes += event.json.len();
                if let Some(old) = self.events.insert(event.seq, event.clone()) {
                    self.event_bytes -= old.json.len();
                }
            }
            Record::Spec(spec) => self.spec = spec.clone(),
            Record::Mark(mark) => {
                let kept = self.events.split_off(&(mark.events_through_seq + 1));
                let gone = std::mem::replace(&mut self.events, kept);
                self.event_bytes -= gone.values().map(|event| event.json.len()).sum::<usize>();
                self.mark = *mark;
            }
        }
    }

    fn put_command(&mut self, entry: &CommandEntry) {
        let id = &entry.command.id;
        let (unfinished, unacked) = match &entry.stage {
            Stage::Accepted | Stage::Running { .. } => (true, false),
            Stage::Done { acked, .. } => (false, !acked),
        };
        for (set, member) in [(&mut self.unfinished, unfinished), (&mut self.unacked, unacked)] {
            if member {
                set.insert(id.clone())
            } else {
                set.remove(id)
            };
        }
        self.commands.insert(id.clone(), entry.clone());
    }

    /// The journal's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What is kept of a command.
    pub fn command(&self, id: &str) -> Option<&CommandEntry> {
        self.commands.get(id)
    }

    /// All commands that are kept, by id.
    pub fn commands(&self) -> impl Iterator<Item = &CommandEntry> {
        self.commands.values()
    }

    /// Whether a further command has room.
    pub(crate) fn has_room(&self) -> bool {
        self.commands.len() < MAX_COMMANDS
    }

    /// The commands that have not ended.
    pub fn unfinished(&self) -> impl Iterator<Item = &CommandEntry> {
        self.unfinished.iter().filter_map(|id| self.commands.get(id))
    }

    /// The commands whose end control has not acknowledged.
    pub fn unacked(&self) -> impl Iterator<Item = &CommandEntry> {
        self.unacked.iter().filter_map(|id| self.commands.get(id))
    }

    /// Ids of acknowledged results that are older than [`KEEP_DONE`] at `now_unix_ms`.
    pub(crate) fn outdated(&self, now_unix_ms: i64) -> Vec<String> {
        let keep_ms = i64::try_from(KEEP_DONE.as_millis()).unwrap_or(i64::MAX);
        let old = |entry: &&CommandEntry| match &entry.stage {
            Stage::Done { at_unix_ms, acked: true, .. } => now_unix_ms.saturating_sub(*at_unix_ms) > keep_ms,
            _ => false,
        };
        self.commands.values().filter(old).map(|entry| entry.command.id.clone()).collect()
    }

    /// Unacknowledged events with a number above `seq`.
    pub fn events_after(&self, seq: u64) -> impl Iterator<Item = &Event> {
        self.events.range(seq + 1..).map(|(_, event)| event)
    }

    /// How many events are not acknowledged.
    pub fn event_count(&self) -> usize {
        self.events.len()
    }

    /// The marks.
    pub fn mark(&self) -> &wire::JournalMark {
        &self.mark
    }

    /// The newest spec; of generation 0 where there is none.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The number of the next event.
    pub(crate) fn next_seq(&self) -> u64 {
        let last = self.events.last_key_value().map_or(0, |(seq, _)| *seq);
        last.max(self.mark.events_through_seq) + 1
    }

    /// What has to go so that an event of `bytes` has room: the number of the last one, and how many.
    /// `None` where there is room.
    pub(crate) fn room_for_event(&self, bytes: usize) -> Option<(u64, u64)> {
        let (mut count, mut held) = (self.events.len(), self.event_bytes);
        let mut evicted = None;
        for (number, (seq, event)) in (1..).zip(&self.events) {
            if count < MAX_EVENTS && held + bytes <= MAX_EVENT_BYTES {
                break;
            }
            count -= 1;
            held -= event.json.len();
            evicted = Some((*seq, number));
        }
        evicted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(seq: u64, bytes: usize) -> Event {
        Event { seq, kind: "log".into(), unix_ms: 0, json: "x".repeat(bytes) }
    }

    fn journal_with(events: impl IntoIterator<Item = Event>) -> Journal {
        let mut journal = Journal::new("j".into());
        events.into_iter().for_each(|event| journal.apply(&Record::Event(event)));
        journal
    }

    #[test]
    fn every_stage_is_read_back_from_its_wire_form() {
        let command =
            Command { id: "c".into(), kind: "boot.local".into(), args: vec![1], ..Command::default() };
        let update =
            CommandUpdate { id: "c".into(), state: CommandState::Failed.into(), ..Default::default() };
        for stage in [
            Stage::Accepted,
            Stage::Running { boot_id: "b".into() },
            Stage::Done { update, at_unix_ms: 5, acked: true },
        ] {
            let entry = CommandEntry { command: command.clone(), stage };
            assert_eq!(CommandEntry::from_wire(entry.to_wire()), Some(entry));
        }
        assert_eq!(CommandEntry::from_wire(JournalCommand::default()), None);
    }

    #[test]
    fn arguments_stay_out_of_debug_output() {
        let command = Command { id: "c".into(), args: b"s3cret".to_vec(), ..Command::default() };
        let entry = CommandEntry { command, stage: Stage::Accepted };
        assert_eq!(format!("{entry:?}"), "CommandEntry(c  Accepted)");
    }

    #[test]
    fn applying_a_record_twice_changes_nothing() {
        let mut journal = journal_with([event(1, 10), event(2, 20)]);
        let once = journal.clone();
        journal.apply(&Record::Event(event(2, 20)));
        assert_eq!(journal, once);
        let mark = Record::Mark(JournalMark { events_through_seq: 1, ..JournalMark::default() });
        journal.apply(&mark);
        let once = journal.clone();
        journal.apply(&mark);
        assert_eq!((journal.event_bytes, &journal), (20, &once));
    }

    #[test]
    fn numbers_of_events_never_repeat() {
        let mut journal = journal_with([event(1, 1), event(2, 1)]);
        assert_eq!(journal.next_seq(), 3);
        journal.apply(&Record::Mark(JournalMark { events_through_seq: 2, ..JournalMark::default() }));
        assert_eq!((journal.event_count(), journal.next_seq()), (0, 3));
    }

    #[test]
    fn room_is_made_by_count_and_by_bytes() {
        assert_eq!(journal_with([event(1, 10)]).room_for_event(10), None);
        let full = journal_with((1..=MAX_EVENTS as u64).map(|seq| event(seq, 0)));
        assert_eq!(full.room_for_event(0), Some((1, 1)));
        let fat = journal_with((1..=4).map(|seq| event(seq, MAX_EVENT_BYTES / 4)));
        assert_eq!(fat.room_for_event(0), None);
        assert_eq!(fat.room_for_event(MAX_EVENT_BYTES / 4 + 1), Some((2, 2)));
    }
}
