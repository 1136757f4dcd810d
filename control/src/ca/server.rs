//! Control's own identity: the server certificate of both listeners, whose key also signs the time.

use std::{net::IpAddr, path::Path, sync::Arc};

use ironwright_proto::{
    Message,
    envelope::{TIME, pre_auth_encoding},
    wire::{Envelope, TimePayload},
};
use rcgen::{
    ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose, PublicKeyData, SanType, SigningKey, string::Ia5String,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use time::{Duration, OffsetDateTime};
use x509_parser::extensions::GeneralName;

use super::{Authority, CaError, new_key, params_for, read_cert, read_key};
use crate::{config::HostName, files};

/// File of the server certificate, in control's folder.
const SERVER_CERT_FILE: &str = "server.crt";
/// File of the server's private key.
const SERVER_KEY_FILE: &str = "server.key";

const SERVER_VALIDITY: Duration = Duration::days(2 * 365);
/// A start with less time left than this makes a new certificate.
const RENEW_BEFORE: Duration = Duration::days(365);
/// Signer of control's own envelopes.
const KEY_ID: &str = "control";

/// The server's key and certificate.
pub(crate) struct ServerIdentity {
    chain: Vec<CertificateDer<'static>>,
    key: KeyPair,
}

impl ServerIdentity {
    /// Makes the server's key and its first certificate.
    pub(crate) fn create(
        dir: &Path,
        ca: &Authority,
        names: &[HostName],
        now: OffsetDateTime,
    ) -> Result<Self, CaError> {
        let key = new_key("the server")?;
        let key_path = dir.join(SERVER_KEY_FILE);
        files::write_new(&key_path, key.serialize_pem().as_bytes()).map_err(CaError::file(&key_path))?;
        Self::issue(dir, ca, key, names, now)
    }

    /// Reads the server's identity. A certificate that is near its end, of another CA or for other names than the
    /// config's is replaced by a new one.
    pub(crate) fn load(
        dir: &Path,
        ca: &Authority,
        names: &[HostName],
        now: OffsetDateTime,
    ) -> Result<Arc<Self>, CaError> {
        let key = read_key(&dir.join(SERVER_KEY_FILE))?;
        let identity = match read_cert(&dir.join(SERVER_CERT_FILE)) {
            Ok(leaf) if is_current(&leaf, ca, &key, names, now) => {
                Self { chain: vec![leaf, ca.certificate().clone()], key }
            }
            _ => {
                tracing::info!("making a new server certificate");
                Self::issue(dir, ca, key, names, now)?
            }
        };
        Ok(Arc::new(identity))
    }

    fn issue(
        dir: &Path,
        ca: &Authority,
        key: KeyPair,
        names: &[HostName],
        now: OffsetDateTime,
    ) -> Result<Self, CaError> {
        let subject = "the server";
        let mut params = params_for("Ironwright control", now, SERVER_VALIDITY);
        params.subject_alt_names =
            names.iter().map(san).collect::<Result<_, _>>().map_err(CaError::issue(subject))?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let leaf = params.signed_by(&key, &ca.issuer).map_err(CaError::issue(subject))?;
        let cert_path = dir.join(SERVER_CERT_FILE);
        files::replace(&cert_path, leaf.pem().as_bytes()).map_err(CaError::file(&cert_path))?;
        Ok(Self { chain: vec![leaf.der().clone(), ca.certificate().clone()], key })
    }

    /// The certificates a server sends: its own, then the CA's.
    pub(crate) fn chain(&self) -> Vec<CertificateDer<'static>> {
        self.chain.clone()
    }

    /// The private key, for the TLS listeners.
    pub(crate) fn private_key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(self.key.serialize_der().into())
    }

    /// Control's time in a signed envelope that repeats the asker's nonce.
    pub(crate) fn time_envelope(&self, nonce: Vec<u8>, unix_ms: i64) -> Result<Envelope, CaError> {
        let payload = TimePayload { nonce, unix_ms }.encode_to_vec();
        let signature =
            self.key.sign(&pre_auth_encoding(TIME, &payload)).map_err(CaError::issue("the time envelope"))?;
        Ok(Envelope {
            payload_type: TIME.to_owned(),
            payload,
            key_id: KEY_ID.to_owned(),
            signature,
            chain: self.chain.iter().map(|certificate| certificate.to_vec()).collect(),
        })
    }
}

