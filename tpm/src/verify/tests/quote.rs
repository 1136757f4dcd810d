use std::collections::BTreeMap;

use ironwright_proto::wire::JoinFinish;
use sha2::{Digest, Sha256};

use crate::{
    join,
    testing::soft_tpm::{SoftTpm, selection},
    verify::{
        AttestError, Attested, Clock, QuoteError, VerifyError, check_quote,
        event_log::{EventLogError, MAX_EVENT_LOG},
    },
};

const SHA256: u16 = 0x000b;
const EXTRA: [u8; 32] = [0xee; 32];
/// PCR 0 to 3.
const MASK: u32 = 0b1111;

fn values() -> [[u8; 32]; 4] {
    [[10; 32], [11; 32], [12; 32], [13; 32]]
}

fn check(tpm: &SoftTpm, finish: &JoinFinish) -> Result<Attested, QuoteError> {
    check_quote(&tpm.ak_pub(), &EXTRA, MASK, finish).map_err(|error| match error {
        VerifyError::Quote(error) => error,
        other => panic!("{other:?}"),
    })
}

#[test]
fn an_honest_quote_gives_pcrs_and_clock() {
    let tpm = SoftTpm::new(1);
    let attested = check(&tpm, &tpm.quote(&EXTRA, &selection(SHA256, MASK), &values())).unwrap();
    let expected: BTreeMap<u8, [u8; 32]> = (0..4).zip(values()).collect();
    assert_eq!(attested.pcrs, expected);
    let clock = Clock {
        clock_ms: 1000,
        reset_count: 7,
        restart_count: 0,
        safe: true,
        firmware_version: 0x2019_1023_0016_3636,
    };
    assert_eq!(attested.clock, clock);
    assert!(attested.log.is_none());
}

#[test]
fn t2_a_quote_of_another_join_is_refused() {
    let tpm = SoftTpm::new(1);
    let extra = |nonce: u8| join::quote_extra(&[1; 16], &[nonce; 32], &[2; 34], &[3; 34], &[4; 32]);
    let yesterday = tpm.quote(&extra(1), &selection(SHA256, MASK), &values());
    assert!(check_quote(&tpm.ak_pub(), &extra(1), MASK, &yesterday).is_ok());
    let error = check_quote(&tpm.ak_pub(), &extra(2), MASK, &yesterday).unwrap_err();
    assert!(matches!(error, VerifyError::Quote(QuoteError::Attest(AttestError::ExtraData))), "{error:?}");
    assert_eq!(error.code(), "proof_invalid");
}

#[test]
fn p6_every_part_of_a_join_is_in_the_quotes_extra_data() {
    let base = join::quote_extra(&[1; 16], &[2; 32], &[3; 34], &[4; 34], &[5; 32]);
    for other in [
        join::quote_extra(&[9; 16], &[2; 32], &[3; 34], &[4; 34], &[5; 32]),
        join::quote_extra(&[1; 16], &[9; 32], &[3; 34], &[4; 34], &[5; 32]),
        join::quote_extra(&[1; 16], &[2; 32], &[9; 34], &[4; 34], &[5; 32]),
        join::quote_extra(&[1; 16], &[2; 32], &[3; 34], &[9; 34], &[5; 32]),
        join::quote_extra(&[1; 16], &[2; 32], &[3; 34], &[4; 34], &[9; 32]),
    ] {
        assert_ne!(other, base);
    }
}

#[test]
fn t9_a_quote_by_another_key_or_over_other_bytes_is_refused() {
    let (tpm, other) = (SoftTpm::new(1), SoftTpm::new(2));
    let signature = Err(QuoteError::Attest(AttestError::Signature));
    let by_other = other.quote(&EXTRA, &selection(SHA256, MASK), &values());
    assert_eq!(check(&tpm, &by_other).map(|_| ()), signature);
    let good = tpm.quote(&EXTRA, &selection(SHA256, MASK), &values());
    for at in 0..good.quote_attest.len() {
        let mut changed = good.clone();
        changed.quote_attest[at] ^= 0x40;
        assert_eq!(check(&tpm, &changed).map(|_| ()), signature, "byte {at}");
    }
    for cut in 0..good.quote_sig.len() {
        let mut short = good.clone();
        short.quote_sig.truncate(cut);
        assert!(check(&tpm, &short).is_err(), "signature of {cut} bytes");
    }
}

#[test]
fn t11_a_certification_is_no_quote() {
    let tpm = SoftTpm::new(1);
    let mut finish = tpm.quote(&EXTRA, &selection(SHA256, MASK), &values());
    finish.quote_attest[5] = 0x17;
    finish.quote_sig = tpm.ak_sign(&finish.quote_attest);
    let error = check(&tpm, &finish).unwrap_err();
    assert!(
        error_chain(&error).contains("0x8017 in the field `type` where 0x8018"),
        "{}",
        error_chain(&error)
    );
}

