//! Admission: who may join (decision 0001, "Join"). Reads only; nothing is stored before it.
//!
//! 1. The claim names a machine and has that machine's MAC (and product UUID, where both sides know one).
//! 2. The machine is bound to a TPM: it must be this one, and no token is needed. Not bound: a token for this
//!    machine and role; for a ramdisk also the assertion of its site.
//! 3. Without a TPM: the operator must allow it, the machine must not be bound to a TPM, and every join needs a token.

use ironwright_proto::{
    api::Machine,
    envelope,
    ids::{Digest, Mac, Name},
    kinds::Role,
    wire::{JoinClaim, SiteAssertion},
};
use p256::{ecdsa::VerifyingKey, pkcs8::DecodePublicKey};

use super::{
    refusal::{Refusal, RefusalCode},
    token::{self, For, TokenKey},
};
use crate::{audit::clip, error::Error, machines, nodes, sites, smbios, store::ReadTxn};

/// How far a site's clock may be ahead of control's.
pub const ASSERTION_SKEW_MS: i64 = 5 * 60 * 1000;

/// A claim that may join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Admitted {
    pub(crate) role: Role,
    pub(crate) machine: Option<Name>,
    pub(crate) site: Option<Name>,
    /// To be burned in the transaction that makes the node.
    pub(crate) token: Option<TokenKey>,
}

type Admission<T> = Result<Result<T, Refusal>, Error>;

/// Unwraps the inner result, or returns its refusal from the function.
macro_rules! admit {
    ($admission:expr) => {
        match $admission {
            Ok(value) => value,
            Err(refusal) => return Ok(Err(refusal)),
        }
    };
}

#[expect(clippy::unnecessary_wraps, reason = "it is what its callers return")]
fn refuse<T>(code: RefusalCode, reason: impl Into<String>) -> Admission<T> {
    Ok(Err(Refusal::new(code, reason)))
}

/// Admission of a machine whose TPM has shown `ek`.
pub(crate) fn admit_tpm(
    txn: &dyn ReadTxn,
    claim: &JoinClaim,
    ek: &Digest,
    now_ms: i64,
) -> Admission<Admitted> {
    let role = admit!(machine_role(claim));
    let machine = admit!(claimed_machine(txn, claim)?);
    if let Some(bound) = machines::by_ek(txn, ek)?.filter(|bound| *bound != machine.id) {
        let reason = format!("TPM {ek} is the one of machine {bound}; it claims to be {}", machine.id);
        return refuse(RefusalCode::EkMismatch, reason);
    }
    let token = match machine.ek_fingerprint {
        Some(bound) if bound == *ek => None,
        Some(bound) => {
            let reason = format!("machine {} has TPM {bound}; {ek} claims to be it", machine.id);
            return refuse(RefusalCode::EkMismatch, reason);
        }
        None => Some(admit!(first_join(txn, claim, &machine, role, now_ms)?)),
    };
    Ok(Ok(Admitted { role, machine: Some(machine.id), site: None, token }))
}

/// Admission by token alone: of a machine that is allowed to have no TPM, or of a site agent.
pub(crate) fn admit_token(txn: &dyn ReadTxn, claim: &JoinClaim, now_ms: i64) -> Admission<Admitted> {
    if claim.role == Role::Site.as_str() {
        return admit_site(txn, claim, now_ms);
    }
    let role = admit!(machine_role(claim));
    let machine = admit!(claimed_machine(txn, claim)?);
    let id = &machine.id;
    if machine.ek_fingerprint.is_some() {
        return refuse(
            RefusalCode::TpmRequired,
            format!("machine {id} is bound to a TPM, by which it has to join"),
        );
    }
    if !machine.allow_no_tpm {
        let way = format!("`ironwright machines set {id} --allow-no-tpm true` lets it join without");
        return refuse(RefusalCode::TpmRequired, format!("machine {id} has to join by a TPM; {way}"));
    }
    let token = admit!(first_join(txn, claim, &machine, role, now_ms)?);
    Ok(Ok(Admitted { role, machine: Some(machine.id), site: None, token: Some(token) }))
}

fn admit_site(txn: &dyn ReadTxn, claim: &JoinClaim, now_ms: i64) -> Admission<Admitted> {
    if !claim.machine_id.is_empty() {
        return refuse(RefusalCode::Malformed, "a site agent joins without a machine id");
    }
    let (r#for, token) = admit!(token::check(txn, &claim.join_token, now_ms)?);
    let For::Site(site) = r#for else {
        return refuse(RefusalCode::TokenOfOtherMachine, format!("token {token} is not one of a site"));
    };
    Ok(Ok(Admitted { role: Role::Site, machine: None, site: Some(site), token: Some(token) }))
}

