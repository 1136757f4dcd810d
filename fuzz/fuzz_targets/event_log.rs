//! A firmware's event log, and its replay for every bank.
#![no_main]

use ironwright_tpm::verify::event_log::EventLog;
use libfuzzer_sys::fuzz_target;

/// `TPM_ALG_ID` and bytes of a digest: SHA-1, SHA-256, SHA-384, SHA-512.
const BANKS: [(u16, usize); 4] = [(0x04, 20), (0x0b, 32), (0x0c, 48), (0x0d, 64)];

fuzz_target!(|bytes: &[u8]| {
    let Ok(log) = EventLog::parse(bytes) else { return };
    for (bank, len) in BANKS {
        if let Ok(pcrs) = log.replay(bank) {
            assert!(pcrs.len() == 24 && pcrs.iter().all(|pcr| pcr.len() == len));
        }
    }
});