#[test]
fn t12_any_other_selection_is_refused() {
    let tpm = SoftTpm::new(1);
    let three: [[u8; 32]; 3] = [[10; 32], [11; 32], [12; 32]];
    let two_banks = [&[0, 0, 0, 2][..], &selection(4, MASK)[4..], &selection(SHA256, MASK)[4..]].concat();
    let two_bytes = [0, 0, 0, 1, 0, 0x0b, 2, 0x0f, 0];
    for (selected, values) in [
        // A bank that is not allocated gives a valid quote over nothing.
        (selection(SHA256, 0), &[][..]),
        (selection(SHA256, 0), &values()[..]),
        (vec![0, 0, 0, 0], &values()[..]),
        (selection(SHA256, 0b0111), &three[..]),
        (selection(SHA256, 0b1_1111), &values()[..]),
        (selection(4, MASK), &values()[..]),
        (two_banks, &values()[..]),
        (two_bytes.to_vec(), &values()[..]),
    ] {
        let finish = tpm.quote(&EXTRA, &selected, values);
        assert_eq!(check(&tpm, &finish).map(|_| ()), Err(QuoteError::Selection), "{selected:02x?}");
    }
}

#[test]
fn values_must_be_those_quoted_in_ascending_order() {
    let tpm = SoftTpm::new(1);
    let good = tpm.quote(&EXTRA, &selection(SHA256, MASK), &values());
    let changed = |change: fn(&mut Vec<Vec<u8>>)| {
        let mut finish = good.clone();
        change(&mut finish.pcr_values);
        check(&tpm, &finish).map(|_| ())
    };
    assert_eq!(changed(|values| values.swap(0, 1)), Err(QuoteError::Digest));
    assert_eq!(changed(|values| values[2][0] ^= 1), Err(QuoteError::Digest));
    assert_eq!(changed(|values| drop(values.pop())), Err(QuoteError::Values { found: 3, wanted: 4 }));
    assert_eq!(changed(|values| values.push(vec![0; 32])), Err(QuoteError::Values { found: 5, wanted: 4 }));
    // The same bytes, cut elsewhere.
    assert_eq!(
        changed(|values| {
            let moved = values[0].pop().unwrap();
            values[1].insert(0, moved);
        }),
        Err(QuoteError::Values { found: 2, wanted: 4 })
    );
    for mask in [0, 1 << 24, u32::MAX] {
        let error = check_quote(&tpm.ak_pub(), &EXTRA, mask, &good).unwrap_err();
        assert!(matches!(error, VerifyError::Quote(QuoteError::Mask(found)) if found == mask));
    }
}

/// A crypto-agile log with one SHA-256 event for PCR 0.
fn log(digest: [u8; 32]) -> Vec<u8> {
    let mut header = b"Spec ID Event03\0".to_vec();
    header.extend_from_slice(&[0, 0, 0, 0, 0, 2, 0, 2, 1, 0, 0, 0, 0x0b, 0, 32, 0, 0]);
    let mut out = [&[0, 0, 0, 0, 3, 0, 0, 0][..], &[0; 20]].concat();
    out.extend_from_slice(&u32::try_from(header.len()).unwrap().to_le_bytes());
    out.extend(header);
    // PCR 0, EV_S_CRTM_VERSION, one SHA-256 digest, no data.
    out.extend_from_slice(&[0, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0x0b, 0]);
    out.extend_from_slice(&digest);
    out.extend_from_slice(&[0, 0, 0, 0]);
    out
}

#[test]
fn a_log_is_believed_only_where_it_leads_to_the_quote() {
    let tpm = SoftTpm::new(1);
    let pcr0: [u8; 32] = Sha256::digest([[0; 32], [0xaa; 32]].concat()).into();
    let values = [pcr0, [0; 32], [0; 32], [0; 32]];
    let mut finish = tpm.quote(&EXTRA, &selection(SHA256, MASK), &values);
    finish.event_log = log([0xaa; 32]);
    let attested = check(&tpm, &finish).unwrap();
    assert_eq!(attested.log.unwrap().events.len(), 1);

    finish.event_log = log([0xab; 32]);
    assert_eq!(check(&tpm, &finish).map(|_| ()), Err(QuoteError::Replay(0)));

    // Something was measured into PCR 2 that the log does not tell.
    let mut finish = tpm.quote(&EXTRA, &selection(SHA256, MASK), &[pcr0, [0; 32], [1; 32], [0; 32]]);
    finish.event_log = log([0xaa; 32]);
    assert_eq!(check(&tpm, &finish).map(|_| ()), Err(QuoteError::Replay(2)));
}

#[test]
fn t10_a_log_is_not_compressed_and_has_a_limit() {
    let tpm = SoftTpm::new(1);
    let mut finish = tpm.quote(&EXTRA, &selection(SHA256, MASK), &values());
    finish.event_log = vec![0; MAX_EVENT_LOG + 1];
    let too_long = EventLogError::TooLong(MAX_EVENT_LOG + 1);
    assert_eq!(check(&tpm, &finish).map(|_| ()), Err(QuoteError::Log(too_long)));
    // A gzip header is no event.
    finish.event_log = vec![0x1f, 0x8b, 0x08, 0, 0, 0, 0, 0, 0, 3];
    assert_eq!(check(&tpm, &finish).map(|_| ()), Err(QuoteError::Log(EventLogError::Truncated(0))));
}

fn error_chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}
