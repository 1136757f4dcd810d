//! Joining by token, and what is refused on either side.

use std::sync::atomic::Ordering;

use ironwright_agent::{CancellationToken, ConnectError, Identity, JoinError, KeySource, join::join_until};
use ironwright_proto::ids::Digest;
use p256::ecdsa::{Signature, VerifyingKey, signature::Verifier};

use crate::{
    authority::{Authority, CURRENT, EXPIRED},
    control::{Control, JoinAnswer, NODE},
    rig::join_config,
};

async fn join(control: &Control) -> Result<Identity, JoinError> {
    Identity::join(&join_config(control, KeySource::Memory)).await
}

#[tokio::test]
async fn a_token_gives_an_identity_for_a_key_of_our_own() {
    let control = Control::start().await;
    let identity = join(&control).await.unwrap();
    assert_eq!(identity.node_id(), NODE);
    assert_eq!(identity.chain().last(), Some(&control.shared.authority.der()));
    let claim = control.shared.last_join.lock().unwrap().clone().unwrap().claim.unwrap();
    assert_eq!((claim.machine_id.as_str(), claim.join_token.as_str()), ("web-1", "token"));

    // What the identity signs verifies with the key that control certified.
    let chain = identity.chain();
    let (_, leaf) = x509_parser::parse_x509_certificate(&chain[0]).unwrap();
    let key = VerifyingKey::from_sec1_bytes(&leaf.public_key().subject_public_key.data).unwrap();
    let signature = Signature::from_der(&identity.sign(b"assertion").unwrap()).unwrap();
    assert!(key.verify(b"assertion", &signature).is_ok());
}

#[tokio::test]
async fn a_refusal_keeps_its_code() {
    let control = Control::start().await;
    for code in ["token_used", "unknown_machine", "tpm_required"] {
        *control.shared.join.lock().unwrap() = JoinAnswer::Refuse(code);
        assert_eq!(join(&control).await.unwrap_err().refusal(), Some(code));
    }
}

#[tokio::test]
async fn a_control_plane_with_another_ca_gets_no_token() {
    let control = Control::start().await;
    let mut config = join_config(&control, KeySource::Memory);
    for pin in [Authority::new().pin(), Digest([0; 32])] {
        config.ca_pin = pin;
        let err = Identity::join(&config).await.unwrap_err();
        assert!(matches!(err, JoinError::Connect(ConnectError::WrongCa { .. })), "{err:?}");
    }
    assert_eq!(control.shared.joins.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn an_expired_server_certificate_is_refused() {
    let control = Control::start_with(EXPIRED).await;
    let err = join(&control).await.unwrap_err();
    assert!(matches!(err, JoinError::Connect(ConnectError::Tls { .. })), "{err:?}");
}

#[tokio::test]
async fn a_grant_for_another_key_or_by_another_ca_is_refused() {
    let control = Control::start().await;
    for answer in [JoinAnswer::OtherKey, JoinAnswer::OtherCa] {
        *control.shared.join.lock().unwrap() = answer;
        let err = join(&control).await.unwrap_err();
        assert!(matches!(err, JoinError::Grant(_)), "{err:?}");
    }
}

#[tokio::test]
async fn a_kept_identity_is_used_until_it_ends() {
    let control = Control::start().await;
    let dir = tempfile::tempdir().unwrap();
    let config = join_config(&control, KeySource::Dir(dir.path().to_owned()));
    let first = Identity::join(&config).await.unwrap();
    let again = Identity::join(&config).await.unwrap();
    assert_eq!(first.chain(), again.chain());
    assert_eq!(control.shared.joins.load(Ordering::SeqCst), 1);

    // Forgotten, the next join gets an expired certificate; that one is not used again.
    Identity::forget(&config).unwrap();
    *control.shared.join.lock().unwrap() = JoinAnswer::Grant(EXPIRED);
    Identity::join(&config).await.unwrap();
    *control.shared.join.lock().unwrap() = JoinAnswer::Grant(CURRENT);
    Identity::join(&config).await.unwrap();
    assert_eq!(control.shared.joins.load(Ordering::SeqCst), 3);

    // Another control plane's identity is not used either.
    let other = Control::start().await;
    let config = join_config(&other, KeySource::Dir(dir.path().to_owned()));
    assert_eq!(Identity::join(&config).await.unwrap().ca_pin(), other.shared.authority.pin());
}

#[tokio::test]
async fn joining_goes_on_until_it_works_and_ends_on_shutdown() {
    let control = Control::start().await;
    let config = join_config(&control, KeySource::Memory);
    let shutdown = CancellationToken::new();
    *control.shared.join.lock().unwrap() = JoinAnswer::Refuse("unknown_machine");
    let stop = shutdown.clone();
    let joined = join_until(&config, &shutdown, |failure, wait| {
        assert_eq!(failure.refusal(), Some("unknown_machine"));
        assert!(wait.as_secs() >= 5, "a refusal is not retried hot");
        stop.cancel();
    });
    assert!(crate::rig::soon("the shutdown", Box::pin(joined)).await.is_none());

    *control.shared.join.lock().unwrap() = JoinAnswer::Grant(CURRENT);
    let joined = join_until(&config, &CancellationToken::new(), |_, _| {}).await;
    assert_eq!(joined.unwrap().node_id(), NODE);
}
