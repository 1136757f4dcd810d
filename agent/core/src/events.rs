//! Events: numbered, journaled, sent in a window, kept until acknowledged.
//!
//! ```text
//!  raised ─► journaled ─► sent (at most 64 unacknowledged) ─► acknowledged: forgotten
//!     └─ no room: the oldest go, are counted, and the count is reported as `events.dropped`
//! ```

use ironwright_proto::wire::{Event, JournalMark, agent_frame::Frame};

use crate::{
    Effect, RaisedEvent,
    journal::{Journal, Record},
    work::persist,
};

/// Events sent and not yet acknowledged, at most.
const WINDOW: u64 = 64;
const MAX_KIND: usize = 64;
/// Bytes of an event's JSON.
pub const MAX_JSON: usize = 16 << 10;
/// The kind that reports how many events were dropped.
pub const DROPPED: &str = "events.dropped";

/// Journals an event; one that is too large is dropped.
pub(crate) fn raise(journal: &mut Journal, event: RaisedEvent, out: &mut Vec<Effect>) {
    if event.kind.is_empty() || event.kind.len() > MAX_KIND || event.json.len() > MAX_JSON {
        return count_dropped(journal, 1, event.unix_ms, out);
    }
    if let Some((through, count)) = journal.room_for_event(event.json.len()) {
        let mut mark = *journal.mark();
        mark.events_through_seq = through;
        mark.events_dropped = mark.events_dropped.saturating_add(count);
        persist(journal, Record::Mark(mark), out);
    }
    let RaisedEvent { kind, json, unix_ms } = event;
    persist(journal, Record::Event(Event { seq: journal.next_seq(), kind, unix_ms, json }), out);
}

/// Counts events that were lost before they could be journaled.
pub(crate) fn count_dropped(journal: &mut Journal, count: u64, unix_ms: i64, out: &mut Vec<Effect>) {
    let mut mark = *journal.mark();
    mark.events_dropped = mark.events_dropped.saturating_add(count);
    persist(journal, Record::Mark(mark), out);
    report_dropped(journal, unix_ms, out);
}

/// Reports what was dropped, as soon as that does not itself drop something.
fn report_dropped(journal: &mut Journal, unix_ms: i64, out: &mut Vec<Effect>) {
    let count = journal.mark().events_dropped;
    let json = format!(r#"{{"count":{count}}}"#);
    if count == 0 || journal.room_for_event(json.len()).is_some() {
        return;
    }
    let event = Event { seq: journal.next_seq(), kind: DROPPED.to_owned(), unix_ms, json };
    persist(journal, Record::Event(event), out);
    persist(journal, Record::Mark(JournalMark { events_dropped: 0, ..*journal.mark() }), out);
}

/// Control has the events up to `through`; no more can be acknowledged than were sent.
pub(crate) fn acknowledged(
    journal: &mut Journal,
    through: u64,
    sent: u64,
    unix_ms: i64,
    out: &mut Vec<Effect>,
) {
    let through = through.min(sent);
    if through > journal.mark().events_through_seq {
        let mark = JournalMark { events_through_seq: through, ..*journal.mark() };
        persist(journal, Record::Mark(mark), out);
        report_dropped(journal, unix_ms, out);
    }
}

/// Sends what fits into the window. `sent` is the number of the last event of this session.
pub(crate) fn pump(journal: &Journal, sent: &mut u64, out: &mut Vec<Effect>) {
    let limit = journal.mark().events_through_seq + WINDOW;
    for event in journal.events_after(*sent).take_while(|event| event.seq <= limit) {
        *sent = event.seq;
        out.push(Effect::Send(Frame::Event(event.clone())));
    }
}
