//! The site lease: the right to answer with boot options.

use std::time::{Duration, Instant};

use ironwright_agent::link::HeldLease;
use ironwright_proto::ids::Name;

/// A lease that control gave us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SiteLease {
    /// Grows when the holder changes; part of every assertion.
    pub(crate) epoch: u64,
    /// Not held from here on. Counted from when we asked, so that control's end is never before ours.
    pub(crate) until: Instant,
}

impl SiteLease {
    /// Reads what the session heard; epoch 0, or another site's lease, is none.
    pub(crate) fn of(heard: &HeldLease, site: &Name) -> Option<Self> {
        let lease = &heard.lease;
        if lease.epoch == 0 || lease.site != site.as_str() {
            return None;
        }
        let ttl = Duration::from_millis(lease.ttl_ms.into());
        Some(Self { epoch: lease.epoch, until: heard.asked.checked_add(ttl)? })
    }

    /// The epoch, while the lease is held.
    pub(crate) fn epoch_at(self, now: Instant) -> Option<u64> {
        (now < self.until).then_some(self.epoch)
    }
}

#[cfg(test)]
mod tests {
    use ironwright_proto::wire::Lease;

    use super::*;

    #[test]
    fn held_from_asking_until_the_ttl_is_over() {
        let (site, asked): (Name, _) = ("lab".parse().unwrap(), Instant::now());
        let heard = |site: &str, epoch, ttl_ms| HeldLease {
            lease: Lease { site: site.into(), epoch, ttl_ms },
            asked,
        };
        let lease = SiteLease::of(&heard("lab", 7, 30_000), &site).unwrap();
        let at = |ms| lease.epoch_at(asked + Duration::from_millis(ms));
        assert_eq!((at(0), at(29_999), at(30_000)), (Some(7), Some(7), None));
        assert_eq!(SiteLease::of(&heard("lab", 0, 30_000), &site), None);
        assert_eq!(SiteLease::of(&heard("other", 7, 30_000), &site), None);
    }
}
