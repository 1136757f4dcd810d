//! Signed messages: DSSE's pre-authentication encoding, signed with ECDSA P-256 and SHA-256.
//!
//! Standard: DSSE protocol v1.0.0 (<https://github.com/secure-systems-lab/dsse>); the container is
//! [`Envelope`] rather than JSON, since it travels on kernel command lines.

use p256::ecdsa::{Signature, VerifyingKey, signature::Verifier};

use crate::wire::Envelope;

/// Payload type of [`crate::wire::TimePayload`].
pub const TIME: &str = "ironwright/time/v1";
/// Payload type of [`crate::wire::SiteAssertion`].
pub const SITE_ASSERTION: &str = "ironwright/site-assertion/v1";

/// Why an envelope is not believed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// Another kind of message than the one wanted; a signature for one purpose is none for another.
    #[error("the envelope carries `{found}` where `{wanted}` is wanted")]
    WrongType {
        /// What the envelope says it carries.
        found: String,
        /// What the caller wants.
        wanted: &'static str,
    },
    /// Not by this key, or not over these bytes.
    #[error("the signature of the envelope from `{key_id}` is not valid")]
    BadSignature {
        /// The signer the envelope names.
        key_id: String,
    },
    /// Signed, yet not a message of the named type.
    #[error("the payload of the `{0}` envelope cannot be decoded")]
    BadPayload(&'static str),
}

/// The bytes that are signed (DSSE PAE).
pub fn pre_auth_encoding(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let mut out = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len()).into_bytes();
    out.extend_from_slice(payload);
    out
}

/// Verifies the signature and the payload type, then decodes the payload.
pub fn open<M: prost::Message + Default>(
    envelope: &Envelope,
    wanted: &'static str,
    key: &VerifyingKey,
) -> Result<M, EnvelopeError> {
    if envelope.payload_type != wanted {
        return Err(EnvelopeError::WrongType {
            found: envelope.payload_type.chars().take(64).collect(),
            wanted,
        });
    }
    let bad = || EnvelopeError::BadSignature { key_id: envelope.key_id.chars().take(64).collect() };
    let signature = Signature::from_der(&envelope.signature).map_err(|_| bad())?;
    key.verify(&pre_auth_encoding(wanted, &envelope.payload), &signature).map_err(|_| bad())?;
    M::decode(envelope.payload.as_slice()).map_err(|_| EnvelopeError::BadPayload(wanted))
}

#[cfg(test)]
mod tests {
    use p256::ecdsa::{SigningKey, signature::Signer};
    use prost::Message;

    use super::*;
    use crate::wire::TimePayload;

    #[test]
    fn pre_auth_encoding_matches_the_dsse_example() {
        // The example of the DSSE protocol document.
        let expected = b"DSSEv1 29 http://example.com/HelloWorld 11 hello world";
        assert_eq!(pre_auth_encoding("http://example.com/HelloWorld", b"hello world"), expected);
    }

    #[test]
    fn only_the_right_key_type_and_bytes_open() {
        let key = SigningKey::from_slice(&[7; 32]).unwrap();
        let payload = TimePayload { nonce: vec![1; 32], unix_ms: 5 }.encode_to_vec();
        let signature: Signature = key.sign(&pre_auth_encoding(TIME, &payload));
        let good = Envelope {
            payload_type: TIME.into(),
            payload,
            key_id: "control".into(),
            signature: signature.to_der().as_bytes().to_vec(),
            chain: vec![],
        };
        let opened: TimePayload = open(&good, TIME, key.verifying_key()).unwrap();
        assert_eq!(opened.unix_ms, 5);

        let other = SigningKey::from_slice(&[8; 32]).unwrap();
        let by_other = open::<TimePayload>(&good, TIME, other.verifying_key());
        assert!(matches!(by_other, Err(EnvelopeError::BadSignature { .. })));
        let mut changed = good.clone();
        changed.payload[0] ^= 1;
        assert!(matches!(
            open::<TimePayload>(&changed, TIME, key.verifying_key()),
            Err(EnvelopeError::BadSignature { .. })
        ));
        assert!(matches!(
            open::<TimePayload>(&good, SITE_ASSERTION, key.verifying_key()),
            Err(EnvelopeError::WrongType { .. })
        ));
    }
}
