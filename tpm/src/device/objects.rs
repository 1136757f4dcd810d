//! Keys in the TPM: made from the templates, loaded for as long as a closure runs.
//!
//! A TPM without a resource manager has three slots for objects. Nothing here holds more than two at a time,
//! and nothing stays loaded: what is needed again is saved outside, encrypted by the TPM.

use tss_esapi::{
    Context, Error as TssError,
    handles::KeyHandle,
    interface_types::{resource_handles::Hierarchy, session_handles::AuthSession},
    structures::{Private, Public},
    traits::{Marshall, UnMarshall},
    utils::TpmsContext,
};

use super::node_key::NodeKeyBlobs;
use crate::templates::{STORAGE_ROOT_KEY, Template};

type Result<T> = std::result::Result<T, TssError>;

/// A loaded key that was saved (`TPM2_ContextSave`), with its public area.
pub(super) struct SavedKey {
    context: TpmsContext,
    /// `TPMT_PUBLIC`.
    pub(super) public: Vec<u8>,
}

/// The template as the library's type, with `unique` fields of these lengths, all zero.
fn template(template: &Template, unique: &[usize]) -> Result<Public> {
    let mut bytes = template.prefix();
    for &len in unique {
        let size = u16::try_from(len).expect("unique fields are at most 256 bytes");
        bytes.extend_from_slice(&size.to_be_bytes());
        bytes.resize(bytes.len() + len, 0);
    }
    Public::unmarshall(&bytes)
}

/// Runs `work` with a key, and flushes it however that ends.
fn with_loaded<T>(
    context: &mut Context,
    key: KeyHandle,
    work: impl FnOnce(&mut Context, KeyHandle) -> Result<T>,
) -> Result<T> {
    context.execute_with_temporary_object(key.into(), |context, _| work(context, key))
}

/// Makes a primary key, which is the same each time, and runs `work` with it and its `TPMT_PUBLIC`.
fn with_primary<T>(
    context: &mut Context,
    hierarchy: Hierarchy,
    of: &Template,
    unique: &[usize],
    work: impl FnOnce(&mut Context, KeyHandle, Vec<u8>) -> Result<T>,
) -> Result<T> {
    let public = template(of, unique)?;
    let made = context.execute_with_session(Some(AuthSession::Password), |context| {
        context.create_primary(hierarchy, public, None, None, None, None)
    })?;
    with_loaded(context, made.key_handle, |context, key| work(context, key, made.out_public.marshall()?))
}

/// Makes a primary key in the endorsement hierarchy and saves it. There, and only there, quotes give clock and
/// firmware version in the clear.
pub(super) fn save_endorsement_primary(
    context: &mut Context,
    of: &Template,
    unique: &[usize],
) -> Result<SavedKey> {
    with_primary(context, Hierarchy::Endorsement, of, unique, |context, key, public| {
        Ok(SavedKey { context: context.context_save(key.into())?, public })
    })
}

/// Runs `work` with a saved key.
pub(super) fn with_saved<T>(
    context: &mut Context,
    key: &SavedKey,
    work: impl FnOnce(&mut Context, KeyHandle) -> Result<T>,
) -> Result<T> {
    let handle = context.context_load(key.context.clone())?;
    with_loaded(context, KeyHandle::from(handle), work)
}

fn with_storage_root<T>(
    context: &mut Context,
    work: impl FnOnce(&mut Context, KeyHandle) -> Result<T>,
) -> Result<T> {
    with_primary(context, Hierarchy::Owner, &STORAGE_ROOT_KEY, &[32, 32], |context, key, _| {
        work(context, key)
    })
}

/// Makes a new key under the storage root key.
pub(super) fn create(context: &mut Context, of: &Template) -> Result<NodeKeyBlobs> {
    let public = template(of, &[0, 0])?;
    let made = with_storage_root(context, |context, parent| {
        context.execute_with_session(Some(AuthSession::Password), |context| {
            context.create(parent, public, None, None, None, None)
        })
    })?;
    Ok(NodeKeyBlobs { public: made.out_public.marshall()?, private: made.out_private.to_vec() })
}

/// Runs `work` with a key that [`create`] made.
pub(super) fn with_created<T>(
    context: &mut Context,
    blobs: &NodeKeyBlobs,
    work: impl FnOnce(&mut Context, KeyHandle) -> Result<T>,
) -> Result<T> {
    let private = Private::try_from(blobs.private.clone())?;
    let public = Public::unmarshall(&blobs.public)?;
    let key = with_storage_root(context, |context, parent| {
        context.execute_with_session(Some(AuthSession::Password), |context| {
            context.load(parent, private, public)
        })
    })?;
    with_loaded(context, key, work)
}
