//! A CA as control has one: self-signed P-256, issuing server and node certificates directly.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ironwright_proto::{ids::Digest, wire::JoinGrant};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, CertifiedIssuer, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, PKCS_ECDSA_P256_SHA256, date_time_ymd,
};
use rustls_pki_types::{CertificateDer, CertificateSigningRequestDer};
use sha2::{Digest as _, Sha256};

/// Validity, as years.
pub(crate) type Years = (i32, i32);
/// Now, whenever the test runs.
pub(crate) const CURRENT: Years = (2020, 2099);
/// Not valid any more.
pub(crate) const EXPIRED: Years = (2010, 2011);

pub(crate) struct Authority {
    ca: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = params("test control CA", CURRENT);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self { ca: CertifiedIssuer::self_signed(params, key()).unwrap() }
    }

    pub(crate) fn der(&self) -> CertificateDer<'static> {
        self.ca.der().clone()
    }

    pub(crate) fn pin(&self) -> Digest {
        Digest(Sha256::digest(self.ca.der()).into())
    }

    /// A server certificate for 127.0.0.1, and its key.
    pub(crate) fn server(&self, years: Years) -> (Vec<CertificateDer<'static>>, KeyPair) {
        self.leaf(ExtendedKeyUsagePurpose::ServerAuth, years)
    }

    /// A client's, as a node has it.
    pub(crate) fn client(&self) -> (Vec<CertificateDer<'static>>, KeyPair) {
        self.leaf(ExtendedKeyUsagePurpose::ClientAuth, CURRENT)
    }

    fn leaf(&self, usage: ExtendedKeyUsagePurpose, years: Years) -> (Vec<CertificateDer<'static>>, KeyPair) {
        let key = key();
        let mut params = params("leaf", years);
        params.subject_alt_names =
            CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().subject_alt_names;
        params.extended_key_usages = vec![usage];
        let leaf = params.signed_by(&key, &self.ca).unwrap();
        (vec![leaf.der().clone(), self.der()], key)
    }

    /// What control answers to a join: a node certificate for the key of the request.
    pub(crate) fn grant(&self, csr_der: &[u8], node_id: &str, gateway_url: &str, years: Years) -> JoinGrant {
        self.certify(csr_der, node_id, gateway_url, params(node_id, years))
    }

    /// The same, from this second on and for `life`.
    pub(crate) fn brief_grant(
        &self,
        csr: &[u8],
        node_id: &str,
        gateway_url: &str,
        life: Duration,
    ) -> JoinGrant {
        let now = Duration::from_secs(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs());
        let mut params = params(node_id, CURRENT);
        params.not_before = date_time_ymd(1970, 1, 1) + now;
        params.not_after = params.not_before + life;
        self.certify(csr, node_id, gateway_url, params)
    }

    fn certify(
        &self,
        csr_der: &[u8],
        node_id: &str,
        gateway_url: &str,
        params: CertificateParams,
    ) -> JoinGrant {
        let request = CertificateSigningRequestDer::from(csr_der);
        let mut request = CertificateSigningRequestParams::from_der(&request).unwrap();
        request.params = params;
        request.params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let leaf = request.signed_by(&self.ca).unwrap();
        JoinGrant {
            node_id: node_id.to_owned(),
            chain: vec![leaf.der().to_vec(), self.der().to_vec()],
            gateway_url: gateway_url.to_owned(),
        }
    }
}

fn key() -> KeyPair {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap()
}

fn params(name: &str, (from, to): Years) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = date_time_ymd(from, 1, 1);
    params.not_after = date_time_ymd(to, 1, 1);
    params
}
