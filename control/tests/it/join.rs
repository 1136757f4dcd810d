//! Joining by token over real TLS.

use ironwright_proto::{
    Message,
    api::{Node, SiteCreated},
    wire::{JoinClaim, JoinGrant, JoinRound, TimePayload, TimeRequest, TokenJoin, join_client::JoinClient},
};
use p256::{ecdsa::VerifyingKey, pkcs8::DecodePublicKey};
use rcgen::{CertificateParams, KeyPair};
use rustls_pki_types::PrivateKeyDer;
use serde_json::json;
use tonic::{Code, Status, transport::Channel};

use crate::{
    client::{Identity, channel},
    rig::Rig,
};

async fn client(rig: &Rig) -> JoinClient<Channel> {
    JoinClient::new(channel(rig.api.address, rig.ca(), None).await.unwrap())
}

/// A new node key and its certificate request.
fn key_and_csr() -> (KeyPair, Vec<u8>) {
    let key = KeyPair::generate().unwrap();
    let csr = CertificateParams::default().serialize_request(&key).unwrap().der().to_vec();
    (key, csr)
}

async fn join(rig: &Rig, token: &str, csr_der: Vec<u8>) -> Result<JoinGrant, Status> {
    let claim = JoinClaim { role: "site".into(), join_token: token.into(), ..JoinClaim::default() };
    let request = TokenJoin { version: 1, csr_der, claim: Some(claim) };
    client(rig).await.with_token(request).await.map(tonic::Response::into_inner)
}

/// Creates a site and joins as its agent.
pub(crate) async fn joined_site(rig: &Rig, name: &str) -> (String, Identity) {
    let site: SiteCreated = rig.api.create("/v1/sites", &json!({"name": name})).await;
    let (key, csr) = key_and_csr();
    let grant = join(rig, &site.join_token, csr).await.unwrap();
    let chain = grant.chain.into_iter().map(Into::into).collect();
    (grant.node_id, (chain, PrivateKeyDer::Pkcs8(key.serialize_der().into())))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_site_joins_once_with_its_token() {
    let rig = Rig::start().await;
    let site: SiteCreated = rig.api.create("/v1/sites", &json!({"name": "lab"})).await;
    let (_, csr) = key_and_csr();
    let grant = join(&rig, &site.join_token, csr.clone()).await.unwrap();
    assert_eq!(grant.gateway_url, format!("https://localhost:{}", rig.gateway_address.port()));
    assert_eq!((grant.chain.len(), &grant.chain[1]), (2, &rig.ca().to_vec()));
    let (_, leaf) = x509_parser::parse_x509_certificate(&grant.chain[0]).unwrap();
    assert_eq!(leaf.subject().to_string(), format!("CN={}", grant.node_id));

    let node: Node = rig.api.read(&format!("/v1/nodes/{}", grant.node_id)).await;
    assert_eq!((node.role.as_str(), node.proof.as_str()), ("site", "token"));

    let refused = |status: Status| (status.code(), status.message().to_owned());
    let lost = join(&rig, &site.join_token, csr).await.unwrap();
    assert_eq!(lost.node_id, grant.node_id, "the same key asks again: its answer was lost");
    let (_, csr) = key_and_csr();
    let again = join(&rig, &site.join_token, csr.clone()).await.unwrap_err();
    assert_eq!(refused(again), (Code::PermissionDenied, "token_used".into()));
    let unknown = join(&rig, "iwj_nothing", csr).await.unwrap_err();
    assert_eq!(refused(unknown), (Code::PermissionDenied, "token_unknown".into()));
    let other: SiteCreated = rig.api.create("/v1/sites", &json!({"name": "other"})).await;
    let malformed = join(&rig, &other.join_token, b"no request".to_vec()).await.unwrap_err();
    assert_eq!(malformed.code(), Code::PermissionDenied);
    let garbage = client(&rig).await.begin(JoinRound { body: vec![0xff; 100] }).await.unwrap_err();
    assert_eq!(refused(garbage), (Code::PermissionDenied, "malformed".into()));
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_is_signed_for_whoever_asks() {
    let rig = Rig::start().await;
    let mut client = client(&rig).await;
    let signed = client.time(TimeRequest { nonce: vec![5; 32] }).await.unwrap().into_inner();
    assert_eq!(signed.chain[1], rig.ca().to_vec());
    let (_, leaf) = x509_parser::parse_x509_certificate(&signed.chain[0]).unwrap();
    let key = VerifyingKey::from_public_key_der(leaf.public_key().raw).unwrap();
    let time: TimePayload =
        ironwright_proto::envelope::open(&signed, ironwright_proto::envelope::TIME, &key).unwrap();
    assert_eq!(time.nonce, [5; 32]);
    assert_eq!(time.encode_to_vec(), signed.payload);
    let here = i64::try_from(
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis(),
    )
    .unwrap();
    assert!((here - time.unix_ms).abs() < 60_000);
    let short = client.time(TimeRequest { nonce: vec![5; 8] }).await.unwrap_err();
    assert_eq!(short.code(), Code::InvalidArgument);
    rig.stop().await;
}
