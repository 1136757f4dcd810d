//! Addresses of the DHCP server mode: one per MAC, whatever client-id is sent (field report D13: ROM, iPXE
//! and operating system send different ones, and must get one address).
//!
//! ```text
//!          offer                  grant
//!  (free) ───────▶ offered 60 s ───────▶ leased ──┐ grant: renewed
//!     ▲               │ time               │  ▲───┘
//!     │               ├────────────────────┘ release, time: remembered, given to others only when
//!     └───────────────┘                      no address is left that nobody ever had
//!
//!  offered ──▶ offered to another: no address is left, and an enrolled machine asks. It gets that of the
//!              machine that is not enrolled and asked longest ago; RFC 2131 section 3.1 does not make a
//!              server reserve what it offers. What is leased is never taken.
//!  offered, leased ──▶ quarantined 10 min: decline. Of a quarter of the pool at most: beyond that, the
//!              oldest is free again, or any stranger could empty the pool.
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    net::Ipv4Addr,
    str::FromStr,
};

use ironwright_proto::ids::Mac;

use super::clock::Clock;
use crate::now::Now;

/// How long an offered address is kept for a client that has not asked for it yet.
const OFFER_MS: i64 = 60_000;
/// How long an address is not given out after a client found it in use.
const QUARANTINE_MS: i64 = 600_000;
/// Part of the pool that may be in quarantine.
const QUARANTINE_SHARE: u32 = 4;
/// Largest pool.
pub const MAX_POOL: u32 = 4096;

/// Why a range of addresses is no pool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// `last` is below `first`.
    #[error("the pool {0} to {1} is empty")]
    Empty(Ipv4Addr, Ipv4Addr),
    /// More than [`MAX_POOL`].
    #[error("the pool {0} to {1} has more than {MAX_POOL} addresses")]
    TooLarge(Ipv4Addr, Ipv4Addr),
}

/// Addresses that may be given out, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    first: u32,
    last: u32,
}

impl Pool {
    /// Checks the range.
    pub fn new(first: Ipv4Addr, last: Ipv4Addr) -> Result<Self, PoolError> {
        let pool = Self { first: first.into(), last: last.into() };
        if pool.last < pool.first {
            return Err(PoolError::Empty(first, last));
        }
        if pool.last - pool.first >= MAX_POOL {
            return Err(PoolError::TooLarge(first, last));
        }
        Ok(pool)
    }

    /// Is the address one of the pool's?
    pub fn contains(self, address: Ipv4Addr) -> bool {
        (self.first..=self.last).contains(&address.into())
    }

    /// Most addresses in quarantine. At least one, or a client of a small pool that declines its address would
    /// be offered the same again.
    fn max_quarantine(self) -> usize {
        ((self.last - self.first + 1) / QUARANTINE_SHARE).max(1) as usize
    }

    fn addresses(self) -> impl Iterator<Item = Ipv4Addr> {
        (self.first..=self.last).map(Ipv4Addr::from)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Lease {
    address: Ipv4Addr,
    until_ms: i64,
    granted: bool,
}

/// All leases. Bounded by the pool: an address belongs to at most one MAC.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leases {
    by_mac: BTreeMap<Mac, Lease>,
    owner: BTreeMap<Ipv4Addr, Mac>,
    quarantine: BTreeMap<Ipv4Addr, i64>,
    clock: Clock,
}

impl Leases {
    /// Moves the ends of all leases with the clock where that was set, so that none ends here before it does
    /// for its client. None gets more than a whole lease by that: the clock may have been wrong before a
    /// restart. Returns whether it was set.
    pub fn follow(&mut self, now: Now, lease_s: u32) -> bool {
        let set_by = self.clock.set_by(now);
        if set_by == 0 {
            return false;
        }
        let latest = until(now.unix_ms, lease_s);
        for lease in self.by_mac.values_mut() {
            let moved = lease.until_ms.saturating_add(set_by);
            lease.until_ms = if set_by > 0 { moved.min(latest) } else { moved };
        }
        for until_ms in self.quarantine.values_mut() {
            *until_ms = until_ms.saturating_add(set_by);
        }
        true
    }

    /// The address that this client was granted and still has.
    pub fn granted(&self, mac: Mac, now_ms: i64) -> Option<Ipv4Addr> {
        self.by_mac.get(&mac).filter(|lease| lease.granted && now_ms < lease.until_ms).map(|l| l.address)
    }

