//! Quotes: which values the PCRs had, said by the TPM for this join.

use std::collections::BTreeMap;

use ironwright_proto::wire::JoinFinish;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::{
    attest::{self, AttestError, Kind},
    event_log::{EventLog, EventLogError},
    keys::CheckedKey,
};
use crate::structures::{Clock, Reader, StructureError, alg};

/// PCRs of the PC Client platform.
pub const PCR_COUNT: u8 = 24;
/// Bytes in the selection mask of a PC Client TPM.
const SELECT_BYTES: u8 = 3;
const DIGEST_BYTES: usize = 32;

/// What a machine has proven about how it booted.
#[derive(Debug, Clone)]
pub struct Attested {
    /// Quoted values of the SHA-256 bank, by PCR.
    pub pcrs: BTreeMap<u8, [u8; 32]>,
    /// The TPM's clock at the quote. Check [`Clock::may_follow`] against the machine's last one.
    pub clock: Clock,
    /// The firmware's log, where the machine has one; it replays to `pcrs`.
    pub log: Option<EventLog>,
}

/// Why a quote is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuoteError {
    /// Asked for no PCR, or for one that does not exist: an error of the caller.
    #[error("the PCR mask {0:#x} selects none, or more than PCR 0 to 23")]
    Mask(u32),
    /// The key that signs must be one that signs only what the TPM says.
    #[error("reading the attestation key")]
    Key(#[source] StructureError),
    /// What every attestation must fulfil.
    #[error("checking the quote")]
    Attest(#[from] AttestError),
    /// Other PCRs or another bank than asked for, or none.
    #[error("the quote is not over exactly the PCRs that were asked for")]
    Selection,
    /// The number or length of the values.
    #[error("{found} PCR values of {wanted} with 32 bytes each were sent")]
    Values {
        /// Values of the right length.
        found: usize,
        /// PCRs that were asked for.
        wanted: usize,
    },
    /// Values that were not quoted.
    #[error("the PCR values are not those that were quoted")]
    Digest,
    /// The log cannot be used.
    #[error("reading the event log")]
    Log(#[from] EventLogError),
    /// A log of another boot, or with events left out or added.
    #[error("the event log does not lead to the quoted value of PCR {0}")]
    Replay(u8),
}

/// Checks a quote of the SHA-256 bank over exactly the PCRs of `mask`, and the event log where one was sent.
pub(super) fn check(
    ak_pub: &[u8],
    extra: &[u8; 32],
    mask: u32,
    finish: &JoinFinish,
) -> Result<Attested, QuoteError> {
    if mask == 0 || mask >> PCR_COUNT != 0 {
        return Err(QuoteError::Mask(mask));
    }
    let ak = CheckedKey::attestation(ak_pub).map_err(QuoteError::Key)?;
    let (clock, mut reader) =
        attest::open(Kind::Quote, &finish.quote_attest, &finish.quote_sig, &ak.key, extra)?;
    let quoted = read_selection(&mut reader, mask)?;
    reader.finish().map_err(AttestError::from)?;

    let pcrs = pair_values(mask, &finish.pcr_values)?;
    let mut digest = Sha256::new();
    for value in pcrs.values() {
        digest.update(value);
    }
    if !bool::from(quoted.ct_eq(digest.finalize().as_slice())) {
        return Err(QuoteError::Digest);
    }
    let log = if finish.event_log.is_empty() {
        None
    } else {
        let log = EventLog::parse(&finish.event_log)?;
        check_replay(&log, &pcrs)?;
        Some(log)
    };
    Ok(Attested { pcrs, clock, log })
}

/// Reads `TPMS_QUOTE_INFO` (Part 2, 10.12.4); returns the digest over the values.
fn read_selection<'a>(reader: &mut Reader<'a>, mask: u32) -> Result<&'a [u8], QuoteError> {
    let structure = AttestError::from;
    let banks = reader.u32("pcrSelect.count").map_err(structure)?;
    if banks != 1 {
        return Err(QuoteError::Selection);
    }
    let bank = reader.u16("pcrSelect.hash").map_err(structure)?;
    let size = reader.u8("pcrSelect.sizeofSelect").map_err(structure)?;
    let select = reader.bytes(usize::from(size), "pcrSelect.pcrSelect").map_err(structure)?;
    // PCR 0 is the lowest bit of the first byte. A bank that is not allocated gives an empty selection.
    if bank != alg::SHA256
        || size != SELECT_BYTES
        || *select != mask.to_le_bytes()[..usize::from(SELECT_BYTES)]
    {
        return Err(QuoteError::Selection);
    }
    Ok(reader.sized(DIGEST_BYTES, "pcrDigest").map_err(structure)?)
}

fn pair_values(mask: u32, values: &[Vec<u8>]) -> Result<BTreeMap<u8, [u8; 32]>, QuoteError> {
    let selected: Vec<u8> = (0..PCR_COUNT).filter(|pcr| mask >> pcr & 1 == 1).collect();
    let sized: Vec<[u8; 32]> = values.iter().filter_map(|value| value.as_slice().try_into().ok()).collect();
    if values.len() != selected.len() || sized.len() != selected.len() {
        return Err(QuoteError::Values { found: sized.len(), wanted: selected.len() });
    }
    Ok(selected.into_iter().zip(sized).collect())
}

fn check_replay(log: &EventLog, pcrs: &BTreeMap<u8, [u8; 32]>) -> Result<(), QuoteError> {
    let replayed = log.replay(alg::SHA256)?;
    for (&pcr, quoted) in pcrs {
        if replayed[usize::from(pcr)] != quoted {
            return Err(QuoteError::Replay(pcr));
        }
    }
    Ok(())
}
