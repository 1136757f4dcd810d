//! The boot table: what each machine is served. Pure; [`crate::keeper`] stores and publishes it.
//!
//! ```text
//!             boot.prepare                      script handed out
//!  (nothing) ──────────────▶ ramdisk, with token ─────────────────▶ ramdisk, token spent
//!      ▲                         │         ▲                             │      │
//!      │                         │         └──── boot.prepare ───────────┘      │
//!      └──────── expires ────────┴──────────────── expires ─────────────────────┘
//!
//!  (any) ── boot.local ──▶ local, which does not expire ── boot.prepare ──▶ ramdisk, with token
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Instant,
};

use ironwright_proto::ids::{Digest, Mac, Name};
use ironwright_pxe::{Now, Table as Snapshot};
use serde::{Deserialize, Serialize};

/// Entries of one site.
pub(crate) const MAX_ENTRIES: usize = 10_000;
/// Version of the stored form.
const VERSION: u32 = 1;

/// Why an entry cannot be set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TableError {
    /// See [`MAX_ENTRIES`].
    #[error("the boot table already has {MAX_ENTRIES} entries")]
    Full,
    /// The stored form.
    #[error("the stored boot table has version {0}; this program writes {VERSION}")]
    Version(u32),
}

/// A one-use join token. Shown nowhere but in the script that hands it out.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Token(pub(crate) String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// What a machine is served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "boot", rename_all = "snake_case")]
pub(crate) enum Entry {
    /// Its own disk.
    Local,
    /// Our ramdisk.
    Ramdisk(Ramdisk),
}

/// A boot into our ramdisk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ramdisk {
    /// The machine that control takes the MAC for.
    pub(crate) machine: Name,
    /// Not yet handed out.
    pub(crate) token: Option<Token>,
    /// End of the entry, Unix milliseconds.
    pub(crate) expires_ms: i64,
    /// Control, as the machine reaches it.
    pub(crate) control_url: String,
    /// Pin of control's CA.
    pub(crate) ca_pin: Digest,
    /// More words for the kernel.
    pub(crate) extra_cmdline: String,
    /// Blobs that the cache keeps for this machine.
    pub(crate) artifacts: Vec<Digest>,
}

/// What a machine that asks for its script is to get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer<'a> {
    /// 404.
    Unknown,
    /// The script that leaves iPXE.
    Local,
    /// 503: the lease is not held.
    NoLease,
    /// The script that loads the ramdisk, under this lease epoch. Its token, if any, has to be spent first.
    Ramdisk(&'a Ramdisk, u64),
}

/// Entries by MAC.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct BootTable(BTreeMap<Mac, Entry>);

#[derive(Serialize, Deserialize)]
struct Stored {
    version: u32,
    entries: BTreeMap<Mac, Entry>,
}

impl BootTable {
    /// Sets or replaces an entry; expired ones make room.
    pub(crate) fn set(&mut self, mac: Mac, entry: Entry, now_ms: i64) -> Result<(), TableError> {
        if !self.0.contains_key(&mac) && self.0.len() >= MAX_ENTRIES {
            self.0.retain(|_, entry| !entry.expired(now_ms));
            if self.0.len() >= MAX_ENTRIES {
                return Err(TableError::Full);
            }
        }
        self.0.insert(mac, entry);
        Ok(())
    }

    /// Decides what a machine gets now, given the epoch of the lease where it is held.
    pub(crate) fn ask(&self, mac: Mac, lease_epoch: Option<u64>, now_ms: i64) -> Answer<'_> {
        match (self.live(mac, now_ms), lease_epoch) {
            (None, _) => Answer::Unknown,
            (Some(Entry::Local), _) => Answer::Local,
            (Some(Entry::Ramdisk(_)), None) => Answer::NoLease,
            (Some(Entry::Ramdisk(ramdisk)), Some(epoch)) => Answer::Ramdisk(ramdisk, epoch),
        }
    }

    /// Takes the token out of an entry.
    pub(crate) fn spend(&mut self, mac: Mac) {
        if let Some(Entry::Ramdisk(ramdisk)) = self.0.get_mut(&mac) {
            ramdisk.token = None;
        }
    }

    /// Does the machine have an entry now?
    pub(crate) fn knows(&self, mac: Mac, now: Now) -> bool {
        self.live(mac, now.unix_ms).is_some()
    }

    /// Ramdisk entries whose token was handed out.
    pub(crate) fn spent(&self, now_ms: i64) -> impl Iterator<Item = (Mac, &Ramdisk)> {
        self.0.iter().filter_map(move |(mac, entry)| match entry {
            Entry::Ramdisk(ramdisk) if ramdisk.token.is_none() && !entry.expired(now_ms) => {
                Some((*mac, ramdisk))
            }
            _ => None,
        })
    }

    /// Blobs of all entries, also of those that have expired: a machine may still be reading.
    pub(crate) fn artifacts(&self) -> BTreeSet<Digest> {
        let ramdisks = self.0.values().filter_map(|entry| match entry {
            Entry::Ramdisk(ramdisk) => Some(&ramdisk.artifacts),
            Entry::Local => None,
        });
        ramdisks.flatten().copied().collect()
    }

    fn live(&self, mac: Mac, now_ms: i64) -> Option<&Entry> {
        self.0.get(&mac).filter(|entry| !entry.expired(now_ms))
    }

    /// What DHCP needs to know.
    pub(crate) fn snapshot(&self, lease_until: Option<Instant>) -> Snapshot {
        let (mut ramdisk, mut local) = (BTreeMap::new(), BTreeSet::new());
        for (mac, entry) in &self.0 {
            match entry {
                Entry::Local => {
                    local.insert(*mac);
                }
                Entry::Ramdisk(entry) => {
                    ramdisk.insert(*mac, entry.expires_ms);
                }
            }
        }
        Snapshot { lease_until, ramdisk, local }
    }

    /// The stored form.
    pub(crate) fn to_json(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec_pretty(&Stored { version: VERSION, entries: self.0.clone() })
    }

    /// Reads the stored form.
    pub(crate) fn from_json(text: &str) -> Result<Result<Self, TableError>, serde_json::Error> {
        let stored: Stored = serde_json::from_str(text)?;
        let known = stored.version == VERSION;
        Ok(if known { Ok(Self(stored.entries)) } else { Err(TableError::Version(stored.version)) })
    }
}

