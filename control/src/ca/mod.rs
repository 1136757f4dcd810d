//! Control's certificate authority: one self-signed P-256 certificate from which the server certificate and all
//! node certificates come straight. Clients trust exactly this certificate, by the SHA-256 of its DER.
//!
//! Standard: RFC 5280.

mod node;
mod server;

use std::{fs, path::Path};

use ironwright_proto::ids::Digest;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, SerialNumber,
};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use sha2::{Digest as _, Sha256};
use time::{Duration, OffsetDateTime};

pub(crate) use self::{node::node_id_of, server::ServerIdentity};
use crate::files;

/// File of the CA certificate, in control's folder.
pub(crate) const CA_CERT_FILE: &str = "ca.crt";
/// File of the CA's private key.
pub(crate) const CA_KEY_FILE: &str = "ca.key";

/// The pin is in every boot and every agent's config, so the CA outlives all of them.
const CA_VALIDITY: Duration = Duration::days(20 * 365);
/// Certificates begin a little in the past, for peers whose clock is a little late.
const BACKDATE: Duration = Duration::minutes(5);

/// Why a certificate or key could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    /// A file of the CA cannot be read or written.
    #[error("accessing `{path}`")]
    File {
        /// The file.
        path: String,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// A file of the CA that is damaged.
    #[error("`{path}` does not hold {what} in PEM; restore it from a backup")]
    Damaged {
        /// The file.
        path: String,
        /// What it should hold.
        what: &'static str,
    },
    /// The certificate could not be made.
    #[error("making a certificate for {subject}")]
    Issue {
        /// For whom.
        subject: String,
        /// Why not.
        #[source]
        source: rcgen::Error,
    },
}

impl CaError {
    fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.display().to_string();
        |source| Self::File { path, source }
    }

    fn issue(subject: impl Into<String>) -> impl FnOnce(rcgen::Error) -> Self {
        let subject = subject.into();
        |source| Self::Issue { subject, source }
    }
}

/// The CA with its key.
pub(crate) struct Authority {
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Makes a new CA and writes it into the folder; files that are there already are an error.
    pub(crate) fn create(dir: &Path, now: OffsetDateTime) -> Result<Self, CaError> {
        let name = "Ironwright CA";
        let key = new_key(name)?;
        let mut params = params_for(name, now, CA_VALIDITY);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).map_err(CaError::issue(name))?;

        let (cert_path, key_path) = (dir.join(CA_CERT_FILE), dir.join(CA_KEY_FILE));
        files::write_new(&key_path, key.serialize_pem().as_bytes()).map_err(CaError::file(&key_path))?;
        files::write_new(&cert_path, certificate.pem().as_bytes()).map_err(CaError::file(&cert_path))?;
        Ok(Self { certificate: certificate.der().clone(), issuer: Issuer::new(params, key) })
    }

    /// Reads the CA of a folder.
    pub(crate) fn load(dir: &Path) -> Result<Self, CaError> {
        let certificate = read_cert(&dir.join(CA_CERT_FILE))?;
        let key = read_key(&dir.join(CA_KEY_FILE))?;
        let issuer = Issuer::from_ca_cert_der(&certificate, key)
            .map_err(CaError::issue("the CA's next certificates"))?;
        Ok(Self { certificate, issuer })
    }

    /// The CA certificate.
    pub(crate) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// SHA-256 of the CA certificate's DER.
    pub(crate) fn pin(&self) -> Digest {
        Digest(Sha256::digest(&self.certificate).into())
    }
}

/// What every certificate has in common: subject, a random serial number, validity from now on.
fn params_for(common_name: &str, now: OffsetDateTime, validity: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.serial_number = Some(random_serial());
    params.not_before = now - BACKDATE;
    params.not_after = now + validity;
    params.use_authority_key_identifier_extension = true;
    params
}

/// 128 random bits, positive and without a leading zero octet (RFC 5280 section 4.1.2.2).
fn random_serial() -> SerialNumber {
    let mut bytes: [u8; 16] = rand::random();
    bytes[0] = bytes[0] & 0x7f | 0x40;
    SerialNumber::from_slice(&bytes)
}

fn new_key(owner: &str) -> Result<KeyPair, CaError> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(CaError::issue(owner))
}

fn read_key(path: &Path) -> Result<KeyPair, CaError> {
    let pem = fs::read_to_string(path).map_err(CaError::file(path))?;
    KeyPair::from_pem(&pem)
        .map_err(|_| CaError::Damaged { path: path.display().to_string(), what: "a private key" })
}

fn read_cert(path: &Path) -> Result<CertificateDer<'static>, CaError> {
    let pem = fs::read(path).map_err(CaError::file(path))?;
    CertificateDer::from_pem_slice(&pem)
        .map_err(|_| CaError::Damaged { path: path.display().to_string(), what: "a certificate" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loaded_ca_is_the_one_that_was_made() {
        let dir = tempfile::tempdir().unwrap();
        let made = Authority::create(dir.path(), OffsetDateTime::now_utc()).unwrap();
        let loaded = Authority::load(dir.path()).unwrap();
        assert_eq!(made.pin(), loaded.pin());
        assert_eq!(made.certificate(), loaded.certificate());
        // Its files are never overwritten.
        assert!(matches!(
            Authority::create(dir.path(), OffsetDateTime::now_utc()),
            Err(CaError::File { .. })
        ));
    }

    #[test]
    fn a_damaged_key_is_named() {
        let dir = tempfile::tempdir().unwrap();
        Authority::create(dir.path(), OffsetDateTime::now_utc()).unwrap();
        fs::write(
            dir.path().join(CA_KEY_FILE),
            "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        )
        .unwrap();
        let error = Authority::load(dir.path()).err().unwrap();
        assert!(error.to_string().contains(CA_KEY_FILE), "{error}");
    }
}
