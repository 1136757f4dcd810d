//! Replaying a log: what the PCRs must hold if exactly these events were measured.

use sha1::Sha1;
use sha2::{Digest, Sha256, Sha384, Sha512};

use super::{EV_NO_ACTION, Event, EventLog, EventLogError, parse::digest_len};
use crate::structures::alg;

const PCR_COUNT: usize = 24;
const STARTUP_LOCALITY: &[u8; 16] = b"StartupLocality\0";

impl EventLog {
    /// The value of every PCR, 0 to 23, of one bank (`TPM_ALG_ID`) after all events.
    pub fn replay(&self, bank: u16) -> Result<Vec<Vec<u8>>, EventLogError> {
        let listed = self.banks.iter().any(|&(known, _)| known == bank);
        let len = digest_len(bank).filter(|_| listed).ok_or(EventLogError::Bank(bank))?;
        let mut pcrs: Vec<Vec<u8>> = (0..PCR_COUNT).map(|pcr| vec![initial(pcr); len]).collect();
        let mut pcr0_extended = false;
        for event in &self.events {
            if event.kind == EV_NO_ACTION {
                if let Some(locality) = startup_locality(event)? {
                    if pcr0_extended {
                        return Err(EventLogError::StartupLocality);
                    }
                    pcrs[0][len - 1] = locality;
                }
                continue;
            }
            let index = usize::try_from(event.pcr).unwrap_or(usize::MAX);
            let pcr = pcrs.get_mut(index).ok_or(EventLogError::Pcr(event.pcr))?;
            let digest = event.digests.iter().find(|&&(known, _)| known == bank);
            // An event without a digest for this bank leaves its PCR unknown.
            let (_, digest) = digest.ok_or(EventLogError::Bank(bank))?;
            *pcr = extend(bank, pcr, digest);
            pcr0_extended |= index == 0;
        }
        Ok(pcrs)
    }
}

/// Fill byte at power on: PCRs of the dynamic root of trust start with all bits set (PC Client Platform TPM
/// Profile, 4.6).
fn initial(pcr: usize) -> u8 {
    if (17..=22).contains(&pcr) { 0xff } else { 0x00 }
}

/// The locality that started the TPM, which is PCR 0's first value (Platform Firmware Profile, 10.4.5.3).
fn startup_locality(event: &Event) -> Result<Option<u8>, EventLogError> {
    match event.data.strip_prefix(STARTUP_LOCALITY) {
        None => Ok(None),
        Some([locality @ (0 | 3 | 4)]) => Ok(Some(*locality)),
        Some(_) => Err(EventLogError::StartupLocality),
    }
}

fn extend(bank: u16, value: &[u8], digest: &[u8]) -> Vec<u8> {
    fn hash<D: Digest>(value: &[u8], digest: &[u8]) -> Vec<u8> {
        D::new().chain_update(value).chain_update(digest).finalize().to_vec()
    }
    match bank {
        alg::SHA1 => hash::<Sha1>(value, digest),
        alg::SHA256 => hash::<Sha256>(value, digest),
        alg::SHA384 => hash::<Sha384>(value, digest),
        alg::SHA512 => hash::<Sha512>(value, digest),
        _ => unreachable!("replay refuses other banks"),
    }
}