fn san(name: &HostName) -> Result<SanType, rcgen::Error> {
    Ok(match name {
        HostName::Ip(address) => SanType::IpAddress(*address),
        HostName::Dns(text) => SanType::DnsName(Ia5String::try_from(text.as_str())?),
    })
}

fn is_current(
    leaf: &CertificateDer<'_>,
    ca: &Authority,
    key: &KeyPair,
    names: &[HostName],
    now: OffsetDateTime,
) -> bool {
    let Ok((_, parsed)) = x509_parser::parse_x509_certificate(leaf) else { return false };
    let Ok((_, issuer)) = x509_parser::parse_x509_certificate(ca.certificate()) else { return false };
    parsed.verify_signature(Some(issuer.public_key())).is_ok()
        && parsed.public_key().raw == key.subject_public_key_info()
        && parsed.validity().not_after.timestamp() > (now + RENEW_BEFORE).unix_timestamp()
        && names_of(&parsed).is_some_and(|found| found == names)
}

fn names_of(certificate: &x509_parser::certificate::X509Certificate<'_>) -> Option<Vec<HostName>> {
    let names = certificate.subject_alternative_name().ok()??;
    names
        .value
        .general_names
        .iter()
        .map(|name| match name {
            GeneralName::DNSName(text) => Some(HostName::Dns((*text).to_owned())),
            GeneralName::IPAddress(octets) => {
                let v4 = <[u8; 4]>::try_from(*octets).map(IpAddr::from);
                v4.or_else(|_| <[u8; 16]>::try_from(*octets).map(IpAddr::from)).ok().map(HostName::Ip)
            }
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use ironwright_proto::envelope;
    use p256::{ecdsa::VerifyingKey, pkcs8::DecodePublicKey};

    use super::*;

    fn names() -> Vec<HostName> {
        ["control.example.net", "10.0.0.1", "fd00::1"].map(|name| name.parse().unwrap()).to_vec()
    }

    #[test]
    fn the_certificate_is_kept_until_it_is_near_its_end_or_the_names_change() {
        let dir = tempfile::tempdir().unwrap();
        let now = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
        let ca = Authority::create(dir.path(), now).unwrap();
        let made = ServerIdentity::create(dir.path(), &ca, &names(), now).unwrap();

        let later = ServerIdentity::load(dir.path(), &ca, &names(), now + Duration::days(100)).unwrap();
        assert_eq!(made.chain(), later.chain());
        let renewed = ServerIdentity::load(dir.path(), &ca, &names(), now + Duration::days(366)).unwrap();
        assert_ne!(made.chain()[0], renewed.chain()[0]);
        let again = ServerIdentity::load(dir.path(), &ca, &names(), now + Duration::days(366)).unwrap();
        assert_eq!(renewed.chain(), again.chain(), "the new one was written");

        let renamed = ServerIdentity::load(dir.path(), &ca, &names()[..1], now).unwrap();
        assert_ne!(renamed.chain()[0], again.chain()[0]);
    }

    #[test]
    fn the_time_is_signed_by_the_key_of_the_first_certificate() {
        let dir = tempfile::tempdir().unwrap();
        let now = OffsetDateTime::now_utc();
        let ca = Authority::create(dir.path(), now).unwrap();
        let server = ServerIdentity::create(dir.path(), &ca, &names(), now).unwrap();
        let signed = server.time_envelope(vec![7; 32], 1_234).unwrap();

        let (_, leaf) = x509_parser::parse_x509_certificate(&signed.chain[0]).unwrap();
        let key = VerifyingKey::from_public_key_der(leaf.public_key().raw).unwrap();
        let payload: TimePayload = envelope::open(&signed, TIME, &key).unwrap();
        assert_eq!(payload, TimePayload { nonce: vec![7; 32], unix_ms: 1_234 });
        assert_eq!(signed.chain[1], ca.certificate().to_vec());
    }
}
