//! TLS of both listeners: rustls with ring, TLS 1.3 only, since every peer is a program of ours.

use std::sync::Arc;

use rustls::{
    RootCertStore, ServerConfig,
    crypto::{CryptoProvider, ring},
    server::{VerifierBuilderError, WebPkiClientVerifier},
    version::TLS13,
};

use crate::ca::{Authority, ServerIdentity};

/// Why TLS cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The server's key and certificate do not fit.
    #[error("preparing TLS with the server's key and certificate")]
    Server(#[from] rustls::Error),
    /// The CA certificate cannot verify clients.
    #[error("preparing the check of node certificates")]
    Clients(#[from] VerifierBuilderError),
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// The API's TLS: clients show nothing. HTTP/2 is for gRPC.
pub(crate) fn api_tls(server: &ServerIdentity) -> Result<Arc<ServerConfig>, TlsError> {
    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_single_cert(server.chain(), server.private_key())?;
    Ok(with_alpn(config))
}

/// The gateway's TLS: no handshake ends without a certificate that control's CA issued for a client.
pub(crate) fn gateway_tls(server: &ServerIdentity, ca: &Authority) -> Result<Arc<ServerConfig>, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add(ca.certificate().clone())?;
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build()?;
    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(server.chain(), server.private_key())?;
    Ok(with_alpn(config))
}

fn with_alpn(mut config: ServerConfig) -> Arc<ServerConfig> {
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Arc::new(config)
}
