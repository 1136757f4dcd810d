//! The gateway: who gets in, sessions, blobs.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use ironwright_proto::{
    api::{Node, NodeState, Site},
    wire::{
        AgentFrame, Heartbeat, RenewRequest, agent_frame, gateway_client::GatewayClient, gateway_frame::Frame,
    },
};
use rcgen::{CertificateParams, KeyPair};
use rustls_pki_types::PrivateKeyDer;
use sha2::{Digest, Sha256};
use tokio::time::timeout;
use tonic::Code;

use crate::{
    agent::Agent,
    client::{Identity, channel, connect, copy, request, tls},
    join::joined_site,
    rig::{Rig, disk},
};

/// A certificate that another CA issued, for the same node id.
fn foreign(node_id: &str) -> Identity {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    let uri = format!("ironwright:node/{node_id}").try_into().unwrap();
    params.subject_alt_names = vec![rcgen::SanType::URI(uri)];
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let certificate = params.self_signed(&key).unwrap().der().clone();
    (vec![certificate], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
}

async fn blob(
    rig: &Rig,
    identity: Option<&Identity>,
    digest: &str,
    range: Option<&str>,
) -> Result<Response<Incoming>, Box<dyn std::error::Error + Send + Sync>> {
    let mut builder = Request::get(format!("/blobs/sha256/{digest}")).header(header::HOST, "localhost");
    if let Some(range) = range {
        builder = builder.header(header::RANGE, range);
    }
    let built = builder.body(Full::<Bytes>::default()).unwrap();
    request(rig.gateway_address, tls(&rig.ca(), identity, b"http/1.1"), built).await
}

#[tokio::test(flavor = "multi_thread")]
async fn t8_no_route_without_a_node_certificate() {
    let rig = Rig::start().await;
    let (node_id, _) = joined_site(&rig, "lab").await;
    let foreign = foreign(&node_id);
    for identity in [None, Some(&foreign)] {
        // In TLS 1.3 the client learns of it with its first read.
        for path in ["0".repeat(64), "none".to_owned()] {
            assert!(blob(&rig, identity, &path, None).await.is_err());
        }
        let channel = channel(rig.gateway_address, rig.ca(), identity.map(copy)).await;
        let Ok(channel) = channel else { continue };
        let mut client = GatewayClient::new(channel);
        let session = client.session(tokio_stream::empty::<AgentFrame>()).await;
        assert!(session.is_err());
        assert!(client.renew(RenewRequest::default()).await.is_err());
    }
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t8_the_api_has_no_gateway_routes_and_the_gateway_no_api() {
    let rig = Rig::start().await;
    let (_, identity) = joined_site(&rig, "lab").await;
    let (status, _) = rig.api.get(&format!("/blobs/sha256/{}", "0".repeat(64))).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let (status, _) = rig.api.bytes(Method::POST, "/ironwright.v1.Gateway/Renew", "").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let built = Request::get("/v1/machines")
        .header(header::HOST, "localhost")
        .header(header::AUTHORIZATION, format!("Bearer {}", rig.api.token))
        .body(Full::<Bytes>::default())
        .unwrap();
    let tls = tls(&rig.ca(), Some(&identity), b"http/1.1");
    assert_eq!(request(rig.gateway_address, tls, built).await.unwrap().status(), StatusCode::NOT_FOUND);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn blobs_are_served_to_nodes_whole_and_in_parts() {
    let rig = Rig::start().await;
    let (_, identity) = joined_site(&rig, "lab").await;
    let bytes = disk((0..700_000u32).map(|i| u8::try_from(i % 253).unwrap()).collect());
    let digest = hex::encode(Sha256::digest(&bytes));
    let (status, _) = rig.api.bytes(Method::PUT, "/v1/images/x/bytes", bytes.clone()).await;
    assert_eq!(status, StatusCode::OK);

    let whole = blob(&rig, Some(&identity), &digest, None).await.unwrap();
    assert_eq!(whole.status(), StatusCode::OK);
    assert_eq!(whole.into_body().collect().await.unwrap().to_bytes(), bytes);
    let rest = blob(&rig, Some(&identity), &digest, Some("bytes=699990-")).await.unwrap();
    assert_eq!(rest.status(), StatusCode::PARTIAL_CONTENT);
    assert_eq!(rest.headers()[header::CONTENT_RANGE], "bytes 699990-699999/700000");
    assert_eq!(rest.into_body().collect().await.unwrap().to_bytes(), bytes[699_990..]);
    let beyond = blob(&rig, Some(&identity), &digest, Some("bytes=700000-")).await.unwrap();
    assert_eq!(beyond.status(), StatusCode::RANGE_NOT_SATISFIABLE);
    for unknown in ["0".repeat(64), "..%2f..%2fca.key".to_owned(), "x".to_owned()] {
        let answer = blob(&rig, Some(&identity), &unknown, None).await.unwrap();
        assert_eq!(answer.status(), StatusCode::NOT_FOUND, "{unknown}");
    }
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_welcomed_renewed_fenced_and_drained() {
    let rig = Rig::start().await;
    let (node_id, identity) = joined_site(&rig, "lab").await;
    let mut first = Agent::open(&rig, &identity, "lab").await;
    let Some(Frame::Welcome(welcome)) = first.next().await else { panic!("no Welcome") };
    assert_eq!((welcome.session_epoch, welcome.heartbeat_interval_ms), (1, 10_000));
    let lease = welcome.lease.unwrap();
    assert_eq!((lease.site.as_str(), lease.epoch, lease.ttl_ms), ("lab", 1, 30_000));
    let node: Node = rig.api.read(&format!("/v1/nodes/{node_id}")).await;
    assert_eq!((node.state, node.connected), (NodeState::Active, true));
    let sites: Vec<Site> = rig.api.read("/v1/sites").await;
    assert_eq!(sites[0].holder.as_deref(), Some(node_id.as_str()));

    let beat = agent_frame::Frame::Heartbeat(Heartbeat { seq: 1 });
    first.send(beat).await;
    let renewed = first.until(|frame| if let Frame::Lease(lease) = frame { Some(lease) } else { None }).await;
    assert_eq!(renewed.epoch, 1);

    let mut second = Agent::open(&rig, &identity, "lab").await;
    let Some(Frame::Welcome(welcome)) = second.next().await else { panic!("no Welcome") };
    assert_eq!(welcome.session_epoch, 2);
    while first.next().await.is_some() {}

    let stopping = tokio::spawn(rig.stop());
    let drain = second.until(|frame| if let Frame::Drain(drain) = frame { Some(drain) } else { None }).await;
    assert!(drain.retry_after_ms > 0);
    assert!(second.next().await.is_none(), "the stream ends after Drain");
    drop(second);
    timeout(Duration::from_secs(10), stopping).await.expect("control ends").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_renews_its_certificate_for_its_own_key_only() {
    let rig = Rig::start().await;
    let (node_id, identity) = joined_site(&rig, "lab").await;
    let channel = channel(rig.gateway_address, rig.ca(), Some(copy(&identity))).await.unwrap();
    let mut client = GatewayClient::new(channel);
    let csr = |key: &KeyPair| CertificateParams::default().serialize_request(key).unwrap().der().to_vec();

    let PrivateKeyDer::Pkcs8(der) = &identity.1 else { panic!("a PKCS#8 key") };
    let own = KeyPair::try_from(der).unwrap();
    let grant = client.renew(RenewRequest { csr_der: csr(&own) }).await.unwrap().into_inner();
    assert_eq!(grant.node_id, node_id);
    assert_ne!(grant.chain[0], identity.0[0].to_vec());
    let other = KeyPair::generate().unwrap();
    let refused = client.renew(RenewRequest { csr_der: csr(&other) }).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_peer_does_not_hold_up_the_shutdown() {
    let rig = Rig::start().await;
    let (_, identity) = joined_site(&rig, "lab").await;
    // Connected, and never a word.
    let _idle = connect(rig.gateway_address, tls(&rig.ca(), Some(&identity), b"h2")).await.unwrap();
    let _half = tokio::net::TcpStream::connect(rig.api.address).await.unwrap();
    timeout(Duration::from_secs(5), rig.stop()).await.expect("control ends");
}
