//! Who this agent is: node id, key, and the certificate that control gave for it.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, RwLock},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use ironwright_proto::{Message, ids::Digest, wire::JoinGrant};
use rustls::{
    ClientConfig, SignatureScheme,
    client::ResolvesClientCert,
    sign::{CertifiedKey, SigningKey},
};
use rustls_pki_types::{CertificateDer, UnixTime};

use crate::{
    keys::{KeyError, NodeSigner, TlsKey, certificate_request, write_private},
    tls::{self, ChainError},
};

const MAX_NODE_ID: usize = 128;
const MAX_CHAIN: usize = 4;
/// A grant is two certificates and two short texts.
const MAX_GRANT_FILE: u64 = 64 * 1024;

/// Why a grant is not ours to use.
#[derive(Debug, thiserror::Error)]
pub enum GrantError {
    /// A field that no control plane sends like this.
    #[error("the grant's {0} is malformed")]
    Malformed(&'static str),
    /// It certifies somebody else's key.
    #[error("the granted certificate is not for this node's key")]
    OtherKey,
    /// Not by the pinned CA.
    #[error("checking the granted certificate")]
    Chain(#[from] ChainError),
    /// The copy on disk.
    #[error("{doing} the stored identity {path}")]
    File {
        /// "reading", "writing".
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// A node's identity. Cheap to clone; clones share renewals of the certificate.
#[derive(Debug, Clone)]
pub struct Identity(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    node_id: String,
    ca_pin: Digest,
    key: Arc<dyn NodeSigner>,
    credentials: RwLock<Arc<Credentials>>,
    file: Option<PathBuf>,
}

/// What renewal replaces.
#[derive(Debug)]
struct Credentials {
    gateway_url: String,
    certified: Arc<CertifiedKey>,
    not_before: Duration,
    not_after: Duration,
}

impl Identity {
    /// Checks a grant for `key` against the pinned CA; keeps a copy in `file` where one is named.
    pub fn from_grant(
        grant: &JoinGrant,
        key: Arc<dyn NodeSigner>,
        ca_pin: Digest,
        file: Option<PathBuf>,
    ) -> Result<Self, GrantError> {
        let credentials = Credentials::check(grant, &key, ca_pin)?;
        if let Some(path) = &file {
            store(path, grant)?;
        }
        let credentials = RwLock::new(Arc::new(credentials));
        Ok(Self(Arc::new(Inner { node_id: grant.node_id.clone(), ca_pin, key, credentials, file })))
    }

    /// Reads the identity that an earlier start left in `file`. `None` where there is none, or where it has
    /// expired, is for another key or of another control plane: then the agent has to join.
    pub(crate) fn stored(
        file: &Path,
        key: &Arc<dyn NodeSigner>,
        ca_pin: Digest,
        now: SystemTime,
    ) -> Result<Option<Self>, GrantError> {
        let reading = |source| GrantError::File { doing: "reading", path: file.to_owned(), source };
        let bytes = match fs::File::open(file) {
            Ok(open) => {
                let mut bytes = Vec::new();
                io::Read::read_to_end(&mut io::Read::take(open, MAX_GRANT_FILE), &mut bytes)
                    .map_err(reading)?;
                bytes
            }
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(err) => return Err(reading(err)),
        };
        let Ok(grant) = JoinGrant::decode(bytes.as_slice()) else { return Ok(None) };
        let Ok(credentials) = Credentials::check(&grant, key, ca_pin) else { return Ok(None) };
        if credentials.expired(now) {
            return Ok(None);
        }
        let credentials = RwLock::new(Arc::new(credentials));
        let (node_id, key, file) = (grant.node_id, key.clone(), Some(file.to_owned()));
        Ok(Some(Self(Arc::new(Inner { node_id, ca_pin, key, credentials, file }))))
    }

    /// The node id that control gave.
    pub fn node_id(&self) -> &str {
        &self.0.node_id
    }

    /// `https://host:port` of the gateway.
    pub fn gateway_url(&self) -> String {
        self.credentials().gateway_url.clone()
    }

    /// The pin of control's CA.
    pub fn ca_pin(&self) -> Digest {
        self.0.ca_pin
    }

    /// The certificates in DER: node first, control's CA last.
    pub fn chain(&self) -> Vec<CertificateDer<'static>> {
        self.credentials().certified.cert.clone()
    }

    /// TLS that trusts the pinned CA alone and shows the node's newest certificate. No ALPN is set.
    pub fn client_config(&self) -> ClientConfig {
        tls::node_client(self.0.ca_pin, Arc::new(NewestCertificate(self.clone())))
    }

    /// Signs with the node key: ECDSA P-256 over the SHA-256 of `message`, in DER. May take milliseconds
    /// where the key is in a TPM.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        self.0.key.sign(message)
    }

    pub(crate) fn certificate_request(&self) -> Result<Vec<u8>, KeyError> {
        certificate_request(&self.0.key)
    }

    /// When the certificate should be renewed: two thirds into its life.
    pub(crate) fn renew_at(&self) -> SystemTime {
        let credentials = self.credentials();
        let life = credentials.not_after.saturating_sub(credentials.not_before);
        UNIX_EPOCH + credentials.not_before + life * 2 / 3
    }

    /// Whether the certificate's life is over: no gateway takes it any more, not even to renew it.
    pub(crate) fn expired(&self, now: SystemTime) -> bool {
        self.credentials().expired(now)
    }

    /// Takes a renewed certificate for the same key and node.
    pub(crate) fn renew(&self, grant: &JoinGrant) -> Result<(), GrantError> {
        if grant.node_id != self.0.node_id {
            return Err(GrantError::Malformed("node_id"));
        }
        let credentials = Credentials::check(grant, &self.0.key, self.0.ca_pin)?;
        if let Some(path) = &self.0.file {
            store(path, grant)?;
        }
        *self.0.credentials.write().expect("no holder of this lock panics") = Arc::new(credentials);
        Ok(())
    }

    fn credentials(&self) -> Arc<Credentials> {
        self.0.credentials.read().expect("no holder of this lock panics").clone()
    }
}

impl Credentials {
    fn check(grant: &JoinGrant, key: &Arc<dyn NodeSigner>, ca_pin: Digest) -> Result<Self, GrantError> {
        if grant.node_id.is_empty() || grant.node_id.len() > MAX_NODE_ID {
            return Err(GrantError::Malformed("node_id"));
        }
        if !grant.gateway_url.starts_with("https://") {
            return Err(GrantError::Malformed("gateway_url"));
        }
        if !(2..=MAX_CHAIN).contains(&grant.chain.len()) {
            return Err(GrantError::Malformed("chain"));
        }
        let chain: Vec<CertificateDer<'static>> =
            grant.chain.iter().map(|der| CertificateDer::from(der.clone())).collect();
        let (_, leaf) = x509_parser::parse_x509_certificate(&chain[0]).map_err(|_| ChainError::Malformed)?;
        if leaf.public_key().subject_public_key.data.as_ref() != key.public_point() {
            return Err(GrantError::OtherKey);
        }
        let seconds = |time: x509_parser::time::ASN1Time| {
            u64::try_from(time.timestamp()).map(Duration::from_secs).map_err(|_| ChainError::Malformed)
        };
        let not_before = seconds(leaf.validity().not_before)?;
        let not_after = seconds(leaf.validity().not_after)?;
        let ca = tls::find_ca(&chain[1..], ca_pin).map_err(ChainError::from)?;
        tls::check_node_leaf(&chain[0], ca, UnixTime::since_unix_epoch(not_before))?;
        let key: Arc<dyn SigningKey> = Arc::new(TlsKey(key.clone()));
        let certified = Arc::new(CertifiedKey::new(chain, key));
        Ok(Self { gateway_url: grant.gateway_url.clone(), certified, not_before, not_after })
    }

    fn expired(&self, now: SystemTime) -> bool {
        self.not_after <= since_epoch(now)
    }
}

fn store(path: &Path, grant: &JoinGrant) -> Result<(), GrantError> {
    write_private(path, &grant.encode_to_vec()).map_err(|source| GrantError::File {
        doing: "writing",
        path: path.to_owned(),
        source,
    })
}

fn since_epoch(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Each handshake shows the certificate of that moment, so that renewals need no new client.
#[derive(Debug)]
struct NewestCertificate(Identity);

impl ResolvesClientCert for NewestCertificate {
    fn resolve(&self, _hints: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        schemes
            .contains(&SignatureScheme::ECDSA_NISTP256_SHA256)
            .then(|| self.0.credentials().certified.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, CertificateSigningRequestParams, CertifiedIssuer,
        ExtendedKeyUsagePurpose, IsCa, KeyPair, date_time_ymd,
    };
    use sha2::{Digest as _, Sha256};

    use super::*;
    use crate::keys::SoftKey;

    /// A key, a grant for it from 2020 to 2050, and the pin of the CA that gave it.
    fn granted() -> (Arc<dyn NodeSigner>, JoinGrant, Digest) {
        let key: Arc<dyn NodeSigner> = Arc::new(SoftKey::generate().unwrap());
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let request = certificate_request(&key).unwrap().into();
        let mut request = CertificateSigningRequestParams::from_der(&request).unwrap();
        request.params.not_before = date_time_ymd(2020, 1, 1);
        request.params.not_after = date_time_ymd(2050, 1, 1);
        request.params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let leaf = request.signed_by(&ca).unwrap();
        let grant = JoinGrant {
            node_id: "n-1".into(),
            chain: vec![leaf.der().to_vec(), ca.der().to_vec()],
            gateway_url: "https://127.0.0.1:1".into(),
        };
        (key, grant, Digest(Sha256::digest(ca.der()).into()))
    }

    /// An identity whose gateway nobody runs.
    pub(crate) fn identity() -> Identity {
        let (key, grant, pin) = granted();
        Identity::from_grant(&grant, key, pin, None).unwrap()
    }

    #[test]
    fn renewal_is_due_when_two_thirds_are_over() {
        // 2020 to 2050 are 10958 days, of which 7305 1/3 bring us into the first days of 2040.
        let due = identity().renew_at().duration_since(UNIX_EPOCH).unwrap();
        assert_eq!(due.as_secs(), 1_577_836_800 + 10_958 * 86_400 * 2 / 3);
    }

    #[test]
    fn a_certificate_expires_when_its_last_second_begins() {
        // 2020 to 2050 are 10958 days.
        let end = UNIX_EPOCH + Duration::from_secs(1_577_836_800 + 10_958 * 86_400);
        assert!(!identity().expired(end - Duration::from_secs(1)));
        assert!(identity().expired(end));
    }

    #[test]
    fn malformed_grants_are_named() {
        let (key, good, pin) = granted();
        let refused = |change: fn(&mut JoinGrant)| {
            let mut grant = good.clone();
            change(&mut grant);
            Identity::from_grant(&grant, key.clone(), pin, None).unwrap_err()
        };
        assert!(matches!(refused(|g| g.node_id.clear()), GrantError::Malformed("node_id")));
        assert!(matches!(
            refused(|g| g.gateway_url = "http://x".into()),
            GrantError::Malformed("gateway_url")
        ));
        assert!(matches!(refused(|g| g.chain.truncate(1)), GrantError::Malformed("chain")));
        assert!(matches!(refused(|g| g.chain[0] = vec![0x30]), GrantError::Chain(ChainError::Malformed)));
        assert!(matches!(
            refused(|g| g.chain[1] = g.chain[0].clone()),
            GrantError::Chain(ChainError::WrongCa(_))
        ));
    }

    #[test]
    fn a_renewal_for_another_node_is_refused() {
        let (key, mut grant, pin) = granted();
        let identity = Identity::from_grant(&grant, key, pin, None).unwrap();
        identity.renew(&grant).unwrap();
        grant.node_id = "n-2".into();
        assert!(matches!(identity.renew(&grant), Err(GrantError::Malformed("node_id"))));
    }

    #[test]
    fn a_damaged_copy_is_as_good_as_none() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("identity.pb");
        let (key, grant, pin) = granted();
        let read = || Identity::stored(&file, &key, pin, SystemTime::now()).unwrap();
        assert!(read().is_none());
        Identity::from_grant(&grant, key.clone(), pin, Some(file.clone())).unwrap();
        assert_eq!(read().unwrap().node_id(), "n-1");
        fs::write(&file, b"\xff\xff").unwrap();
        assert!(read().is_none());
    }
}
