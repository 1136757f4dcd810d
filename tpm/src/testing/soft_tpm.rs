//! A TPM in software that can also lie: it signs whatever a test wants under its attestation key.

use ironwright_proto::wire::{JoinBegin, JoinFinish};
use p256::ecdsa::{Signature, SigningKey, signature::Signer};
use sha2::{Digest, Sha256};

use super::ek_cert::{KEY_AGREEMENT, Spec, pem, spki};
use crate::{
    structures::name_sha256,
    templates::{ATTESTATION_KEY, EK_P256, NODE_KEY, Template},
    verify::EkRoots,
};

const CERTIFY: u16 = 0x8017;
const QUOTE: u16 = 0x8018;

pub(crate) struct SoftTpm {
    pub(crate) maker: SigningKey,
    pub(crate) ek: SigningKey,
    pub(crate) ak: SigningKey,
    pub(crate) node: SigningKey,
}

impl SoftTpm {
    /// Different seeds make different keys, but always by the same manufacturer.
    pub(crate) fn new(seed: u8) -> Self {
        let key = |low| SigningKey::from_slice(&[[seed; 16], [low; 16]].concat()).unwrap();
        let maker = SigningKey::from_slice(&[0x77; 32]).unwrap();
        Self { maker, ek: key(1), ak: key(2), node: key(3) }
    }

    /// The roots that trust its manufacturer.
    pub(crate) fn roots(&self) -> EkRoots {
        EkRoots::from_pem(&pem(&Spec::ca("Maker", "Maker", &self.maker).sign(&self.maker))).unwrap()
    }

    /// The first round of an honest machine.
    pub(crate) fn begin(&self) -> JoinBegin {
        let csr_der = request(&self.node);
        let certify_attest = certification(&public(&NODE_KEY, &self.node), &csr_der);
        JoinBegin {
            version: 1,
            agent_nonce: vec![9; 32],
            ek_certs: vec![Spec::ek(spki(&self.ek), KEY_AGREEMENT).sign(&self.maker)],
            ek_pub: public(&EK_P256, &self.ek),
            ak_pub: self.ak_pub(),
            node_pub: public(&NODE_KEY, &self.node),
            certify_sig: self.ak_sign(&certify_attest),
            csr_der,
            certify_attest,
            ..JoinBegin::default()
        }
    }

    pub(crate) fn ak_pub(&self) -> Vec<u8> {
        public(&ATTESTATION_KEY, &self.ak)
    }

    /// The second round's quote over these SHA-256 PCR values, with any selection.
    pub(crate) fn quote(&self, extra: &[u8; 32], selection: &[u8], values: &[[u8; 32]]) -> JoinFinish {
        let digest = sized(&Sha256::digest(values.concat()));
        let quote_attest = [attest(QUOTE, extra), selection.to_vec(), digest].concat();
        JoinFinish {
            quote_sig: self.ak_sign(&quote_attest),
            quote_attest,
            pcr_values: values.iter().map(|value| value.to_vec()).collect(),
            ..JoinFinish::default()
        }
    }

    /// A `TPMT_SIGNATURE` by the attestation key over any bytes.
    pub(crate) fn ak_sign(&self, message: &[u8]) -> Vec<u8> {
        let signature: Signature = self.ak.sign(message);
        let (r, s) = signature.split_bytes();
        [&[0x00, 0x18, 0x00, 0x0b][..], &sized(&r), &sized(&s)].concat()
    }
}

/// A `TPMS_ATTEST` of `TPM2_Certify` for this public area and request.
pub(crate) fn certification(node_pub: &[u8], csr_der: &[u8]) -> Vec<u8> {
    let name = sized(&name_sha256(node_pub));
    [attest(CERTIFY, &Sha256::digest(csr_der)), name.clone(), name].concat()
}

/// `TPML_PCR_SELECTION` with one bank.
pub(crate) fn selection(bank: u16, mask: u32) -> Vec<u8> {
    [&[0, 0, 0, 1][..], &bank.to_be_bytes(), &[3], &mask.to_le_bytes()[..3]].concat()
}

/// A certificate request signed by `key`.
pub(crate) fn request(key: &SigningKey) -> Vec<u8> {
    use super::der::{OID, bits, seq, tlv};
    let info = seq(&[&[0x02, 0x01, 0x00], &seq(&[]), &spki(key), &[0xa0, 0x00]]);
    let signature: p256::ecdsa::DerSignature = key.sign(&info);
    let algorithm = seq(&[&tlv(OID, &[&[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02]])]);
    seq(&[&info, &algorithm, &bits(signature.as_bytes())])
}

/// The public area of a P-256 key.
pub(crate) fn public(template: &Template, key: &SigningKey) -> Vec<u8> {
    let point = key.verifying_key().to_encoded_point(false);
    [template.prefix(), sized(point.x().unwrap()), sized(point.y().unwrap())].concat()
}

/// The part of `TPMS_ATTEST` that every kind has: reset count 7, clock 1000 ms, safe.
fn attest(kind: u16, extra: &[u8]) -> Vec<u8> {
    let mut out = vec![0xff, b'T', b'C', b'G'];
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend(sized(&[0x5a; 34]));
    out.extend(sized(extra));
    out.extend_from_slice(&1000u64.to_be_bytes());
    out.extend_from_slice(&7u32.to_be_bytes());
    out.extend_from_slice(&0u32.to_be_bytes());
    out.push(1);
    out.extend_from_slice(&0x2019_1023_0016_3636u64.to_be_bytes());
    out
}

fn sized(bytes: &[u8]) -> Vec<u8> {
    [&u16::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
}
