//! Which requests may start a transfer: so many in all, few of one client, one of one port.
//!
//! ```text
//!            admit: room                            admit: the same port asks again
//!  (no slot) ───────────▶ held by (address, port) ─┬──────────────────────────────▶ held by the new transfer;
//!      ▲                            │              │                                the old one is stopped
//!      └────────────────────────────┘ ended        └ admit: another port of a client that holds
//!                                                    MAX_PER_CLIENT, or MAX_TRANSFERS are held: none
//! ```

use std::{collections::BTreeMap, net::SocketAddr};

/// Transfers at one time.
pub const MAX_TRANSFERS: usize = 128;
/// Transfers of one IP address at one time. Firmware runs one, and leaves another behind where it starts
/// over. Machines behind one relay agent have addresses of their own.
pub const MAX_PER_CLIENT: usize = 4;

/// One transfer, told from the ones before it at the same port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id(u64);

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admit {
    /// Start a transfer.
    Start(Id),
    /// Start a transfer and stop the old one: the client asks again, so it does not follow that one (a
    /// transfer is known by its two ports, RFC 1350 section 4).
    Replace {
        /// The transfer to stop.
        old: Id,
        /// The transfer to start.
        new: Id,
    },
    /// The client has [`MAX_PER_CLIENT`].
    ClientFull,
    /// There are [`MAX_TRANSFERS`].
    Full,
}

/// Who holds which slot. At most [`MAX_TRANSFERS`] entries.
#[derive(Debug, Default)]
pub struct Slots {
    held: BTreeMap<SocketAddr, Id>,
    next: u64,
}

impl Slots {
    /// Decides about a request that can be served. One that is refused changes nothing.
    pub fn admit(&mut self, peer: SocketAddr) -> Admit {
        let old = self.held.get(&peer).copied();
        if old.is_none() {
            if self.held.keys().filter(|held| held.ip() == peer.ip()).count() >= MAX_PER_CLIENT {
                return Admit::ClientFull;
            }
            if self.held.len() >= MAX_TRANSFERS {
                return Admit::Full;
            }
        }
        let new = Id(self.next);
        self.next += 1;
        self.held.insert(peer, new);
        old.map_or(Admit::Start(new), |old| Admit::Replace { old, new })
    }

    /// A transfer is over. One that was replaced gives nothing back: its successor has the slot.
    pub fn ended(&mut self, peer: SocketAddr, id: Id) {
        if self.held.get(&peer) == Some(&id) {
            self.held.remove(&peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(client: u8, port: u16) -> SocketAddr {
        ([10, 0, 0, client], port).into()
    }

    fn start(slots: &mut Slots, peer: SocketAddr) -> Id {
        match slots.admit(peer) {
            Admit::Start(id) => id,
            other => panic!("{peer}: {other:?}"),
        }
    }

    #[test]
    fn a_client_has_four_and_the_others_are_not_touched() {
        let mut slots = Slots::default();
        let ids = [1, 2, 3, 4].map(|port| start(&mut slots, peer(1, port)));
        assert_eq!(slots.admit(peer(1, 5)), Admit::ClientFull);
        start(&mut slots, peer(2, 5));
        slots.ended(peer(1, 2), ids[1]);
        start(&mut slots, peer(1, 5));
        assert_eq!(slots.admit(peer(1, 2)), Admit::ClientFull);
    }

    #[test]
    fn thirty_two_clients_of_four_fill_all_and_an_end_makes_room() {
        let mut slots = Slots::default();
        let mut first = None;
        for client in 0..32 {
            for port in 0..4 {
                let id = start(&mut slots, peer(client, port));
                first.get_or_insert(id);
            }
        }
        assert_eq!(slots.admit(peer(99, 0)), Admit::Full);
        assert_eq!(slots.admit(peer(0, 9)), Admit::ClientFull);
        slots.ended(peer(0, 0), first.unwrap());
        start(&mut slots, peer(99, 0));
        assert_eq!(slots.admit(peer(98, 0)), Admit::Full);
    }

    #[test]
    fn the_same_port_replaces_its_transfer_even_when_all_is_full() {
        let mut slots = Slots::default();
        let old = start(&mut slots, peer(1, 1));
        for port in 2..=4 {
            start(&mut slots, peer(1, port));
        }
        let Admit::Replace { old: replaced, new } = slots.admit(peer(1, 1)) else { panic!("not replaced") };
        assert_eq!(replaced, old);
        assert_ne!(new, old);
        // The old one ends late: its slot is not free, the new transfer has it.
        slots.ended(peer(1, 1), old);
        assert_eq!(slots.admit(peer(1, 5)), Admit::ClientFull);
        slots.ended(peer(1, 1), new);
        start(&mut slots, peer(1, 5));
    }

    #[test]
    fn a_refused_request_replaces_nothing() {
        let mut slots = Slots::default();
        let ids = [1, 2, 3, 4].map(|port| start(&mut slots, peer(1, port)));
        for _ in 0..100 {
            assert_eq!(slots.admit(peer(1, 5)), Admit::ClientFull);
        }
        for (port, id) in (1..).zip(ids) {
            assert!(matches!(slots.admit(peer(1, port)), Admit::Replace { old, .. } if old == id));
        }
    }
}