    /// The address that this client was offered or granted last.
    pub fn known(&self, mac: Mac) -> Option<Ipv4Addr> {
        self.by_mac.get(&mac).map(|lease| lease.address)
    }

    /// Chooses an address: the client's own, the wished one, one that nobody ever had, the one that has been
    /// free for longest, or for an enrolled client one that was only offered to a stranger. `None` when the
    /// pool is exhausted.
    pub fn offer(
        &mut self,
        pool: Pool,
        mac: Mac,
        wish: Option<Ipv4Addr>,
        enrolled: impl Fn(Mac) -> bool,
        now_ms: i64,
    ) -> Option<Ipv4Addr> {
        if let Some(lease) = self.by_mac.get_mut(&mac) {
            lease.until_ms = lease.until_ms.max(now_ms.saturating_add(OFFER_MS));
            return Some(lease.address);
        }
        self.quarantine.retain(|_, until| now_ms < *until);
        let unused =
            |address: &Ipv4Addr| !self.owner.contains_key(address) && !self.quarantine.contains_key(address);
        let address = wish
            .filter(|address| pool.contains(*address) && unused(address))
            .or_else(|| pool.addresses().find(unused))
            .or_else(|| self.take_first(|_, lease| lease.until_ms <= now_ms))
            .or_else(|| {
                let stranger = |mac, lease: &Lease| !lease.granted && !enrolled(mac);
                enrolled(mac).then(|| self.take_first(stranger)).flatten()
            })?;
        self.owner.insert(address, mac);
        let lease = Lease { address, until_ms: now_ms.saturating_add(OFFER_MS), granted: false };
        self.by_mac.insert(mac, lease);
        Some(address)
    }

    /// Takes away the lease that ends first. Among offers, that is the one asked for longest ago.
    fn take_first(&mut self, among: impl Fn(Mac, &Lease) -> bool) -> Option<Ipv4Addr> {
        let among = self.by_mac.iter().filter(|(mac, lease)| among(**mac, lease));
        let (&mac, &Lease { address, .. }) = among.min_by_key(|(_, lease)| lease.until_ms)?;
        self.by_mac.remove(&mac);
        self.owner.remove(&address);
        Some(address)
    }

    /// The client takes what it was offered, or renews. It counts from when it sent its request (RFC 2131
    /// section 4.4.1), which is before we count.
    pub fn grant(&mut self, mac: Mac, lease_s: u32, now_ms: i64) {
        if let Some(lease) = self.by_mac.get_mut(&mac) {
            lease.granted = true;
            lease.until_ms = until(now_ms, lease_s);
        }
    }

    /// The client gives its address back, yet gets it again if it returns in time. Returns whether it was
    /// granted one that was still its own.
    pub fn release(&mut self, mac: Mac, now_ms: i64) -> bool {
        let Some(lease) = self.by_mac.get_mut(&mac) else { return false };
        let was_held = lease.granted && now_ms < lease.until_ms;
        lease.until_ms = lease.until_ms.min(now_ms);
        was_held
    }

    /// The client found somebody else at the address it was given. Returns whether it was granted one.
    pub fn decline(&mut self, pool: Pool, mac: Mac, now_ms: i64) -> bool {
        let Some(lease) = self.by_mac.remove(&mac) else { return false };
        self.owner.remove(&lease.address);
        while self.quarantine.len() >= pool.max_quarantine() {
            let oldest = self.quarantine.iter().min_by_key(|(_, until)| **until);
            let Some((&address, _)) = oldest else { break };
            self.quarantine.remove(&address);
        }
        self.quarantine.insert(lease.address, now_ms.saturating_add(QUARANTINE_MS));
        lease.granted
    }

    /// Granted leases as text for a file, one `mac address until_ms` a line.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for (mac, lease) in self.by_mac.iter().filter(|(_, lease)| lease.granted) {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{mac} {} {}", lease.address, lease.until_ms);
        }
        text
    }

    /// Takes leases from [`Leases::to_text`]. Lines that no longer fit (another pool, half a line) are skipped
    /// and counted: their clients ask again and get another address.
    pub fn read_text(pool: Pool, text: &str) -> (Self, usize) {
        let mut leases = Self::default();
        let mut skipped = 0;
        let mut seen = BTreeSet::new();
        for line in text.lines() {
            match parse_line(line) {
                Some((mac, lease)) if pool.contains(lease.address) && seen.insert(lease.address) => {
                    if let Some(old) = leases.by_mac.insert(mac, lease) {
                        leases.owner.remove(&old.address);
                    }
                    leases.owner.insert(lease.address, mac);
                }
                _ => skipped += 1,
            }
        }
        (leases, skipped)
    }
}

