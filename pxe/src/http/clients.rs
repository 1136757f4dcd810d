//! How many connections each client has, and when to say that one has too many.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Connections of one IP address at one time. Firmware and ramdisk need a few.
pub const MAX_PER_CLIENT: usize = 32;
/// Shortest time between two log lines about refused connections.
const LOG_PAUSE: Duration = Duration::from_secs(60);

/// Connections by client. No more entries than there are connections.
#[derive(Debug, Default)]
pub(super) struct Clients(Mutex<BTreeMap<IpAddr, usize>>);

/// One connection's place, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    clients: Arc<Clients>,
    ip: IpAddr,
}

impl Clients {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<IpAddr, usize>> {
        // Nothing that holds the lock leaves it half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one more connection; `None` where the client has [`MAX_PER_CLIENT`].
    pub(super) fn enter(self: &Arc<Self>, ip: IpAddr) -> Option<Seat> {
        let mut clients = self.lock();
        let count = clients.entry(ip).or_default();
        (*count < MAX_PER_CLIENT).then(|| {
            *count += 1;
            Seat { clients: self.clone(), ip }
        })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut clients = self.clients.lock();
        let left = clients.get(&self.ip).map_or(0, |count| count.saturating_sub(1));
        if left == 0 {
            clients.remove(&self.ip);
        } else {
            clients.insert(self.ip, left);
        }
    }
}

/// Refused connections that the log has not told of: a client that is refused can ask without end.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    untold: u64,
    next_line: Option<Instant>,
}

impl Refusals {
    /// Counts one. Returns how many there are to tell of, where a log line is due.
    pub(super) fn count(&mut self, now: Instant) -> Option<u64> {
        self.untold += 1;
        if self.next_line.is_some_and(|next| now < next) {
            return None;
        }
        self.next_line = Some(now + LOG_PAUSE);
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_thirty_two_places_and_gets_them_back() {
        let clients = Arc::new(Clients::default());
        let [a, b] = [1, 2].map(|n| IpAddr::from([10, 0, 0, n]));
        let mut seats: Vec<_> = (0..32).map(|_| clients.enter(a).expect("a place")).collect();
        assert!(clients.enter(a).is_none());
        let other = clients.enter(b);
        assert!(other.is_some(), "another client is not touched");
        seats.pop();
        seats.push(clients.enter(a).expect("the place that was given back"));
        assert!(clients.enter(a).is_none());
        drop((seats, other));
        assert!(clients.lock().is_empty(), "clients that left are forgotten");
    }

    #[test]
    fn the_log_tells_once_a_minute_of_all_refusals() {
        let mut refusals = Refusals::default();
        let start = Instant::now();
        let after = |s| start + Duration::from_secs(s);
        let told = [0, 1, 59, 60, 61, 200].map(|s| refusals.count(after(s)));
        assert_eq!(told, [Some(1), None, None, Some(3), None, Some(2)]);
    }
}
