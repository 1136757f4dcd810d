//! The node's private key, in a TPM or in a file, behind one small trait; and its adapters for rustls
//! (client certificates) and rcgen (certificate requests). Always ECDSA P-256 with SHA-256.

use std::{
    fmt, fs,
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use rcgen::{KeyPair, PublicKeyData};
use rustls::{
    SignatureAlgorithm, SignatureScheme,
    sign::{Signer, SigningKey},
};

/// A PKCS#8 P-256 key in PEM has about 240 bytes.
const MAX_KEY_FILE: u64 = 16 * 1024;

/// What went wrong with a key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// Reading or writing the file.
    #[error("{doing} the key file {path}")]
    File {
        /// "reading", "writing".
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Others than its owner can read it.
    #[error("the key file {path} has mode {mode:o}; only its owner may have access (mode 600)")]
    TooOpen {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Not a P-256 key, or the generator failed.
    #[error("{doing} a P-256 key")]
    Crypto {
        /// "generating", "reading", "requesting a certificate for".
        doing: &'static str,
        /// The cause.
        source: rcgen::Error,
    },
    /// The device refused.
    #[error("signing with the node key: {0}")]
    Sign(String),
}

/// A key that signs for the node.
pub trait NodeSigner: fmt::Debug + Send + Sync {
    /// The public point, uncompressed (SEC 1 section 2.3.3): 65 bytes.
    fn public_point(&self) -> &[u8];

    /// ECDSA P-256 over the SHA-256 of `message`; the signature in DER.
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError>;
}

/// A key of software: in a file, or of this process alone.
pub struct SoftKey(KeyPair);

impl fmt::Debug for SoftKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SoftKey")
    }
}

impl SoftKey {
    /// A fresh key that ends with the process.
    pub fn generate() -> Result<Self, KeyError> {
        let made = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256);
        made.map(Self).map_err(|source| KeyError::Crypto { doing: "generating", source })
    }

    /// The key of a PKCS#8 text in PEM.
    pub fn from_pem(pem: &str) -> Result<Self, KeyError> {
        let read = KeyPair::from_pem_and_sign_algo(pem, &rcgen::PKCS_ECDSA_P256_SHA256);
        read.map(Self).map_err(|source| KeyError::Crypto { doing: "reading", source })
    }

    /// Reads the key of a PKCS#8 PEM file, or makes one and writes it (mode 600, synced) where there is no
    /// file.
    pub fn load_or_create(path: &Path) -> Result<Self, KeyError> {
        match fs::File::open(path) {
            Ok(file) => Self::load(path, &file),
            Err(err) if err.kind() == io::ErrorKind::NotFound => Self::create(path),
            Err(source) => Err(KeyError::File { doing: "reading", path: path.to_owned(), source }),
        }
    }

    fn load(path: &Path, file: &fs::File) -> Result<Self, KeyError> {
        let reading = |source| KeyError::File { doing: "reading", path: path.to_owned(), source };
        let meta = file.metadata().map_err(reading)?;
        if meta.mode() & 0o077 != 0 {
            return Err(KeyError::TooOpen { path: path.to_owned(), mode: meta.mode() & 0o7777 });
        }
        let mut pem = String::new();
        io::Read::read_to_string(&mut io::Read::take(file, MAX_KEY_FILE), &mut pem).map_err(reading)?;
        Self::from_pem(&pem)
    }

    fn create(path: &Path) -> Result<Self, KeyError> {
        let key = Self::generate()?;
        write_private(path, key.0.serialize_pem().as_bytes()).map_err(|source| KeyError::File {
            doing: "writing",
            path: path.to_owned(),
            source,
        })?;
        Ok(key)
    }
}

/// Writes a file that only its owner can read: beside it, synced, then renamed over it.
pub(crate) fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let beside = path.with_extension("new");
    match fs::remove_file(&beside) {
        Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
        _ => {}
    }
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    fs::File::open(folder)?.sync_all()
}

impl NodeSigner for SoftKey {
    fn public_point(&self) -> &[u8] {
        self.0.der_bytes()
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        rcgen::SigningKey::sign(&self.0, message).map_err(|err| KeyError::Sign(err.to_string()))
    }
}

/// A PKCS#10 request for the key. Its subject says nothing: control chooses every field of the certificate.
pub fn certificate_request(key: &Arc<dyn NodeSigner>) -> Result<Vec<u8>, KeyError> {
    let making = |source| KeyError::Crypto { doing: "requesting a certificate for", source };
    let mut params = rcgen::CertificateParams::new(Vec::new()).map_err(making)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    let request = params.serialize_request(&RequestKey(key.clone())).map_err(making)?;
    Ok(request.der().to_vec())
}

struct RequestKey(Arc<dyn NodeSigner>);

impl PublicKeyData for RequestKey {
    fn der_bytes(&self) -> &[u8] {
        self.0.public_point()
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}

impl rcgen::SigningKey for RequestKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        self.0.sign(message).map_err(|_| rcgen::Error::RemoteKeyError)
    }
}

/// The node key as rustls wants it.
#[derive(Debug, Clone)]
pub(crate) struct TlsKey(pub(crate) Arc<dyn NodeSigner>);

impl SigningKey for TlsKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        offered.contains(&SignatureScheme::ECDSA_NISTP256_SHA256).then(|| Box::new(self.clone()) as Box<_>)
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ECDSA
    }
}

impl Signer for TlsKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        self.0.sign(message).map_err(|err| rustls::Error::General(err.to_string()))
    }

    fn scheme(&self) -> SignatureScheme {
        SignatureScheme::ECDSA_NISTP256_SHA256
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_key_survives_and_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("node-key.pem");
        let first = SoftKey::load_or_create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let again = SoftKey::load_or_create(&path).unwrap();
        assert_eq!(first.public_point(), again.public_point());
        assert_eq!((first.public_point().len(), first.public_point()[0]), (65, 4));

        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(SoftKey::load_or_create(&path), Err(KeyError::TooOpen { mode: 0o640, .. })));
    }

    #[test]
    fn a_broken_key_file_is_never_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("node-key.pem");
        write_private(&path, b"not a key").unwrap();
        assert!(matches!(SoftKey::load_or_create(&path), Err(KeyError::Crypto { doing: "reading", .. })));
        assert_eq!(fs::read(&path).unwrap(), b"not a key");
    }

    #[test]
    fn signatures_verify_with_an_independent_implementation() {
        use p256::ecdsa::{Signature, VerifyingKey, signature::Verifier};

        let key = SoftKey::generate().unwrap();
        let signature = Signature::from_der(&key.sign(b"message").unwrap()).unwrap();
        let public = VerifyingKey::from_sec1_bytes(key.public_point()).unwrap();
        assert!(public.verify(b"message", &signature).is_ok());
        assert!(public.verify(b"massage", &signature).is_err());
    }

    #[test]
    fn a_request_is_signed_by_the_key_it_names() {
        let key: Arc<dyn NodeSigner> = Arc::new(SoftKey::generate().unwrap());
        let der = certificate_request(&key).unwrap();
        let (rest, request) = <x509_parser::certification_request::X509CertificationRequest<'_> as
            x509_parser::prelude::FromDer<'_, _>>::from_der(&der).unwrap();
        assert!(rest.is_empty());
        let info = &request.certification_request_info;
        assert_eq!(info.subject_pki.subject_public_key.data.as_ref(), key.public_point());
        assert_eq!(info.subject.iter().count(), 0);
    }
}
