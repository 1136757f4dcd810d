//! The machine's half of a join, through libtss2.
//!
//! ```text
//!            begin_join            activate              quote
//!   (idle) ───────────▶ (begun) ───────────▶ (activated) ─────▶ (activated)
//!      ▲                   │  a credential is opened once a join, right or wrong
//!      └── begin_join starts over from any state ──┘
//! ```
//! The library logs to standard error by itself. Whoever starts the process silences it with
//! `TSS2_LOG=all+NONE` in the environment; doing so from inside would not be thread-safe.
//!
//! Sessions are not encrypted: an endorsement key on a discrete TPM's bus is not protected from someone who
//! listens there.

mod connection;
mod endorsement;
mod error;
mod node_key;
mod objects;
mod quote;

use std::sync::Arc;

use ironwright_proto::wire::{JoinBegin, JoinClaim};
use rcgen::{CertificateParams, DistinguishedName};
use sha2::{Digest as _, Sha256};
use tss_esapi::{
    constants::response_code::Tss2ResponseCodeKind,
    interface_types::session_handles::AuthSession,
    structures::{Data, EncryptedSecret, IdObject, SignatureScheme},
    traits::Marshall,
};

use self::{
    connection::Connection,
    endorsement::Profile,
    objects::{SavedKey, save_endorsement_primary, with_created, with_saved},
};
pub use self::{
    error::DeviceError,
    node_key::{NodeKey, NodeKeyBlobs},
    quote::Quote,
};
use crate::{
    join::{self, Secret},
    structures::name_sha256,
    templates::ATTESTATION_KEY,
    verify::check_certificate_fits,
};

/// Quotes taken until one is of the values read after it.
const MAX_QUOTES: u32 = 5;

/// A TPM 2.0.
pub struct Tpm {
    connection: Connection,
    join: Option<Join>,
}

/// A join in progress.
struct Join {
    profile: &'static Profile,
    /// Taken by the one activation.
    ek: Option<SavedKey>,
    ak: SavedKey,
    node_key: Arc<NodeKey>,
}

/// The first round's fields that come from the TPM, and the names that go into the quote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinMaterial {
    /// As in NV; empty where the TPM has none.
    pub ek_certs: Vec<Vec<u8>>,
    /// As in NV; empty where the TPM has none.
    pub ek_ca_chain: Vec<Vec<u8>>,
    /// `TPMT_PUBLIC`.
    pub ek_pub: Vec<u8>,
    /// `TPMT_PUBLIC`.
    pub ak_pub: Vec<u8>,
    /// `TPMT_PUBLIC`.
    pub node_pub: Vec<u8>,
    /// PKCS#10 with an empty subject.
    pub csr_der: Vec<u8>,
    /// `TPMS_ATTEST`.
    pub certify_attest: Vec<u8>,
    /// `TPMT_SIGNATURE`.
    pub certify_sig: Vec<u8>,
}

impl JoinMaterial {
    /// The message of the first round.
    pub fn into_begin(self, agent_nonce: [u8; 32], claim: JoinClaim) -> JoinBegin {
        JoinBegin {
            version: 1,
            agent_nonce: agent_nonce.to_vec(),
            ek_certs: self.ek_certs,
            ek_ca_chain: self.ek_ca_chain,
            ek_pub: self.ek_pub,
            ak_pub: self.ak_pub,
            node_pub: self.node_pub,
            csr_der: self.csr_der,
            certify_attest: self.certify_attest,
            certify_sig: self.certify_sig,
            claim: Some(claim),
        }
    }

    /// Qualifying data of this join's quote ([`join::quote_extra`]).
    pub fn quote_extra(&self, join_id: &[u8; 16], nonce: &[u8; 32]) -> [u8; 32] {
        let (ak_name, node_name) = (name_sha256(&self.ak_pub), name_sha256(&self.node_pub));
        join::quote_extra(join_id, nonce, &ak_name, &node_name, &Sha256::digest(&self.csr_der).into())
    }
}

impl Tpm {
    /// Opens a TPM: `device:/dev/tpmrm0` or `swtpm:host=…,port=…`.
    pub fn open(tcti: &str) -> Result<Self, DeviceError> {
        Ok(Self { connection: Connection::open(tcti)?, join: None })
    }

    /// Starts a join with a new node key.
    pub fn begin_join(&mut self) -> Result<JoinMaterial, DeviceError> {
        let node_key = NodeKey::create(&self.connection)?;
        self.begin(node_key)
    }

    /// Starts a join with a node key that this TPM made before.
    pub fn begin_join_with(&mut self, blobs: NodeKeyBlobs) -> Result<JoinMaterial, DeviceError> {
        let node_key = NodeKey::open(&self.connection, blobs)?;
        self.begin(node_key)
    }

