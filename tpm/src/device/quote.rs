//! Quotes: PCR values, and the TPM's word for them.

use sha2::{Digest as _, Sha256};
use tss_esapi::{
    Context, Error as TssError,
    handles::KeyHandle,
    interface_types::{algorithm::HashingAlgorithm, session_handles::AuthSession},
    structures::{AttestInfo, Data, PcrSelectionList, PcrSlot, SignatureScheme},
    traits::Marshall,
};

use super::error::UNUSABLE;
use crate::verify::PCR_COUNT;

type Result<T> = std::result::Result<T, TssError>;

/// Values that `TPM2_PCR_Read` gives at a time.
const PCRS_PER_READ: usize = 8;

/// The fields of a second round that come from the TPM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quote {
    /// `TPMS_ATTEST`.
    pub attest: Vec<u8>,
    /// `TPMT_SIGNATURE`.
    pub signature: Vec<u8>,
    /// SHA-256 bank, ascending PCR order.
    pub pcr_values: Vec<Vec<u8>>,
}

/// The PCRs of a mask, ascending; `None` where it selects none or more than there are.
pub(super) fn slots(mask: u32) -> Option<Vec<PcrSlot>> {
    if mask == 0 || mask >> PCR_COUNT != 0 {
        return None;
    }
    (0..PCR_COUNT)
        .map(|pcr| 1 << pcr)
        .filter(|bit| mask & bit != 0)
        .map(|bit| PcrSlot::try_from(bit).ok())
        .collect()
}

/// Quotes, then reads the values. `None` where a PCR was extended between the two: they are separate commands.
pub(super) fn quote(
    context: &mut Context,
    ak: KeyHandle,
    extra: &[u8; 32],
    slots: &[PcrSlot],
) -> Result<Option<Quote>> {
    let extra = Data::try_from(extra.as_slice())?;
    let (attest, signature) = context.execute_with_session(Some(AuthSession::Password), |context| {
        context.quote(ak, extra, SignatureScheme::Null, selection(slots)?)
    })?;
    let AttestInfo::Quote { info } = attest.attested() else { return Err(UNUSABLE) };
    let pcr_values = read(context, slots)?;
    if info.pcr_digest().as_slice() != Sha256::digest(pcr_values.concat()).as_slice() {
        return Ok(None);
    }
    Ok(Some(Quote { attest: attest.marshall()?, signature: signature.marshall()?, pcr_values }))
}

fn read(context: &mut Context, slots: &[PcrSlot]) -> Result<Vec<Vec<u8>>> {
    let mut values = Vec::with_capacity(slots.len());
    for some in slots.chunks(PCRS_PER_READ) {
        let (_, _, read) = context.pcr_read(selection(some)?)?;
        // Fewer come from a bank that is not allocated.
        if read.len() != some.len() {
            return Err(UNUSABLE);
        }
        values.extend(read.value().iter().map(|value| value.to_vec()));
    }
    Ok(values)
}

fn selection(slots: &[PcrSlot]) -> Result<PcrSelectionList> {
    PcrSelectionList::builder().with_selection(HashingAlgorithm::Sha256, slots).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_is_read_in_ascending_order() {
        assert_eq!(slots(0b1000_0001), Some(vec![PcrSlot::Slot0, PcrSlot::Slot7]));
        assert_eq!(slots(0x80_0000), Some(vec![PcrSlot::Slot23]));
        assert_eq!(slots(0), None);
        assert_eq!(slots(0x100_0000), None);
    }
}
