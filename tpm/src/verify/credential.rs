//! `TPM2_MakeCredential` in software: a secret that only one TPM can read, and only for one of its keys.
//!
//! Standards: Part 1, 24 (credential protection), annex B.10.4 (RSA) and C.6.4 (ECC); Part 1, 11.4.10 (KDFa,
//! KDFe). Every key derived here is at most one digest long, so the counter loop of both KDFs is one round.

use aes::cipher::{AsyncStreamCipher, KeyIvInit};
use hmac::{Hmac, Mac};
use rand::{CryptoRng, RngCore};
use rsa::Oaep;
use sha2::{Digest, Sha256, Sha384};
use zeroize::Zeroizing;

use super::ek_public::{EkPublic, NotAKey};
use crate::join::Secret;

/// Label of the seed's transport, with the NUL that belongs to it in RSA-OAEP.
const IDENTITY: &str = "IDENTITY";
const RSA_LABEL: &str = "IDENTITY\0";
const IV: [u8; 16] = [0; 16];

/// Why no credential can be made.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// Numbers that are no key.
    #[error("reading the endorsement key")]
    Key(#[from] NotAKey),
    /// The RSA key cannot encrypt the seed.
    #[error("encrypting the seed of a credential to the endorsement key")]
    Encrypt(#[source] rsa::Error),
}

/// A seed that only the TPM recovers, in the form in which it is sent.
struct Seed {
    seed: Zeroizing<Vec<u8>>,
    /// `TPM2B_ENCRYPTED_SECRET` body.
    encrypted: Vec<u8>,
}

/// Makes a credential for the object named `ak_name` in the TPM with endorsement key `ek`: the bodies of
/// `TPM2B_ID_OBJECT` and `TPM2B_ENCRYPTED_SECRET`.
pub(super) fn make(
    ek: &EkPublic,
    ak_name: &[u8],
    secret: &Secret,
    rng: &mut (impl RngCore + CryptoRng),
) -> Result<(Vec<u8>, Vec<u8>), CredentialError> {
    let (hash, Seed { seed, encrypted }) = match ek {
        EkPublic::Rsa2048 { .. } => (Hash::Sha256, rsa_seed(ek, rng)?),
        EkPublic::P256 { .. } => (Hash::Sha256, p256_seed(ek, rng)?),
        EkPublic::P384 { .. } => (Hash::Sha384, p384_seed(ek, rng)?),
    };
    Ok((seal(hash, &seed, ak_name, secret), encrypted))
}

fn rsa_seed(ek: &EkPublic, rng: &mut (impl RngCore + CryptoRng)) -> Result<Seed, CredentialError> {
    let mut seed = Zeroizing::new(vec![0; Hash::Sha256.len()]);
    rng.fill_bytes(&mut seed);
    let padding = Oaep::new_with_label::<Sha256, _>(RSA_LABEL);
    let encrypted = ek.rsa()?.encrypt(rng, padding, &seed).map_err(CredentialError::Encrypt)?;
    Ok(Seed { seed, encrypted })
}

fn p256_seed(ek: &EkPublic, rng: &mut (impl RngCore + CryptoRng)) -> Result<Seed, CredentialError> {
    use p256::{EncodedPoint, PublicKey, ecdh::EphemeralSecret};
    let ek = ek.p256()?;
    let ephemeral = EphemeralSecret::random(rng);
    let z = ephemeral.diffie_hellman(&ek);
    let point = |key: &PublicKey| EncodedPoint::from(key).as_bytes().to_vec();
    Ok(ecc_seed(Hash::Sha256, z.raw_secret_bytes(), &point(&ephemeral.public_key()), &point(&ek)))
}

fn p384_seed(ek: &EkPublic, rng: &mut (impl RngCore + CryptoRng)) -> Result<Seed, CredentialError> {
    use p384::{EncodedPoint, PublicKey, ecdh::EphemeralSecret};
    let ek = ek.p384()?;
    let ephemeral = EphemeralSecret::random(rng);
    let z = ephemeral.diffie_hellman(&ek);
    let point = |key: &PublicKey| EncodedPoint::from(key).as_bytes().to_vec();
    Ok(ecc_seed(Hash::Sha384, z.raw_secret_bytes(), &point(&ephemeral.public_key()), &point(&ek)))
}

/// KDFe over the shared x coordinate, and the ephemeral point as `TPMS_ECC_POINT`. Points come in the
/// uncompressed form of SEC 1.
fn ecc_seed(hash: Hash, z: &[u8], ephemeral: &[u8], ek: &[u8]) -> Seed {
    let coordinate = (ephemeral.len() - 1) / 2;
    let (x, y) = ephemeral[1..].split_at(coordinate);
    let ek_x = &ek[1..=coordinate];
    let seed = hash.digest(&[&1u32.to_be_bytes(), z, IDENTITY.as_bytes(), &[0], x, ek_x]);
    Seed { seed, encrypted: [sized(x), sized(y)].concat() }
}

/// Encrypts and authenticates the secret under keys derived from the seed; the name is in both.
fn seal(hash: Hash, seed: &[u8], ak_name: &[u8], secret: &Secret) -> Vec<u8> {
    let mut identity = sized(secret.as_bytes());
    match hash {
        Hash::Sha256 => {
            let key = kdfa(hash, seed, "STORAGE", ak_name, 128);
            encryptor::<aes::Aes128>(&key).encrypt(&mut identity);
        }
        Hash::Sha384 => {
            let key = kdfa(hash, seed, "STORAGE", ak_name, 256);
            encryptor::<aes::Aes256>(&key).encrypt(&mut identity);
        }
    }
    let mac_key = kdfa(hash, seed, "INTEGRITY", &[], hash.len() * 8);
    let integrity = hash.hmac(&mac_key, &[&identity, ak_name]);
    [sized(&integrity), identity].concat()
}

fn encryptor<C>(key: &[u8]) -> cfb_mode::Encryptor<C>
where
    C: aes::cipher::BlockEncryptMut + aes::cipher::BlockCipher,
    cfb_mode::Encryptor<C>: KeyIvInit,
{
    cfb_mode::Encryptor::<C>::new_from_slices(key, &IV).expect("KDFa gave a key of the cipher's length")
}

/// One round of KDFa; its `contextV` is empty in all uses here.
fn kdfa(hash: Hash, key: &[u8], label: &str, context: &[u8], bits: usize) -> Zeroizing<Vec<u8>> {
    let bit_count = u32::try_from(bits).expect("keys are short").to_be_bytes();
    let mut out = hash.hmac(key, &[&1u32.to_be_bytes(), label.as_bytes(), &[0], context, &bit_count]);
    out.truncate(bits / 8);
    out
}

/// A TPM2B.
fn sized(bytes: &[u8]) -> Vec<u8> {
    let len = u16::try_from(bytes.len()).expect("digests, coordinates and secrets are short");
    [&len.to_be_bytes()[..], bytes].concat()
}

/// Name algorithm of an endorsement key, which all its derivations use.
#[derive(Debug, Clone, Copy)]
enum Hash {
    Sha256,
    Sha384,
}

impl Hash {
    fn len(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
        }
    }

    fn digest(self, parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
        let bytes = Zeroizing::new(parts.concat());
        Zeroizing::new(match self {
            Self::Sha256 => Sha256::digest(&*bytes).to_vec(),
            Self::Sha384 => Sha384::digest(&*bytes).to_vec(),
        })
    }

    fn hmac(self, key: &[u8], parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
        fn run<M: Mac + hmac::digest::KeyInit>(key: &[u8], parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
            let mut mac = <M as Mac>::new_from_slice(key).expect("HMAC takes a key of any length");
            for part in parts {
                mac.update(part);
            }
            Zeroizing::new(mac.finalize().into_bytes().to_vec())
        }
        match self {
            Self::Sha256 => run::<Hmac<Sha256>>(key, parts),
            Self::Sha384 => run::<Hmac<Sha384>>(key, parts),
        }
    }
}

