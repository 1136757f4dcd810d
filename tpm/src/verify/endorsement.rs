//! Endorsement certificates: which TPM manufacturer vouches for an endorsement key.
//!
//! Standard: TCG EK Credential Profile for TPM Family 2.0, section 3. The chain is checked by webpki, which
//! keeps raw issuer names and accepts the critical, directory-name-only alternative name of these certificates;
//! the rules that only they have are checked here.

use std::time::Duration;

use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime, pem::PemObject};
use serde::{Deserialize, Serialize};
use webpki::{EndEntityCert, KeyUsage};
use x509_parser::{
    certificate::X509Certificate,
    extensions::GeneralName,
    oid_registry::{Oid, asn1_rs::oid},
    prelude::FromDer,
    x509::X509Name,
};

use super::{
    der::{self, DerError},
    ek_public::{EkPublic, NotAKey},
};
use crate::structures::StructureError;

/// Trusted certificates in one file; all TPM manufacturers together have some hundred.
const MAX_ROOTS: usize = 4096;

/// tcg-kp-EKCertificate, 2.23.133.8.1, as the content of a DER OBJECT IDENTIFIER.
const EKU_EK_CERTIFICATE_DER: &[u8] = &[0x67, 0x81, 0x05, 0x08, 0x01];
const EKU_EK_CERTIFICATE: Oid = oid!(2.23.133.8.1);
const TPM_MANUFACTURER: Oid = oid!(2.23.133.2.1);
const TPM_MODEL: Oid = oid!(2.23.133.2.2);
const TPM_VERSION: Oid = oid!(2.23.133.2.3);

/// The certificates that endorsement chains may end at. Every one in the file is trusted, roots and
/// intermediates alike.
#[derive(Debug, Clone)]
pub struct EkRoots {
    anchors: Vec<TrustAnchor<'static>>,
}

