//! Node certificates: everything in them is control's choice, nothing of the request but the key.

use rcgen::{ExtendedKeyUsagePurpose, KeyUsagePurpose, SanType, SubjectPublicKeyInfo, string::Ia5String};
use rustls_pki_types::CertificateDer;
use time::{Duration, OffsetDateTime};
use x509_parser::extensions::GeneralName;

use super::{Authority, CaError, params_for};

/// Agents renew in time; a stolen disk's certificate ends soon.
const NODE_VALIDITY: Duration = Duration::days(30);
const URI_PREFIX: &str = "ironwright:node/";

impl Authority {
    /// A certificate for the node that holds the key: CN = node id, one URI SAN, EKU clientAuth, 30 days.
    pub(crate) fn issue_node(
        &self,
        node_id: &str,
        spki_der: &[u8],
        now: OffsetDateTime,
    ) -> Result<CertificateDer<'static>, CaError> {
        let subject = || format!("node {node_id}");
        let key = SubjectPublicKeyInfo::from_der(spki_der).map_err(CaError::issue(subject()))?;
        let uri = Ia5String::try_from(format!("{URI_PREFIX}{node_id}")).map_err(CaError::issue(subject()))?;
        let mut params = params_for(node_id, now, NODE_VALIDITY);
        params.subject_alt_names = vec![SanType::URI(uri)];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &self.issuer).map_err(CaError::issue(subject()))?;
        Ok(certificate.der().clone())
    }
}

/// The node id of a verified certificate: of its one URI SAN, and of nothing else. `None` for a certificate
/// that is not a node's.
pub(crate) fn node_id_of(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let names = parsed.subject_alternative_name().ok()??;
    match names.value.general_names.as_slice() {
        [GeneralName::URI(uri)] => {
            uri.strip_prefix(URI_PREFIX).filter(|id| !id.is_empty()).map(str::to_owned)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{KeyPair, PublicKeyData};

    use super::*;

    #[test]
    fn a_node_certificate_holds_what_control_chose() {
        let dir = tempfile::tempdir().unwrap();
        let now = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
        let ca = Authority::create(dir.path(), now).unwrap();
        let key = KeyPair::generate().unwrap();
        let der = ca.issue_node("n-1", &key.subject_public_key_info(), now).unwrap();

        let (_, parsed) = x509_parser::parse_x509_certificate(&der).unwrap();
        assert_eq!(parsed.subject().to_string(), "CN=n-1");
        assert_eq!(parsed.validity().not_after.timestamp(), 1_800_000_000 + 30 * 86_400);
        assert_eq!(parsed.public_key().raw, key.subject_public_key_info());
        let usage = parsed.extended_key_usage().unwrap().unwrap().value;
        assert!(usage.client_auth && !usage.server_auth && !usage.any);
        assert!(!parsed.is_ca());
        assert_eq!(node_id_of(&der).as_deref(), Some("n-1"));
        assert_eq!(node_id_of(ca.certificate()), None);
    }

    #[test]
    fn a_key_that_is_none_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let now = OffsetDateTime::now_utc();
        let ca = Authority::create(dir.path(), now).unwrap();
        assert!(matches!(ca.issue_node("n-1", b"no key", now), Err(CaError::Issue { .. })));
    }
}
