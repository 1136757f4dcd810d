//! TLS towards control: the one pinned CA, and the node's own key as client certificate.
//!
//! Servers send leaf and CA. The CA is the certificate of the chain whose DER has the pinned SHA-256; it
//! becomes the only trust anchor of an ordinary RFC 5280 path check of the leaf.

use std::sync::{Arc, OnceLock};

use ironwright_proto::ids::Digest;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, OtherError, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature},
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use sha2::{Digest as _, Sha256};

/// Whether validity times of certificates count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Times {
    /// Ordinary checking.
    Checked,
    /// For a machine without a clock, and for nothing but `Join.Time`: the leaf is checked as of the
    /// moment it became valid.
    Ignored,
}

/// The server's chain does not hold the CA that this agent was told to trust.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the server's certificate chain has no CA with the pinned digest {0}")]
pub struct WrongCa(pub Digest);

/// Why a certificate is not one of control's.
#[derive(Debug, thiserror::Error)]
pub enum ChainError {
    /// The pin names none of the certificates.
    #[error(transparent)]
    WrongCa(#[from] WrongCa),
    /// The pinned CA did not issue it, or not for this purpose, name or time.
    #[error("checking a certificate against the pinned CA")]
    Invalid(#[from] webpki::Error),
    /// Not a certificate at all.
    #[error("a certificate cannot be parsed")]
    Malformed,
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Finds the pinned CA in `chain`.
pub(crate) fn find_ca<'a, 'c>(
    chain: &'a [CertificateDer<'c>],
    pin: Digest,
) -> Result<&'a CertificateDer<'c>, WrongCa> {
    chain.iter().find(|der| <[u8; 32]>::from(Sha256::digest(der.as_ref())) == pin.0).ok_or(WrongCa(pin))
}

/// Checks that `ca` issued `leaf` for a TLS server; returns what a name can be checked on.
pub(crate) fn check_server_leaf<'a>(
    leaf: &'a CertificateDer<'a>,
    ca: &CertificateDer<'_>,
    now: UnixTime,
    times: Times,
) -> Result<webpki::EndEntityCert<'a>, ChainError> {
    let at = match times {
        Times::Checked => now,
        Times::Ignored => not_before(leaf)?,
    };
    check_leaf(leaf, ca, at, webpki::KeyUsage::server_auth())
}

/// Checks that `ca` issued `leaf` for a TLS client.
pub(crate) fn check_node_leaf(
    leaf: &CertificateDer<'_>,
    ca: &CertificateDer<'_>,
    at: UnixTime,
) -> Result<(), ChainError> {
    check_leaf(leaf, ca, at, webpki::KeyUsage::client_auth()).map(|_| ())
}

fn check_leaf<'a>(
    leaf: &'a CertificateDer<'a>,
    ca: &CertificateDer<'_>,
    at: UnixTime,
    usage: webpki::KeyUsage,
) -> Result<webpki::EndEntityCert<'a>, ChainError> {
    let parsed = webpki::EndEntityCert::try_from(leaf)?;
    let anchor = [webpki::anchor_from_trusted_cert(ca)?];
    let algorithms = provider().signature_verification_algorithms.all;
    parsed.verify_for_usage(algorithms, &anchor, &[], at, usage, None, None)?;
    Ok(parsed)
}

fn not_before(cert: &CertificateDer<'_>) -> Result<UnixTime, ChainError> {
    let (_, parsed) = x509_parser::parse_x509_certificate(cert).map_err(|_| ChainError::Malformed)?;
    let seconds =
        u64::try_from(parsed.validity().not_before.timestamp()).map_err(|_| ChainError::Malformed)?;
    Ok(UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds)))
}

/// Trusts exactly the CA with the pinned digest.
#[derive(Debug)]
pub(crate) struct PinnedCa {
    pin: Digest,
    times: Times,
    algorithms: WebPkiSupportedAlgorithms,
    seen: OnceLock<CertificateDer<'static>>,
}

impl PinnedCa {
    pub(crate) fn new(pin: Digest, times: Times) -> Arc<Self> {
        let algorithms = provider().signature_verification_algorithms;
        Arc::new(Self { pin, times, algorithms, seen: OnceLock::new() })
    }

    /// The CA itself, once a server has shown it.
    pub(crate) fn ca(&self) -> Option<CertificateDer<'static>> {
        self.seen.get().cloned()
    }
}

impl ServerCertVerifier for PinnedCa {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let ca = find_ca(intermediates, self.pin).map_err(refuse)?;
        let leaf = check_server_leaf(end_entity, ca, now, self.times).map_err(refuse)?;
        leaf.verify_is_valid_for_subject_name(server_name).map_err(refuse)?;
        self.seen.get_or_init(|| ca.clone().into_owned());
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }

    fn root_hint_subjects(&self) -> Option<&[DistinguishedName]> {
        None
    }
}

fn refuse(err: impl std::error::Error + Send + Sync + 'static) -> rustls::Error {
    rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(err))))
}

/// TLS for whoever has no node identity, as the operator's command line: the CA with the pinned digest is
/// trusted, no certificate is shown, no ALPN is set.
pub fn pinned_client_config(pin: Digest) -> Result<Arc<ClientConfig>, rustls::Error> {
    let pinned = PinnedCa::new(pin, Times::Checked);
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let trusting = builder.dangerous().with_custom_certificate_verifier(pinned);
    Ok(Arc::new(trusting.with_no_client_auth()))
}

/// A client that shows no certificate.
pub(crate) fn anonymous_client(verifier: Arc<PinnedCa>) -> ClientConfig {
    builder(verifier).with_no_client_auth()
}

/// A client that shows what `resolver` gives.
pub(crate) fn node_client(
    pin: Digest,
    resolver: Arc<dyn rustls::client::ResolvesClientCert>,
) -> ClientConfig {
    builder(PinnedCa::new(pin, Times::Checked)).with_client_cert_resolver(resolver)
}

fn builder(verifier: Arc<PinnedCa>) -> rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert> {
    ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("ring supports the default versions")
        .dangerous()
        .with_custom_certificate_verifier(verifier)
}