    fn begin(&mut self, node_key: NodeKey) -> Result<JoinMaterial, DeviceError> {
        self.join = None;
        let (profile, certificate) =
            self.connection.run("reading the endorsement certificate", endorsement::choose)?;
        let ca_chain = self.connection.run("reading the endorsement CA chain", endorsement::read_ca_chain)?;
        let ek = self.connection.run("making the endorsement key", |context| {
            save_endorsement_primary(context, profile.template, profile.unique)
        })?;
        if let Some(certificate) = &certificate {
            check_certificate_fits(&ek.public, certificate).map_err(DeviceError::EndorsementCertificate)?;
        }
        let ak = self.connection.run("making the attestation key", |context| {
            save_endorsement_primary(context, &ATTESTATION_KEY, &[0, 0])
        })?;

        let csr_der = request(&node_key)?;
        let (certify_attest, certify_sig) = self.certify(&node_key, &ak, &csr_der)?;
        let material = JoinMaterial {
            ek_certs: certificate.into_iter().collect(),
            ek_ca_chain: if ca_chain.is_empty() { Vec::new() } else { vec![ca_chain] },
            ek_pub: ek.public.clone(),
            ak_pub: ak.public.clone(),
            node_pub: node_key.blobs().public.clone(),
            csr_der,
            certify_attest,
            certify_sig,
        };
        self.join = Some(Join { profile, ek: Some(ek), ak, node_key: Arc::new(node_key) });
        Ok(material)
    }

    /// The attestation key's word that the node key is in this TPM, for this request.
    fn certify(
        &self,
        node_key: &NodeKey,
        ak: &SavedKey,
        csr_der: &[u8],
    ) -> Result<(Vec<u8>, Vec<u8>), DeviceError> {
        let csr_sha256 = Sha256::digest(csr_der);
        self.connection.run("certifying the node key", |context| {
            let extra = Data::try_from(csr_sha256.as_slice())?;
            with_created(context, node_key.blobs(), |context, node| {
                with_saved(context, ak, |context, ak| {
                    let sessions = (Some(AuthSession::Password), Some(AuthSession::Password), None);
                    let (attest, signature) = context.execute_with_sessions(sessions, |context| {
                        context.certify(node.into(), ak, extra, SignatureScheme::Null)
                    })?;
                    Ok((attest.marshall()?, signature.marshall()?))
                })
            })
        })
    }

    /// Opens the credential of the challenge: the bodies of `TPM2B_ID_OBJECT` and `TPM2B_ENCRYPTED_SECRET`.
    ///
    /// Works once a join, so that the TPM is no oracle for other people's credentials.
    pub fn activate(&mut self, blob: &[u8], encrypted_secret: &[u8]) -> Result<Secret, DeviceError> {
        const DOING: &str = "opening the credential";
        let join = self.join.as_mut().ok_or(DeviceError::NoJoin)?;
        let ek = join.ek.take().ok_or(DeviceError::NoJoin)?;
        let opened = self.connection.run(DOING, |context| {
            let blob = IdObject::try_from(blob)?;
            let encrypted = EncryptedSecret::try_from(encrypted_secret)?;
            with_saved(context, &ek, |context, ek| {
                with_saved(context, &join.ak, |context, ak| {
                    endorsement::activate(context, join.profile, ek, ak, blob, encrypted)
                })
            })
        });
        let secret = opened.map_err(|error| match error {
            DeviceError::Tpm { source, .. } if is_foreign(source) => DeviceError::ForeignCredential,
            other => other,
        })?;
        Secret::from_slice(&secret).ok_or(DeviceError::Answer(DOING))
    }

    /// Quotes the SHA-256 bank's PCRs in `mask` (bit n is PCR n) with the join's attestation key.
    pub fn quote(&mut self, extra: &[u8; 32], mask: u32) -> Result<Quote, DeviceError> {
        let join = self.join.as_ref().ok_or(DeviceError::NoJoin)?;
        let slots = quote::slots(mask).ok_or(DeviceError::Mask(mask))?;
        for _ in 0..MAX_QUOTES {
            let quoted = self.connection.run("quoting", |context| {
                with_saved(context, &join.ak, |context, ak| quote::quote(context, ak, extra, &slots))
            })?;
            if let Some(quote) = quoted {
                return Ok(quote);
            }
        }
        Err(DeviceError::PcrsChanging(MAX_QUOTES))
    }

    /// The node key of the join that was begun last.
    pub fn node_key(&self) -> Result<Arc<NodeKey>, DeviceError> {
        let join = self.join.as_ref().ok_or(DeviceError::NoJoin)?;
        Ok(Arc::clone(&join.node_key))
    }
}

/// A PKCS#10 request with nothing in it but the key: control chooses what the certificate says.
fn request(key: &NodeKey) -> Result<Vec<u8>, DeviceError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    Ok(params.serialize_request(key).map_err(DeviceError::Csr)?.der().to_vec())
}

/// What a TPM answers to a credential that is not for it, by the part that does not fit: the integrity of the
/// blob, or the padding, size or point of the encrypted seed.
fn is_foreign(source: tss_esapi::Error) -> bool {
    use Tss2ResponseCodeKind as Kind;
    matches!(
        error::kind(source),
        Some(Kind::Integrity | Kind::Value | Kind::Size | Kind::EccPoint | Kind::Insufficient)
    )
}
