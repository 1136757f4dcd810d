//! Reading logs: crypto-agile ones, and the older ones that have SHA-1 only.

use super::{EV_NO_ACTION, Event, EventLog, EventLogError, MAX_EVENT_LOG};
use crate::structures::alg;

const SPEC_ID_CRYPTO_AGILE: &[u8; 16] = b"Spec ID Event03\0";
/// Banks of one log; TPMs have at most five.
const MAX_BANKS: u32 = 16;
const SHA1_BYTES: usize = 20;
/// Longest digest of any algorithm.
const MAX_DIGEST: usize = 64;

impl EventLog {
    /// Reads a log. Ends at a tail of all 00 or all FF; a log cut inside an event is an error.
    pub fn parse(log: &[u8]) -> Result<Self, EventLogError> {
        if log.len() > MAX_EVENT_LOG {
            return Err(EventLogError::TooLong(log.len()));
        }
        let mut reader = LogReader { log, at: 0, event: 0 };
        let first = reader.sha1_event()?;
        if first.kind == EV_NO_ACTION && first.data.starts_with(SPEC_ID_CRYPTO_AGILE) {
            let banks = read_banks(&first.data)?;
            let mut events = Vec::new();
            while !reader.at_end() {
                events.push(reader.crypto_agile_event(&banks)?);
            }
            return Ok(Self { banks, events });
        }
        let mut events = vec![first];
        while !reader.at_end() {
            events.push(reader.sha1_event()?);
        }
        Ok(Self { banks: vec![(alg::SHA1, SHA1_BYTES)], events })
    }
}

/// Length of the digests of an algorithm that is known here.
pub(super) fn digest_len(bank: u16) -> Option<usize> {
    match bank {
        alg::SHA1 => Some(SHA1_BYTES),
        alg::SHA256 => Some(32),
        alg::SHA384 => Some(48),
        alg::SHA512 => Some(64),
        _ => None,
    }
}

/// The list of banks in `TCG_EfiSpecIDEvent`: it sizes the digests of algorithms that are not known here.
fn read_banks(header: &[u8]) -> Result<Vec<(u16, usize)>, EventLogError> {
    let truncated = |_| EventLogError::Header("it ends early");
    let mut reader = LogReader { log: header, at: SPEC_ID_CRYPTO_AGILE.len(), event: 0 };
    // Platform class, and one byte each of minor and major version, errata and UINTN size.
    reader.take(8).map_err(truncated)?;
    let count = reader.u32().map_err(truncated)?;
    if count == 0 || count > MAX_BANKS {
        return Err(EventLogError::Header("its number of banks is not between 1 and 16"));
    }
    let mut banks: Vec<(u16, usize)> = Vec::new();
    for _ in 0..count {
        let bank = reader.u16().map_err(truncated)?;
        let len = usize::from(reader.u16().map_err(truncated)?);
        if len == 0 || len > MAX_DIGEST || digest_len(bank).is_some_and(|known| known != len) {
            return Err(EventLogError::Header("a bank's digest length is not that of its algorithm"));
        }
        if banks.iter().any(|&(known, _)| known == bank) {
            return Err(EventLogError::Header("a bank is listed twice"));
        }
        banks.push((bank, len));
    }
    let vendor_info = reader.take(1).map_err(truncated)?[0];
    reader.take(usize::from(vendor_info)).map_err(truncated)?;
    Ok(banks)
}

/// Little-endian cursor; `event` is where the current event begins.
struct LogReader<'a> {
    log: &'a [u8],
    at: usize,
    event: usize,
}

impl<'a> LogReader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], EventLogError> {
        let rest = &self.log[self.at..];
        let taken = rest.get(..len).ok_or(EventLogError::Truncated(self.event))?;
        self.at += len;
        Ok(taken)
    }

    fn u16(&mut self) -> Result<u16, EventLogError> {
        let bytes = self.take(2)?;
        Ok(u16::from_le_bytes([bytes[0], bytes[1]]))
    }

    fn u32(&mut self) -> Result<u32, EventLogError> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// A field of event data with a 32-bit length; nothing is allocated before the bytes are known to exist.
    fn data(&mut self) -> Result<Vec<u8>, EventLogError> {
        let len = usize::try_from(self.u32()?).map_err(|_| EventLogError::Truncated(self.event))?;
        Ok(self.take(len)?.to_vec())
    }

    fn at_end(&self) -> bool {
        let rest = &self.log[self.at..];
        rest.first().is_none_or(|&fill| matches!(fill, 0x00 | 0xff) && rest.iter().all(|&byte| byte == fill))
    }

    /// `TCG_PCR_EVENT`: every event of an old log, and the first of a crypto-agile one.
    fn sha1_event(&mut self) -> Result<Event, EventLogError> {
        self.event = self.at;
        let (pcr, kind) = (self.u32()?, self.u32()?);
        let digests = vec![(alg::SHA1, self.take(SHA1_BYTES)?.to_vec())];
        Ok(Event { pcr, kind, digests, data: self.data()? })
    }

    /// `TCG_PCR_EVENT2`.
    fn crypto_agile_event(&mut self, banks: &[(u16, usize)]) -> Result<Event, EventLogError> {
        self.event = self.at;
        let bad = |offset, why| EventLogError::Digests { offset, why };
        let (pcr, kind) = (self.u32()?, self.u32()?);
        let count = usize::try_from(self.u32()?).unwrap_or(usize::MAX);
        if count > banks.len() {
            return Err(bad(self.event, "there are more than the log has banks"));
        }
        let mut digests: Vec<(u16, Vec<u8>)> = Vec::with_capacity(count);
        for _ in 0..count {
            let bank = self.u16()?;
            let listed = banks.iter().find(|&&(known, _)| known == bank);
            let &(_, len) =
                listed.ok_or(bad(self.event, "one is for a bank that the header does not list"))?;
            if digests.iter().any(|&(known, _)| known == bank) {
                return Err(bad(self.event, "two are for one bank"));
            }
            digests.push((bank, self.take(len)?.to_vec()));
        }
        Ok(Event { pcr, kind, digests, data: self.data()? })
    }
}