#[cfg(test)]
mod tests {
    use p256::elliptic_curve::sec1::ToEncodedPoint;

    use super::*;

    const NAME: [u8; 34] = {
        let mut name = [0x22; 34];
        name[0] = 0x00;
        name[1] = 0x0b;
        name
    };

    /// Expected values were computed with Python's hmac and `openssl enc -aes-…-cfb`.
    #[test]
    fn sealing_matches_an_independent_implementation() {
        let secret = Secret::from_slice(&[0x33; 32]).unwrap();
        assert_eq!(
            hex::encode(seal(Hash::Sha256, &[0x44; 32], &NAME, &secret)),
            "00203595d445d2927e0b4ce2e6a32241716187bd3c9ec3ad3e0e70fa710ea1bf3288f5d3f45089a255cbd7256de5aa0cb0c44829\
             3ac390d22180478ec911f704e29b332d"
        );
        assert_eq!(
            hex::encode(seal(Hash::Sha384, &[0x55; 48], &NAME, &secret)),
            "00300b54b4e778bbb9cd32feba5a757fb4b17bd8fd9bf4471db8f02b704511aff14149e59c481cd434587fe1370be9d562f35ce0\
             a5ad9cbb9ca27c449f6cdb213cecef18075631c442a121ec8c3458b295556fd6"
        );
    }