impl Entry {
    fn expired(&self, now_ms: i64) -> bool {
        matches!(self, Self::Ramdisk(ramdisk) if ramdisk.expires_ms <= now_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = Mac([0x52, 0x54, 0, 0, 0, 1]);

    fn ramdisk(expires_ms: i64) -> Ramdisk {
        Ramdisk {
            machine: "web-1".parse().unwrap(),
            token: Some(Token("s3cret".into())),
            expires_ms,
            control_url: "https://c:8443".into(),
            ca_pin: Digest([1; 32]),
            extra_cmdline: String::new(),
            artifacts: vec![Digest([2; 32])],
        }
    }

    #[test]
    fn the_answer_follows_entry_and_lease() {
        let mut table = BootTable::default();
        for lease in [None, Some(3)] {
            assert_eq!(table.ask(MAC, lease, 0), Answer::Unknown);
        }
        table.set(MAC, Entry::Ramdisk(ramdisk(100)), 0).unwrap();
        assert_eq!(table.ask(MAC, None, 99), Answer::NoLease);
        assert_eq!(table.ask(MAC, Some(3), 99), Answer::Ramdisk(&ramdisk(100), 3));
        for lease in [None, Some(3)] {
            assert_eq!(table.ask(MAC, lease, 100), Answer::Unknown, "expired");
        }
        table.set(MAC, Entry::Local, 0).unwrap();
        for lease in [None, Some(3)] {
            assert_eq!(table.ask(MAC, lease, i64::MAX), Answer::Local);
        }
    }

    #[test]
    fn a_token_is_spent_once_and_refilled_by_a_new_entry() {
        let mut table = BootTable::default();
        table.set(MAC, Entry::Ramdisk(ramdisk(100)), 0).unwrap();
        assert_eq!(table.spent(0).count(), 0);
        table.spend(MAC);
        let Answer::Ramdisk(entry, 3) = table.ask(MAC, Some(3), 0) else { panic!() };
        assert_eq!(entry.token, None);
        assert_eq!(table.spent(0).map(|(mac, _)| mac).collect::<Vec<_>>(), [MAC]);
        assert_eq!(table.spent(100).count(), 0);
        table.set(MAC, Entry::Ramdisk(ramdisk(100)), 0).unwrap();
        assert_eq!(table.spent(0).count(), 0);
    }

    #[test]
    fn what_is_stored_is_read_back_and_debug_shows_no_token() {
        let mut table = BootTable::default();
        table.set(MAC, Entry::Ramdisk(ramdisk(100)), 0).unwrap();
        table.set(Mac([2; 6]), Entry::Local, 0).unwrap();
        let json = String::from_utf8(table.to_json().unwrap()).unwrap();
        assert_eq!(BootTable::from_json(&json).unwrap(), Ok(table.clone()));
        let newer = json.replacen("\"version\": 1", "\"version\": 2", 1);
        assert_eq!(BootTable::from_json(&newer).unwrap(), Err(TableError::Version(2)));
        assert!(BootTable::from_json("{}").is_err());
        assert!(!format!("{table:?}").contains("s3cret"));
    }

    #[test]
    fn a_full_table_makes_room_from_expired_entries_only() {
        let mac = |n: usize| {
            let [.., a, b] = n.to_be_bytes();
            Mac([2, 0, 0, 0, a, b])
        };
        let mut table = BootTable::default();
        table.set(mac(0), Entry::Ramdisk(ramdisk(100)), 0).unwrap();
        for n in 1..MAX_ENTRIES {
            table.set(mac(n), Entry::Local, 0).unwrap();
        }
        assert_eq!(table.set(mac(MAX_ENTRIES), Entry::Local, 99), Err(TableError::Full));
        table.set(mac(1), Entry::Local, 99).expect("replacing needs no room");
        table.set(mac(MAX_ENTRIES), Entry::Local, 100).unwrap();
    }
}
