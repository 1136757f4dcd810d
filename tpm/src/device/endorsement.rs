//! The endorsement key: which profile this TPM has a certificate for, and opening credentials with it.
//!
//! NV indices and policies: TCG EK Credential Profile 2.5, sections 2.2 and annex B.

use tss_esapi::{
    Context, Error as TssError,
    constants::{CapabilityType, SessionType},
    handles::{AuthHandle, KeyHandle, NvIndexHandle, NvIndexTpmHandle, SessionHandle, TpmHandle},
    interface_types::{
        algorithm::HashingAlgorithm,
        resource_handles::NvAuth,
        session_handles::{AuthSession, PolicySession},
    },
    structures::{CapabilityData, Digest, DigestList, EncryptedSecret, IdObject, Nonce, SymmetricDefinition},
};

use super::error::UNUSABLE;
use crate::templates::{EK_P256, EK_P384, EK_RSA_2048, POLICY_A_SHA384, POLICY_C_SHA384, Template};

type Result<T> = std::result::Result<T, TssError>;

/// Where the certificates of endorsement keys are.
const CERTIFICATES_FIRST: u32 = 0x01c0_0000;
/// Where the manufacturer's CA certificates are: concatenated DER, running on over consecutive indices.
const CA_CHAIN_FIRST: u32 = 0x01c0_0100;
const CA_CHAIN_LAST: u32 = 0x01c0_01ff;
/// Indices asked for at a time; a chain has a handful.
const MAX_INDICES: u32 = 32;
/// Bytes read at a time: what every PC Client TPM can give.
const NV_CHUNK: u16 = 512;
/// Longest NV index or chain read, in bytes; more does not fit in a join.
const MAX_NV_BYTES: usize = 32 << 10;

/// A kind of endorsement key that control can check.
pub(super) struct Profile {
    /// NV index of the certificate.
    certificate: u32,
    pub(super) template: &'static Template,
    /// Lengths of the zeros in the template's `unique` field.
    pub(super) unique: &'static [usize],
    /// Name algorithm, which the policy session has to use.
    hash: HashingAlgorithm,
    /// Branches of the policy; none where policy A is the whole policy.
    branches: &'static [&'static [u8]],
}

/// By preference: elliptic curves are made in milliseconds, an RSA key may take a TPM many seconds.
static PROFILES: [Profile; 3] = [
    Profile {
        certificate: 0x01c0_000a,
        template: &EK_P256,
        unique: &[32, 32],
        hash: HashingAlgorithm::Sha256,
        branches: &[],
    },
    Profile {
        certificate: 0x01c0_0016,
        template: &EK_P384,
        unique: &[0, 0],
        hash: HashingAlgorithm::Sha384,
        branches: &[&POLICY_A_SHA384, &POLICY_C_SHA384],
    },
    Profile {
        certificate: 0x01c0_0002,
        template: &EK_RSA_2048,
        unique: &[256],
        hash: HashingAlgorithm::Sha256,
        branches: &[],
    },
];

/// The first profile that this TPM has a certificate for, and the certificate as it is in NV. A TPM without
/// any gets the first profile and no certificate: whether that is enough is for control to say.
pub(super) fn choose(context: &mut Context) -> Result<(&'static Profile, Option<Vec<u8>>)> {
    let present = indices(context, CERTIFICATES_FIRST)?;
    match PROFILES.iter().find(|profile| present.contains(&profile.certificate)) {
        Some(profile) => Ok((profile, Some(read_nv(context, profile.certificate)?))),
        None => Ok((&PROFILES[0], None)),
    }
}

/// The manufacturer's CA certificates, concatenated; empty where the TPM has none.
pub(super) fn read_ca_chain(context: &mut Context) -> Result<Vec<u8>> {
    let mut chain = Vec::new();
    for index in indices(context, CA_CHAIN_FIRST)? {
        if !(CA_CHAIN_FIRST..=CA_CHAIN_LAST).contains(&index) {
            break;
        }
        chain.extend(read_nv(context, index)?);
        if chain.len() > MAX_NV_BYTES {
            return Err(UNUSABLE);
        }
    }
    Ok(chain)
}

/// Defined NV indices from `first` on, ascending.
fn indices(context: &mut Context, first: u32) -> Result<Vec<u32>> {
    let (found, _) = context.get_capability(CapabilityType::Handles, first, MAX_INDICES)?;
    let CapabilityData::Handles(handles) = found else { return Err(UNUSABLE) };
    Ok(handles.into_inner().into_iter().map(u32::from).collect())
}

fn read_nv(context: &mut Context, index: u32) -> Result<Vec<u8>> {
    let index = TpmHandle::NvIndex(NvIndexTpmHandle::new(index)?);
    let mut object = context.tr_from_tpm_public(index)?;
    let content = read_object(context, NvIndexHandle::from(object));
    context.tr_close(&mut object)?;
    content
}

fn read_object(context: &mut Context, handle: NvIndexHandle) -> Result<Vec<u8>> {
    let size = context.nv_read_public(handle)?.0.data_size();
    if size > MAX_NV_BYTES {
        return Err(UNUSABLE);
    }
    let mut content = Vec::with_capacity(size);
    while content.len() < size {
        let len = u16::try_from(size - content.len()).unwrap_or(u16::MAX).min(NV_CHUNK);
        let offset = u16::try_from(content.len()).map_err(|_| UNUSABLE)?;
        let chunk = context.execute_with_session(Some(AuthSession::Password), |context| {
            context.nv_read(NvAuth::NvIndex(handle), handle, len, offset)
        })?;
        if chunk.is_empty() {
            return Err(UNUSABLE);
        }
        content.extend_from_slice(&chunk);
    }
    Ok(content)
}

/// Opens a credential (`TPM2_ActivateCredential`) with both keys loaded.
pub(super) fn activate(
    context: &mut Context,
    profile: &Profile,
    ek: KeyHandle,
    ak: KeyHandle,
    blob: IdObject,
    secret: EncryptedSecret,
) -> Result<Digest> {
    let symmetric = SymmetricDefinition::AES_128_CFB;
    let session = context
        .start_auth_session(None, None, None, SessionType::Policy, symmetric, profile.hash)?
        .ok_or(UNUSABLE)?;
    let policy = PolicySession::try_from(session)?;
    context.execute_with_temporary_object(SessionHandle::from(policy).into(), |context, _| {
        satisfy(context, policy, profile)?;
        let sessions = (Some(AuthSession::Password), Some(session), None);
        context.execute_with_sessions(sessions, |context| context.activate_credential(ak, ek, blob, secret))
    })
}

/// Fulfils the endorsement key's policy: knowledge of the endorsement hierarchy's (empty) password.
fn satisfy(context: &mut Context, policy: PolicySession, profile: &Profile) -> Result<()> {
    context.execute_with_session(Some(AuthSession::Password), |context| {
        let (nonce, cp_hash, policy_ref) = (Nonce::default(), Digest::default(), Nonce::default());
        context.policy_secret(policy, AuthHandle::Endorsement, nonce, cp_hash, policy_ref, None)
    })?;
    if profile.branches.is_empty() {
        return Ok(());
    }
    let mut branches = DigestList::new();
    for &branch in profile.branches {
        branches.add(Digest::try_from(branch)?)?;
    }
    context.policy_or(policy, branches)
}