    #[test]
    fn an_ecc_seed_matches_an_independent_implementation() {
        let point = |x, y| [&[4][..], &[x; 32], &[y; 32]].concat();
        let seed = ecc_seed(Hash::Sha256, &[5; 32], &point(1, 2), &point(3, 4));
        assert_eq!(
            hex::encode(&*seed.seed),
            "f10482a8ff215281945e360042c7d2e342ad88b4ffac30d330e4714e8f4d2c79"
        );
        assert_eq!(seed.encrypted, [&[0, 32][..], &[1; 32], &[0, 32], &[2; 32]].concat());
    }

    #[test]
    fn a_key_off_the_curve_gets_no_credential() {
        let secret = Secret::from_slice(&[1; 32]).unwrap();
        let mut rng = rand::thread_rng();
        for (ek, name) in [
            (EkPublic::P256 { x: [1; 32], y: [1; 32] }, "P-256"),
            (EkPublic::P384 { x: [1; 48], y: [1; 48] }, "P-384"),
            (EkPublic::Rsa2048 { modulus: vec![1; 8] }, "RSA-2048"),
        ] {
            let error = make(&ek, &NAME, &secret, &mut rng).unwrap_err();
            assert!(matches!(error, CredentialError::Key(NotAKey(found)) if found == name), "{error:?}");
        }
    }

    #[test]
    fn the_owner_of_the_key_recovers_the_seed() {
        let ek = p256::SecretKey::from_slice(&[0x42; 32]).unwrap();
        let public = ek.public_key().to_encoded_point(false);
        let (x, y) = (public.x().unwrap(), public.y().unwrap());
        let seed =
            p256_seed(&EkPublic::P256 { x: (*x).into(), y: (*y).into() }, &mut rand::thread_rng()).unwrap();
        let (ephemeral_x, ephemeral_y) = (&seed.encrypted[2..34], &seed.encrypted[36..]);
        let ephemeral =
            p256::PublicKey::from_sec1_bytes(&[&[4][..], ephemeral_x, ephemeral_y].concat()).unwrap();
        let z = p256::ecdh::diffie_hellman(ek.to_nonzero_scalar(), ephemeral.as_affine());
        let parts = [&[0, 0, 0, 1][..], z.raw_secret_bytes(), b"IDENTITY\0", ephemeral_x, x].concat();
        assert_eq!(seed.seed.as_slice(), Sha256::digest(parts).as_slice());
    }
}
