use std::sync::Arc;

use ironwright_tpm::device::{DeviceError, NodeKey, NodeKeyBlobs, Tpm};
use p256::{
    ecdsa::{Signature, VerifyingKey, signature::Verifier},
    pkcs8::DecodePublicKey,
};

use crate::swtpm::Manufacturer;

fn assert_signs(key: &NodeKey, message: &[u8]) {
    let signature = Signature::from_der(&key.sign(message).unwrap()).unwrap();
    VerifyingKey::from_public_key_der(key.spki_der()).unwrap().verify(message, &signature).unwrap();
}

#[test]
fn threads_share_a_key() {
    let maker = Manufacturer::new();
    let swtpm = maker.make();
    let mut tpm = Tpm::open(&swtpm.tcti()).unwrap();
    tpm.begin_join().unwrap();
    let key: Arc<NodeKey> = tpm.node_key().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let key = &key;
            scope.spawn(move || (0..5u8).for_each(|round| assert_signs(key, &[thread, round])));
        }
    });
    // The key outlives the handle it came from.
    drop(tpm);
    assert_signs(&key, b"later");
}

#[test]
fn a_stored_key_is_the_same_key_but_only_in_its_tpm() {
    let maker = Manufacturer::new();
    let (swtpm, other) = (maker.make(), maker.make());
    let mut tpm = Tpm::open(&swtpm.tcti()).unwrap();
    let first = tpm.begin_join().unwrap();
    let stored = serde_json::to_string(tpm.node_key().unwrap().blobs()).unwrap();
    drop(tpm);

    let blobs: NodeKeyBlobs = serde_json::from_str(&stored).unwrap();
    let mut tpm = Tpm::open(&swtpm.tcti()).unwrap();
    assert_eq!(tpm.begin_join_with(blobs.clone()).unwrap().node_pub, first.node_pub);
    assert_signs(&tpm.node_key().unwrap(), b"hello");

    let foreign = Tpm::open(&other.tcti()).unwrap().begin_join_with(blobs.clone());
    assert!(matches!(foreign, Err(DeviceError::ForeignNodeKey)), "{foreign:?}");
    let mut changed = blobs.clone();
    *changed.private.last_mut().unwrap() ^= 1;
    assert!(matches!(tpm.begin_join_with(changed), Err(DeviceError::ForeignNodeKey)));
    let junk = NodeKeyBlobs { public: b"junk".to_vec(), ..blobs.clone() };
    assert!(matches!(tpm.begin_join_with(junk), Err(DeviceError::ForeignNodeKey)));
    assert!(!format!("{blobs:?}").contains(&hex::encode(&blobs.private)));
}

#[test]
fn a_failed_join_leaves_none_to_go_on_with() {
    let maker = Manufacturer::new();
    let swtpm = maker.make();
    let mut tpm = Tpm::open(&swtpm.tcti()).unwrap();
    assert!(matches!(tpm.node_key(), Err(DeviceError::NoJoin)));
    assert!(matches!(tpm.activate(&[1], &[1]), Err(DeviceError::NoJoin)));
}