/// Why a file of trusted certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EkRootsError {
    /// Not PEM.
    #[error("reading PEM block {0} of the trusted endorsement certificates")]
    Pem(usize, #[source] rustls_pki_types::pem::Error),
    /// Not a CA certificate.
    #[error("certificate {0} of the trusted endorsement certificates cannot be a trust anchor")]
    Certificate(usize, #[source] webpki::Error),
    /// More than fit in memory limits.
    #[error("more than {MAX_ROOTS} trusted endorsement certificates")]
    TooMany,
}

impl EkRoots {
    /// Trusts nobody: every endorsement certificate is refused.
    pub fn empty() -> Self {
        Self { anchors: Vec::new() }
    }

    /// Reads PEM `CERTIFICATE` blocks; other blocks and text between blocks are passed over.
    pub fn from_pem(text: &str) -> Result<Self, EkRootsError> {
        let mut anchors = Vec::new();
        for (index, der) in CertificateDer::pem_slice_iter(text.as_bytes()).enumerate() {
            let der = der.map_err(|source| EkRootsError::Pem(index, source))?;
            let anchor = webpki::anchor_from_trusted_cert(&der)
                .map_err(|source| EkRootsError::Certificate(index, source))?;
            if anchors.len() == MAX_ROOTS {
                return Err(EkRootsError::TooMany);
            }
            anchors.push(anchor.to_owned());
        }
        Ok(Self { anchors })
    }

    /// Whether no certificate is trusted.
    pub fn is_empty(&self) -> bool {
        self.anchors.is_empty()
    }
}

/// Why an endorsement key is not believed.
#[derive(Debug, thiserror::Error)]
pub enum EkError {
    /// A distinct result: such a TPM may be approved by its key, by a person.
    #[error("the TPM has no endorsement certificate")]
    NoCertificate,
    /// Not a list of certificates.
    #[error("reading the endorsement certificates")]
    Der(#[from] DerError),
    /// DER, but not X.509.
    #[error("an endorsement certificate is not an X.509 certificate")]
    NotX509,
    /// Not the template of a supported profile.
    #[error("the endorsement key is of no supported profile")]
    Template(#[source] StructureError),
    /// Numbers that are no key.
    #[error("reading the endorsement key")]
    Key(#[from] NotAKey),
    /// The certificates are for other keys than the one sent (CVE-2021-3406).
    #[error("no endorsement certificate is for the endorsement key that was sent")]
    KeyMismatch,
    /// No path to a trusted certificate, or one out of its validity.
    #[error("the endorsement certificate does not lead to a trusted manufacturer")]
    Untrusted(#[source] webpki::Error),
    /// A rule of the EK profile.
    #[error("the certificate is not one for an endorsement key: {0}")]
    Leaf(&'static str),
}

/// What the endorsement certificate says of the TPM (EK Credential Profile, 3.1.2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TpmModel {
    /// `id:` and the TCG vendor id in hexadecimal.
    pub manufacturer: String,
    /// The manufacturer's model.
    pub model: String,
    /// The manufacturer's firmware version.
    pub version: String,
}

/// Finds the certificate for `ek` among `certs`, checks its path to `roots` and the rules for leaves.
pub(super) fn check(
    ek: &EkPublic,
    certs: &[Vec<u8>],
    ca_chain: &[Vec<u8>],
    roots: &EkRoots,
    now_unix_s: i64,
) -> Result<TpmModel, EkError> {
    let certs = der::all_certificates(certs)?;
    if certs.is_empty() {
        return Err(EkError::NoCertificate);
    }
    let (raw, leaf) = find_leaf(ek, &certs)?;
    let intermediates: Vec<CertificateDer> =
        der::all_certificates(ca_chain)?.into_iter().map(CertificateDer::from).collect();
    check_path(raw, &intermediates, roots, now_unix_s).map_err(EkError::Untrusted)?;
    check_leaf(&leaf, ek)
}

/// Whether the TPM's own certificate is for the key that it made: `ek_pub` is a `TPMT_PUBLIC`, `raw` as in NV.
#[cfg(feature = "device")]
pub(crate) fn check_certificate_fits(ek_pub: &[u8], raw: &[u8]) -> Result<(), EkError> {
    let ek = EkPublic::from_public_area(ek_pub).map_err(EkError::Template)?;
    find_leaf(&ek, &der::certificates(raw)?).map(|_| ())
}

fn find_leaf<'a>(ek: &EkPublic, certs: &[&'a [u8]]) -> Result<(&'a [u8], X509Certificate<'a>), EkError> {
    for raw in certs {
        let (_, leaf) = X509Certificate::from_der(raw).map_err(|_| EkError::NotX509)?;
        if EkPublic::from_spki(leaf.public_key()).as_ref() == Some(ek) {
            return Ok((raw, leaf));
        }
    }
    Err(EkError::KeyMismatch)
}

fn check_path(
    leaf: &[u8],
    intermediates: &[CertificateDer],
    roots: &EkRoots,
    now_unix_s: i64,
) -> Result<(), webpki::Error> {
    let leaf = CertificateDer::from(leaf);
    let now = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(now_unix_s).unwrap_or(0)));
    // `required` would demand the purpose of CA certificates too, which do not have it.
    let purpose = KeyUsage::required_if_present(EKU_EK_CERTIFICATE_DER);
    EndEntityCert::try_from(&leaf)?.verify_for_usage(
        webpki::ALL_VERIFICATION_ALGS,
        &roots.anchors,
        intermediates,
        now,
        purpose,
        None,
        None,
    )?;
    Ok(())
}

/// The rules for leaves. The purpose alone does not make an endorsement certificate: issuing CAs have been
/// seen with it.
fn check_leaf(leaf: &X509Certificate, ek: &EkPublic) -> Result<TpmModel, EkError> {
    let twice = |_| EkError::Leaf("an extension cannot be read or is there twice");
    let purposes = leaf.extended_key_usage().map_err(twice)?;
    if !purposes.is_some_and(|eku| eku.value.other.contains(&EKU_EK_CERTIFICATE)) {
        return Err(EkError::Leaf("it lacks the purpose tcg-kp-EKCertificate"));
    }
    if leaf.basic_constraints().map_err(twice)?.is_some_and(|constraints| constraints.value.ca) {
        return Err(EkError::Leaf("it is a CA's"));
    }
    let usage = leaf.key_usage().map_err(twice)?.ok_or(EkError::Leaf("it has no key usage"))?.value;
    let for_secrets = match ek {
        EkPublic::Rsa2048 { .. } => usage.key_encipherment(),
        EkPublic::P256 { .. } | EkPublic::P384 { .. } => usage.key_agreement(),
    };
    if !for_secrets {
        return Err(EkError::Leaf("its key usage is not the transport of secrets"));
    }
    let names = leaf.subject_alternative_name().map_err(twice)?;
    let mut directory_names =
        names.iter().flat_map(|san| &san.value.general_names).filter_map(|name| match name {
            GeneralName::DirectoryName(name) => Some(name),
            _ => None,
        });
    directory_names
        .find_map(model)
        .ok_or(EkError::Leaf("its alternative name lacks the TPM's manufacturer, model or version"))
}

/// The TPM's model from a directory name, whether in one multi-valued RDN or in three.
fn model(name: &X509Name) -> Option<TpmModel> {
    let find = |oid| name.iter_by_oid(&oid).next()?.as_str().ok().map(str::to_owned);
    Some(TpmModel {
        manufacturer: find(TPM_MANUFACTURER)?,
        model: find(TPM_MODEL)?,
        version: find(TPM_VERSION)?,
    })
}
