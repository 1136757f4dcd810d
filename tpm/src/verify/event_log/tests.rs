use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{Event, EventLog, EventLogError, MAX_EVENT_LOG};

const SHA1: u16 = 0x0004;
const SHA256: u16 = 0x000b;
const LOGS: [(&str, &[u8]); 5] = [
    ("rhel8-uefi.bin", include_bytes!("../../../tests/vectors/rhel8-uefi.bin")),
    (
        "ubuntu-2104-no-secure-boot.bin",
        include_bytes!("../../../tests/vectors/ubuntu-2104-no-secure-boot.bin"),
    ),
    ("arch-linux-workstation.bin", include_bytes!("../../../tests/vectors/arch-linux-workstation.bin")),
    ("debian-10.bin", include_bytes!("../../../tests/vectors/debian-10.bin")),
    ("eventlogwithsp800155.bin", include_bytes!("../../../tests/vectors/eventlogwithsp800155.bin")),
];
const PCRS: &str = include_str!("../../../tests/vectors/pcrs.json");

/// Logs of real machines with the PCR values that they had. Among them are EV_NO_ACTION events (SP 800-155)
/// and startup localities, on which common tools fail.
#[test]
fn t14_real_logs_replay_to_their_pcrs() {
    let expected: BTreeMap<String, BTreeMap<String, BTreeMap<String, String>>> =
        serde_json::from_str(PCRS).unwrap();
    assert_eq!(expected.len(), LOGS.len());
    let mut compared = 0;
    for (name, bytes) in LOGS {
        let log = EventLog::parse(bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        for (bank, pcrs) in &expected[name] {
            let bank_id = if bank == "sha1" { SHA1 } else { SHA256 };
            let replayed = log.replay(bank_id).unwrap_or_else(|error| panic!("{name}: {error}"));
            for (pcr, value) in pcrs {
                let index: usize = pcr.parse().unwrap();
                assert_eq!(hex::encode(&replayed[index]), *value, "{name}, {bank}, PCR {pcr}");
                compared += 1;
            }
        }
    }
    // 11 and 11, 11 and 11, 9 and 9, 8, 11.
    assert_eq!(compared, 81);
}

fn event(pcr: u32, kind: u32, digest: u8, data: &[u8]) -> Event {
    Event { pcr, kind, digests: vec![(SHA256, vec![digest; 32])], data: data.to_vec() }
}

fn log(events: Vec<Event>) -> EventLog {
    EventLog { banks: vec![(SHA256, 32)], events }
}

#[test]
fn t14_locality_sets_the_first_value_of_pcr_0_and_no_action_extends_nothing() {
    let locality = |value: u8| event(0, 3, 0xaa, &[&b"StartupLocality\0"[..], &[value]].concat());
    let replayed = log(vec![locality(3), event(1, 3, 0xaa, b"SP800-155 Event")]).replay(SHA256).unwrap();
    assert_eq!(replayed[0], [&[0; 31][..], &[3]].concat());
    assert_eq!(replayed[1], [0; 32]);
    assert_eq!(replayed[17], [0xff; 32]);
    assert_eq!(replayed[22], [0xff; 32]);
    assert_eq!(replayed[23], [0; 32]);

    let late = log(vec![event(0, 8, 1, b""), locality(3)]).replay(SHA256);
    assert_eq!(late, Err(EventLogError::StartupLocality));
    assert_eq!(log(vec![locality(5)]).replay(SHA256), Err(EventLogError::StartupLocality));
}

#[test]
fn a_pcr_or_bank_that_does_not_exist_is_named() {
    assert_eq!(log(vec![event(24, 8, 1, b"")]).replay(SHA256), Err(EventLogError::Pcr(24)));
    assert_eq!(log(vec![]).replay(SHA1), Err(EventLogError::Bank(SHA1)));
    // An event without a digest for the bank leaves its PCR unknown.
    let partial = Event { digests: vec![], ..event(0, 8, 1, b"") };
    assert_eq!(log(vec![partial]).replay(SHA256), Err(EventLogError::Bank(SHA256)));
}

#[test]
fn a_tail_of_fill_ends_the_log_and_a_cut_is_an_error() {
    let whole = LOGS[0].1;
    let events = EventLog::parse(whole).unwrap().events.len();
    for fill in [0x00, 0xff] {
        let padded = [whole, &vec![fill; 4096][..]].concat();
        assert_eq!(EventLog::parse(&padded).unwrap().events.len(), events);
    }
    assert!(matches!(EventLog::parse(&whole[..whole.len() - 1]), Err(EventLogError::Truncated(_))));
    assert!(matches!(EventLog::parse(&[]), Err(EventLogError::Truncated(0))));
    assert_eq!(EventLog::parse(&vec![0; MAX_EVENT_LOG + 1]), Err(EventLogError::TooLong(MAX_EVENT_LOG + 1)));
}

#[test]
fn lengths_from_the_log_are_not_believed() {
    // Data of 4 GiB in the first event.
    let mut first = vec![0; 28];
    first.extend_from_slice(&[0xff; 4]);
    assert_eq!(EventLog::parse(&first), Err(EventLogError::Truncated(0)));

    // The real header, then an event with 2^32 - 1 digests, with one of an unknown bank, with one twice.
    let header = &LOGS[2].1[..32 + 0x25];
    let with = |event: &[u8]| EventLog::parse(&[header, event].concat());
    let start = [0, 0, 0, 0, 8, 0, 0, 0];
    let many = with(&[&start[..], &[0xff; 4]].concat());
    assert!(matches!(many, Err(EventLogError::Digests { offset: 69, .. })), "{many:?}");
    let unknown = with(&[&start[..], &[1, 0, 0, 0, 0x0d, 0]].concat());
    assert!(matches!(unknown, Err(EventLogError::Digests { .. })), "{unknown:?}");
    let sha1 = [&[4, 0][..], &[7; 20]].concat();
    let twice = with(&[&start[..], &[2, 0, 0, 0], &sha1, &sha1, &[0; 4]].concat());
    assert!(matches!(twice, Err(EventLogError::Digests { .. })), "{twice:?}");
}

#[test]
fn a_header_that_lies_about_digest_lengths_is_refused() {
    let log = LOGS[2].1;
    // Offset of the first bank's digest length: event header, signature, versions, count, algorithm.
    let at = 32 + 16 + 8 + 4 + 2;
    let mut changed = log.to_vec();
    changed[at] = 21;
    assert!(matches!(EventLog::parse(&changed), Err(EventLogError::Header(_))));
    let mut none = log.to_vec();
    none[32 + 16 + 8] = 0;
    assert!(matches!(EventLog::parse(&none), Err(EventLogError::Header(_))));
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
        let _ = EventLog::parse(&bytes);
    }

    #[test]
    fn any_change_is_read_or_refused(at in 0usize..4096, value: u8) {
        let mut log = LOGS[2].1.to_vec();
        log[at] = value;
        if let Ok(log) = EventLog::parse(&log) {
            let _ = log.replay(SHA256);
        }
    }
}