fn machine_role(claim: &JoinClaim) -> Result<Role, Refusal> {
    Role::from_wire(&claim.role).filter(|role| *role != Role::Site).ok_or_else(|| {
        Refusal::new(RefusalCode::Malformed, format!("`{}` is no role of a machine", clip(&claim.role)))
    })
}

fn claimed_machine(txn: &dyn ReadTxn, claim: &JoinClaim) -> Admission<Machine> {
    let id = clip(&claim.machine_id);
    // Only a name can be a key; anything else is no machine.
    let known = claim.machine_id.parse::<Name>().is_ok();
    let Some(machine) = known.then(|| machines::get(txn, &claim.machine_id)).transpose()?.flatten() else {
        return refuse(RefusalCode::UnknownMachine, format!("there is no machine `{id}`"));
    };
    if claim.mac.parse::<Mac>().ok() != Some(machine.mac) {
        let reason = format!("machine {id} has MAC {}; `{}` claims to be it", machine.mac, clip(&claim.mac));
        return refuse(RefusalCode::UnknownMachine, reason);
    }
    if let Some(uuid) = &machine.product_uuid
        && smbios::parse(&claim.product_uuid).is_some()
        && !smbios::same_uuid(uuid, &claim.product_uuid)
    {
        let reason = format!("machine {id} has product UUID {uuid}, not {}", clip(&claim.product_uuid));
        return refuse(RefusalCode::UnknownMachine, reason);
    }
    Ok(Ok(machine))
}

fn first_join(
    txn: &dyn ReadTxn,
    claim: &JoinClaim,
    machine: &Machine,
    role: Role,
    now_ms: i64,
) -> Admission<TokenKey> {
    let (r#for, token) = admit!(token::check(txn, &claim.join_token, now_ms)?);
    if r#for != For::machine(&machine.id, role) {
        let reason =
            format!("token {token} is for {for:?}, not for machine {} as {}", machine.id, claim.role);
        return refuse(RefusalCode::TokenOfOtherMachine, reason);
    }
    if role == Role::Ramdisk {
        admit!(check_assertion(txn, claim, machine, now_ms)?);
    }
    Ok(Ok(token))
}

/// Checks that the node which holds the lease of the machine's site says that it booted this machine.
fn check_assertion(txn: &dyn ReadTxn, claim: &JoinClaim, machine: &Machine, now_ms: i64) -> Admission<()> {
    let invalid = |reason: &str| refuse(RefusalCode::SiteAssertionInvalid, reason.to_owned());
    let Some(envelope) = &claim.site_assertion else {
        return invalid("no site assertion was sent");
    };
    let Some(site) = sites::serving(txn, machine.site.as_ref())? else {
        return invalid("the machine has no site");
    };
    // Nothing of the payload counts before its signature does, so the signer is looked up by key id first.
    let signer = nodes::get(txn, &clip(&envelope.key_id))?;
    let Some(signer) = signer.filter(|signer| signer.node.site.as_ref() == Some(&site.name)) else {
        return invalid("its signer is no agent of the machine's site");
    };
    let Ok(key) = VerifyingKey::from_public_key_der(&signer.spki_der) else {
        return invalid("the signer's key is not a P-256 key");
    };
    let said: SiteAssertion = match envelope::open(envelope, envelope::SITE_ASSERTION, &key) {
        Ok(said) => said,
        Err(error) => return invalid(&error.to_string()),
    };
    if said.machine_id != machine.id.as_str() || said.mac.parse::<Mac>().ok() != Some(machine.mac) {
        return invalid("it is about another machine or MAC");
    }
    if said.site != site.name.as_str() {
        return invalid("it is of another site");
    }
    if said.expires_unix_ms <= now_ms || said.issued_unix_ms > now_ms + ASSERTION_SKEW_MS {
        return invalid("it has expired, or was made in the future");
    }
    if !sites::holds(&site, &signer.node.id, now_ms) || said.lease_epoch != site.lease_epoch {
        let reason = format!(
            "asserted by {} at lease epoch {}; site {} is at epoch {}, held by {:?} until {}",
            signer.node.id, said.lease_epoch, site.name, site.lease_epoch, site.holder, site.lease_until_ms
        );
        return refuse(RefusalCode::StaleLease, reason);
    }
    Ok(Ok(()))
}

#[cfg(test)]
mod tests;
