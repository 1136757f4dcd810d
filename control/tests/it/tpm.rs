//! Joining by TPM: a software TPM, a site's assertion, both rounds over real TLS.

use std::{
    fs,
    time::{SystemTime, UNIX_EPOCH},
};

use ironwright_proto::{
    Message,
    api::{AuditEvent, Machine, Node},
    envelope::{SITE_ASSERTION, pre_auth_encoding},
    wire::{
        BootPrepareArgs, Envelope, JoinChallenge, JoinClaim, JoinFinish, JoinGrant, JoinRound, SiteAssertion,
        join_client::JoinClient,
    },
};
use ironwright_tpm::{device::Tpm, join};
use rcgen::{KeyPair, SigningKey};
use rustls_pki_types::PrivateKeyDer;
use tempfile::TempDir;
use tonic::{Code, Status, transport::Channel};

use crate::{
    client::{Identity, channel},
    deploy::Deploy,
    rig::{Rig, options},
    swtpm::{Manufacturer, Swtpm},
};

/// A control that trusts one maker's TPMs, and one of those.
async fn rig_and_tpm() -> (Rig, Manufacturer, Swtpm, TempDir) {
    let maker = Manufacturer::new();
    let swtpm = maker.make();
    let roots = tempfile::tempdir().unwrap();
    fs::write(roots.path().join("maker.pem"), maker.root_pem()).unwrap();
    let mut options = options();
    options.ek_roots = Some(roots.path().to_owned());
    (Rig::start_with(options).await, maker, swtpm, roots)
}

fn assertion(node: &str, identity: &Identity, args: &BootPrepareArgs) -> Envelope {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    let now = i64::try_from(now).unwrap();
    let payload = SiteAssertion {
        site: "lab".into(),
        lease_epoch: 1,
        machine_id: args.machine_id.clone(),
        mac: args.mac.clone(),
        issued_unix_ms: now,
        expires_unix_ms: now + 600_000,
    }
    .encode_to_vec();
    let PrivateKeyDer::Pkcs8(der) = &identity.1 else { panic!("a PKCS#8 key") };
    let signature =
        KeyPair::try_from(der).unwrap().sign(&pre_auth_encoding(SITE_ASSERTION, &payload)).unwrap();
    Envelope {
        payload_type: SITE_ASSERTION.into(),
        payload,
        key_id: node.into(),
        signature,
        chain: Vec::new(),
    }
}

/// Both rounds, as a machine's agent does them. The issuing certificate comes as from the TPM's NV.
async fn join_by_tpm(
    client: &mut JoinClient<Channel>,
    swtpm: &Swtpm,
    maker: &Manufacturer,
    claim: JoinClaim,
) -> Result<JoinGrant, Status> {
    let mut tpm = Tpm::open(&swtpm.tcti()).unwrap();
    let mut material = tpm.begin_join().unwrap();
    material.ek_ca_chain.push(maker.issuer_der());
    let request = material.clone().into_begin([7; 32], claim).encode_to_vec();
    let answer = client.begin(JoinRound { body: request.clone() }).await?.into_inner().body;
    let challenge = JoinChallenge::decode(answer.as_slice()).unwrap();
    let secret = tpm.activate(&challenge.credential_blob, &challenge.encrypted_secret).unwrap();
    let join_id = challenge.join_id.as_slice().try_into().unwrap();
    let nonce = challenge.quote_nonce.as_slice().try_into().unwrap();
    let quote = tpm.quote(&material.quote_extra(&join_id, &nonce), challenge.pcr_mask).unwrap();
    let finish = JoinFinish {
        join_id: challenge.join_id,
        proof: join::proof(&secret, &join::transcript(&request, &answer)).to_vec(),
        quote_attest: quote.attest,
        quote_sig: quote.signature,
        pcr_values: quote.pcr_values,
        event_log: Vec::new(),
    };
    Ok(client.finish(finish).await?.into_inner())
}

fn refusal(result: Result<JoinGrant, Status>) -> (Code, String) {
    let status = result.unwrap_err();
    (status.code(), status.message().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_joins_by_its_tpm_and_no_other_tpm_takes_its_place() {
    let (rig, maker, swtpm, _roots) = rig_and_tpm().await;
    let deploy = Deploy::begin(&rig).await;
    let args = deploy.args();
    let mut client = JoinClient::new(channel(rig.api.address, rig.ca(), None).await.unwrap());
    let without_token = JoinClaim {
        machine_id: args.machine_id.clone(),
        role: "ramdisk".into(),
        mac: args.mac.clone(),
        site_assertion: Some(assertion(&deploy.site_node, &deploy.site_identity, &args)),
        ..JoinClaim::default()
    };
    let first = JoinClaim { join_token: args.join_token.clone(), ..without_token.clone() };
    let refused = |code: &str| (Code::PermissionDenied, code.to_owned());

    let missing = join_by_tpm(&mut client, &swtpm, &maker, without_token.clone()).await;
    assert_eq!(refusal(missing), refused("token_missing"));
    let stranger = Manufacturer::new();
    let foreign = stranger.make();
    let untrusted = join_by_tpm(&mut client, &foreign, &stranger, first.clone()).await;
    assert_eq!(refusal(untrusted), refused("ek_untrusted"));

    let grant = join_by_tpm(&mut client, &swtpm, &maker, first.clone()).await.unwrap();
    let node: Node = rig.api.read(&format!("/v1/nodes/{}", grant.node_id)).await;
    assert_eq!((node.role.as_str(), node.proof.as_str()), ("ramdisk", "tpm"));
    assert_eq!(node.pcrs.len(), 8);
    assert!(node.pcrs.values().all(|value| *value == "0".repeat(64)), "swtpm has measured nothing");
    let machine: Machine = rig.api.read("/v1/machines/web-1").await;
    assert_eq!((machine.ek_fingerprint, machine.node_id), (node.ek_fingerprint, Some(grant.node_id.clone())));

    // The same TPM again, rebooted: no token is needed, and it is the same node.
    let again = join_by_tpm(&mut client, &swtpm, &maker, without_token).await.unwrap();
    assert_eq!(again.node_id, grant.node_id);
    // Another TPM of the same maker behind the same MAC.
    let other = maker.make();
    let mismatch = join_by_tpm(&mut client, &other, &maker, first).await;
    assert_eq!(refusal(mismatch), refused("ek_mismatch"));
    let unchanged: Machine = rig.api.read("/v1/machines/web-1").await;
    assert_eq!(unchanged.ek_fingerprint, node.ek_fingerprint);
    let events: Vec<AuditEvent> = rig.api.read("/v1/events?limit=1000").await;
    assert!(events.iter().any(|event| event.action == "join.refused"));
    rig.stop().await;
}
