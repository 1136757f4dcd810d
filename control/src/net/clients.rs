//! How many connections each client has, so that none can take the places of all others.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Shortest time between two log lines about refused connections.
const LOG_PAUSE: Duration = Duration::from_secs(60);
/// What of an IPv6 address is one client's: whoever has a network of this length can use every address in it
/// (RFC 7421).
const IPV6_CLIENT: u128 = !0 << 64;

/// Connections by client. No more entries than there are connections.
#[derive(Debug)]
pub(super) struct Clients {
    most: usize,
    counts: Mutex<BTreeMap<IpAddr, usize>>,
}

/// One connection's place, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    clients: Arc<Clients>,
    client: IpAddr,
}

impl Clients {
    /// Gives each client `most` places.
    pub(super) fn new(most: usize) -> Self {
        Self { most, counts: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<IpAddr, usize>> {
        // Nothing that holds the lock leaves it half changed.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for one more connection; `None` where the client has all of its places.
    pub(super) fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Seat> {
        let client = client_of(address);
        let mut counts = self.lock();
        let count = counts.get(&client).copied().unwrap_or(0);
        (count < self.most).then(|| {
            counts.insert(client, count + 1);
            Seat { clients: self.clone(), client }
        })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut counts = self.clients.lock();
        match counts.get(&self.client).copied().unwrap_or(0) {
            0 | 1 => counts.remove(&self.client),
            more => counts.insert(self.client, more - 1),
        };
    }
}

fn client_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() & IPV6_CLIENT).into()),
        address @ IpAddr::V4(_) => address,
    }
}

/// Refused connections that the log has not told of: who is refused can ask without end.
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

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_client_has_its_places_and_gets_them_back() {
        let clients = Arc::new(Clients::new(3));
        let [a, b] = ["10.0.0.1", "10.0.0.2"].map(address);
        let mut seats: Vec<_> = (0..3).map(|_| clients.enter(a).expect("a place")).collect();
        assert!(clients.enter(a).is_none());
        assert!(clients.enter(address("::ffff:10.0.0.1")).is_none(), "the same client by an IPv6 socket");
        let other = clients.enter(b);
        assert!(other.is_some(), "another client is not touched");
        seats.pop();
        seats.push(clients.enter(a).expect("the place that was given back"));
        assert!(clients.enter(a).is_none());
        drop((seats, other));
        assert!(clients.lock().is_empty(), "clients that left are forgotten");
    }

    #[test]
    fn an_ipv6_network_of_64_bits_is_one_client() {
        let clients = Arc::new(Clients::new(1));
        let _seat = clients.enter(address("2001:db8:0:1::1")).unwrap();
        assert!(clients.enter(address("2001:db8:0:1:ffff::2")).is_none());
        assert!(clients.enter(address("2001:db8:0:2::1")).is_some());
    }

    #[test]
    fn the_log_tells_once_a_minute_of_all_refusals() {
        let mut refusals = Refusals::default();
        let start = Instant::now();
        let told = [0, 1, 59, 60, 61, 200].map(|s| refusals.count(start + Duration::from_secs(s)));
        assert_eq!(told, [Some(1), None, None, Some(3), None, Some(2)]);
    }
}
