//! Machines that nobody enrolled: who is worth an event.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use ironwright_proto::ids::Mac;

/// One event per MAC in this time.
const EVERY: Duration = Duration::from_secs(60);
/// MACs that are remembered. A flood of made-up ones costs this much memory, and hides newcomers for a minute.
const MAX_REMEMBERED: usize = 4096;

/// Remembers whom it told about.
#[derive(Debug, Default)]
pub(crate) struct Discoveries(BTreeMap<Mac, Instant>);

impl Discoveries {
    /// Is this sighting worth an event?
    pub(crate) fn note(&mut self, mac: Mac, now: Instant) -> bool {
        if self.0.len() >= MAX_REMEMBERED && !self.0.contains_key(&mac) {
            self.0.retain(|_, told| now.duration_since(*told) < EVERY);
            if self.0.len() >= MAX_REMEMBERED {
                return false;
            }
        }
        match self.0.get(&mac) {
            Some(told) if now.duration_since(*told) < EVERY => false,
            _ => {
                self.0.insert(mac, now);
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mac(n: usize) -> Mac {
        let [.., a, b] = n.to_be_bytes();
        Mac([2, 0, 0, 0, a, b])
    }

    #[test]
    fn one_event_per_mac_and_minute() {
        let (mut seen, start) = (Discoveries::default(), Instant::now());
        let at = |s| start + Duration::from_secs(s);
        assert!(seen.note(mac(1), at(0)));
        assert!(!seen.note(mac(1), at(59)));
        assert!(seen.note(mac(2), at(59)));
        assert!(seen.note(mac(1), at(60)));
    }

    #[test]
    fn memory_is_bounded() {
        let (mut seen, start) = (Discoveries::default(), Instant::now());
        for n in 0..MAX_REMEMBERED {
            assert!(seen.note(mac(n), start));
        }
        assert!(!seen.note(mac(MAX_REMEMBERED), start), "full");
        assert!(!seen.note(mac(0), start));
        assert!(seen.note(mac(MAX_REMEMBERED), start + EVERY));
        assert_eq!(seen.0.len(), 1);
    }
}
