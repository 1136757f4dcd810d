//! The boot table as the DHCP decisions see it: an immutable snapshot that the site publishes.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use ironwright_proto::ids::Mac;

use crate::now::Now;

/// Who is given boot options. A snapshot stays right without being published again: both ends of time
/// that matter are in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    /// End of the site lease; `None` where it is not held.
    pub lease_until: Option<Instant>,
    /// Machines that boot our ramdisk while the lease is held, and until when (Unix milliseconds).
    pub ramdisk: BTreeMap<Mac, i64>,
    /// Machines that boot from their disk. They are told so even without a lease.
    pub local: BTreeSet<Mac>,
}

impl Table {
    /// Is this machine enrolled here, whether or not it gets boot options now?
    pub fn holds(&self, mac: Mac) -> bool {
        self.local.contains(&mac) || self.ramdisk.contains_key(&mac)
    }

    /// Does this machine get boot options now?
    pub fn boots(&self, mac: Mac, now: Now) -> bool {
        let held = self.lease_until.is_some_and(|until| now.mono < until);
        self.local.contains(&mac)
            || (held && self.ramdisk.get(&mac).is_some_and(|&expires| now.unix_ms < expires))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn ramdisk_needs_lease_and_time_local_needs_neither() {
        let (a, b, c) = (Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 3]));
        let now = Now { unix_ms: 1000, mono: Instant::now() };
        let mut table = Table { lease_until: Some(now.mono + Duration::from_secs(1)), ..Table::default() };
        table.ramdisk.insert(a, 1001);
        table.local.insert(b);
        assert_eq!([a, b, c].map(|mac| table.boots(mac, now)), [true, true, false]);

        let entry_expired = Now { unix_ms: 1001, ..now };
        assert!(!table.boots(a, entry_expired));
        assert_eq!([a, b, c].map(|mac| table.holds(mac)), [true, true, false], "time does not matter");
        let lease_expired = Now { mono: now.mono + Duration::from_secs(1), ..now };
        assert_eq!([a, b].map(|mac| table.boots(mac, lease_expired)), [false, true]);
        table.lease_until = None;
        assert_eq!([a, b].map(|mac| table.boots(mac, now)), [false, true]);
    }
}