fn until(now_ms: i64, lease_s: u32) -> i64 {
    now_ms.saturating_add(i64::from(lease_s) * 1000)
}

fn parse_line(line: &str) -> Option<(Mac, Lease)> {
    let mut words = line.split(' ');
    let mac = Mac::from_str(words.next()?).ok()?;
    let address = words.next()?.parse().ok()?;
    let until_ms = words.next()?.parse().ok()?;
    words.next().is_none().then_some((mac, Lease { address, until_ms, granted: true }))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn pool(first: u8, last: u8) -> Pool {
        Pool::new(Ipv4Addr::new(10, 0, 0, first), Ipv4Addr::new(10, 0, 0, last)).unwrap()
    }

    fn mac(n: u8) -> Mac {
        Mac([2, 0, 0, 0, 0, n])
    }

    fn ip(n: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, 0, n)
    }

    fn nobody(_: Mac) -> bool {
        false
    }

    #[test]
    fn pools_are_bounded() {
        assert_eq!(Pool::new(ip(9), ip(8)), Err(PoolError::Empty(ip(9), ip(8))));
        let far = Ipv4Addr::new(10, 0, 16, 0);
        assert_eq!(Pool::new(ip(0), far), Err(PoolError::TooLarge(ip(0), far)));
        assert!(Pool::new(ip(0), Ipv4Addr::new(10, 0, 15, 255)).is_ok());
    }

    #[test]
    fn an_exhausted_pool_reuses_the_longest_free_address() {
        let mut leases = Leases::default();
        assert_eq!(leases.offer(pool(10, 11), mac(1), None, nobody, 0), Some(ip(10)));
        leases.grant(mac(1), 100, 0);
        assert_eq!(
            leases.offer(pool(10, 11), mac(2), Some(ip(10)), nobody, 0),
            Some(ip(11)),
            "a taken address is no wish"
        );
        assert_eq!(leases.offer(pool(10, 11), mac(3), None, nobody, OFFER_MS - 1), None);
        assert_eq!(leases.offer(pool(10, 11), mac(3), None, nobody, OFFER_MS), Some(ip(11)), "an offer ends");
        assert_eq!(leases.granted(mac(1), 99_999), Some(ip(10)));
        assert_eq!(leases.granted(mac(1), 100_000), None);
        assert_eq!(
            leases.offer(pool(10, 11), mac(1), None, nobody, 100_000),
            Some(ip(10)),
            "a late client gets its own again"
        );
    }

    #[test]
    fn released_and_declined_addresses() {
        let mut leases = Leases::default();
        leases.offer(pool(10, 11), mac(1), None, nobody, 0);
        leases.grant(mac(1), 100, 0);
        leases.release(mac(1), 5);
        assert_eq!(leases.granted(mac(1), 5), None);
        assert_eq!(leases.offer(pool(10, 11), mac(1), None, nobody, 6), Some(ip(10)));
        leases.decline(pool(10, 11), mac(1), 7);
        assert_eq!(leases.offer(pool(10, 11), mac(1), None, nobody, 8), Some(ip(11)));
        assert_eq!(leases.offer(pool(10, 11), mac(2), None, nobody, 9), None, "quarantined");
        assert_eq!(leases.offer(pool(10, 11), mac(2), None, nobody, 7 + QUARANTINE_MS), Some(ip(10)));
    }

    #[test]
    fn an_enrolled_machine_takes_the_oldest_offer_of_a_stranger() {
        let enrolled = |mac: Mac| mac.0[5] >= 100;
        let pool = pool(10, 13);
        let mut leases = Leases::default();
        let offer = |leases: &mut Leases, n, now| leases.offer(pool, mac(n), None, enrolled, now);
        for (n, now) in [(100, 0), (1, 1), (2, 2), (3, 3)] {
            assert!(offer(&mut leases, n, now).is_some());
        }
        leases.grant(mac(1), 3600, 4);
        assert_eq!(offer(&mut leases, 2, 5), Some(ip(12)), "asked again, so it is younger than that of 3");

        assert_eq!(offer(&mut leases, 4, 6), None, "a stranger takes nothing");
        assert_eq!(offer(&mut leases, 101, 6), Some(ip(13)), "that of 3");
        assert_eq!(leases.known(mac(3)), None);
        assert_eq!(offer(&mut leases, 102, 7), Some(ip(12)), "that of 2");
        assert_eq!(offer(&mut leases, 103, 8), None, "what is leased or offered to enrolled machines stays");
        assert_eq!(leases.granted(mac(1), 8), Some(ip(11)));
        assert_eq!(offer(&mut leases, 100, 8), Some(ip(10)));
    }

    #[test]
    fn a_stranger_cannot_empty_the_pool_by_declining() {
        let pool = pool(10, 17); // 8 addresses, so 2 in quarantine
        let mut leases = Leases::default();
        for (n, now) in [(1, 0), (2, 1), (3, 2)] {
            let address = leases.offer(pool, mac(n), None, nobody, now);
            assert_eq!(address, Some(ip(9 + n)));
            leases.grant(mac(n), 3600, now);
            leases.decline(pool, mac(n), now);
        }
        assert_eq!(leases.offer(pool, mac(4), None, nobody, 3), Some(ip(10)), "the oldest is free again");
        assert_eq!(leases.offer(pool, mac(5), Some(ip(11)), nobody, 3), Some(ip(13)), "still in quarantine");
        assert_eq!(leases.offer(pool, mac(6), Some(ip(12)), nobody, 3), Some(ip(14)), "still in quarantine");
        assert_eq!(leases.offer(pool, mac(7), Some(ip(11)), nobody, 1 + QUARANTINE_MS), Some(ip(11)));
    }

    #[test]
    fn the_quarantine_is_a_quarter_of_the_pool() {
        for (last, most) in [(10, 1), (12, 1), (13, 1), (16, 1), (17, 2), (109, 25)] {
            assert_eq!(pool(10, last).max_quarantine(), most, "{last}");
        }
    }

    #[test]
    fn setting_the_clock_does_not_end_a_lease() {
        let start = Instant::now();
        let at = |mono_s, unix_ms| Now { unix_ms, mono: start + Duration::from_secs(mono_s) };
        let mut leases = Leases::default();
        assert!(!leases.follow(at(0, 0), 3600));
        leases.offer(pool(10, 10), mac(1), None, nobody, 0);
        leases.grant(mac(1), 3600, 0);
        // After 100 s the clock is set from 1970 to a later day: 3500 s are left.
        let day = 1_764_547_200_000;
        assert!(leases.follow(at(100, day), 3600));
        assert_eq!(leases.to_text(), format!("{} 10.0.0.10 {}\n", mac(1), day + 3_500_000));
        assert_eq!(leases.offer(pool(10, 10), mac(2), None, nobody, day + 3_499_999), None);
        // And back after another 100 s: 3400 s are left.
        assert!(leases.follow(at(200, 0), 3600));
        assert_eq!(leases.granted(mac(1), 3_399_999), Some(ip(10)));
        assert_eq!(leases.granted(mac(1), 3_400_000), None);
    }

    #[test]
    fn a_clock_that_was_behind_at_the_start_keeps_no_lease_for_ever() {
        let day = 1_764_547_200_000;
        let text = format!("{} 10.0.0.10 {}\n", mac(1), day + 3_600_000);
        let (mut leases, _) = Leases::read_text(pool(10, 10), &text);
        let mono = Instant::now();
        leases.follow(Now { unix_ms: 0, mono }, 3600);
        leases.follow(Now { unix_ms: day, mono }, 3600);
        assert_eq!(leases.to_text(), text, "an hour is left, as before");
    }

    #[test]
    fn leases_survive_as_text() {
        let mut leases = Leases::default();
        for n in 1..=3 {
            leases.offer(pool(10, 20), mac(n), None, nobody, 0);
        }
        leases.grant(mac(1), 60, 0);
        leases.grant(mac(2), 60, 5);
        let text = leases.to_text();
        assert_eq!(text, "02:00:00:00:00:01 10.0.0.10 60000\n02:00:00:00:00:02 10.0.0.11 60005\n");

        let (read, skipped) = Leases::read_text(pool(10, 20), &text);
        assert_eq!((read.granted(mac(2), 0), skipped), (Some(ip(11)), 0));
        let odd = "02:00:00:00:00:01 10.0.0.99 5\nx\n02:00:00:00:00:01 10.0.0.10\n\
                   02:00:00:00:00:01 10.0.0.12 5\n02:00:00:00:00:02 10.0.0.12 5\n";
        let (read, skipped) = Leases::read_text(pool(10, 20), odd);
        assert_eq!((read.by_mac.len(), read.owner.len(), skipped), (1, 1, 4));
    }
}
