//! Events that parts of an agent raise outside any command.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use ironwright_agent_core::RaisedEvent;
use tokio::sync::mpsc;

/// Events that wait to be journaled; beyond it they are dropped, counted and reported.
const QUEUE: usize = 1024;

/// Where events go. Cheap to clone; never blocks, so that a packet handler can use it.
#[derive(Clone, Debug)]
pub struct EventSink {
    queue: mpsc::Sender<RaisedEvent>,
    lost: Arc<AtomicU64>,
}

/// The other end of an [`EventSink`].
#[derive(Debug)]
pub(crate) struct EventSource {
    pub(crate) queue: mpsc::Receiver<RaisedEvent>,
    lost: Arc<AtomicU64>,
}

impl EventSource {
    /// How many events found the queue full since the last call.
    pub(crate) fn take_lost(&self) -> u64 {
        self.lost.swap(0, Ordering::Relaxed)
    }
}

pub(crate) fn channel() -> (EventSink, EventSource) {
    let (queue, source) = mpsc::channel(QUEUE);
    let lost = Arc::new(AtomicU64::new(0));
    (EventSink { queue, lost: lost.clone() }, EventSource { queue: source, lost })
}

impl EventSink {
    /// Raises an event of `kind` (`boot.fetched`, `log`, …) with its particulars, a JSON object of at most
    /// 16 KiB. It is journaled and sent until control acknowledges it.
    pub fn send(&self, kind: &str, json: &serde_json::Value) {
        let event = RaisedEvent { kind: kind.to_owned(), json: json.to_string(), unix_ms: unix_ms() };
        if self.queue.try_send(event).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A sink whose events go nowhere, for running parts without a session.
    pub fn detached() -> Self {
        channel().0
    }
}

/// This machine's clock, in milliseconds since the Unix epoch.
pub(crate) fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_full_queue_counts_what_it_loses() {
        let (sink, mut source) = channel();
        for n in 0..QUEUE + 3 {
            sink.send("log", &json!({ "n": n }));
        }
        assert_eq!(source.take_lost(), 3);
        assert_eq!(source.take_lost(), 0);
        assert_eq!(source.queue.try_recv().unwrap().json, r#"{"n":0}"#);
    }
}
