//! Sites, machines, status and events by the API.

use http::{Method, StatusCode};
use ironwright_proto::api::{AuditEvent, Machine, SiteCreated, Status};
use serde_json::json;

use crate::rig::Rig;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_created_is_read_back_also_after_a_restart() {
    let rig = Rig::start().await;
    let site: SiteCreated = rig.api.create("/v1/sites", &json!({"name": "lab"})).await;
    assert_eq!(site.site.name.as_str(), "lab");
    assert!(site.join_token.len() >= 43);
    let machine: Machine =
        rig.api.create("/v1/machines", &json!({"id": "web-1", "mac": "52-54-00-12-34-56"})).await;
    assert_eq!(machine.mac.to_string(), "52:54:00:12:34:56");

    let rig = rig.restart().await;
    assert_eq!(rig.api.read::<Machine>("/v1/machines/web-1").await, machine);
    assert_eq!(rig.api.read::<Vec<Machine>>("/v1/machines").await, [machine]);
    let status: Status = rig.api.read("/v1/status").await;
    assert_eq!((status.sessions, status.active_runs), (0, 0));
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_is_changed_and_removed() {
    let rig = Rig::start().await;
    let _: Machine =
        rig.api.create("/v1/machines", &json!({"id": "web-1", "mac": "52:54:00:12:34:56"})).await;
    let machine = "/v1/machines/web-1";
    let change = json!({"mac": "52:54:00:12:34:57", "allow_no_tpm": true}).to_string();
    let (status, answer) = rig.api.bytes(Method::PATCH, machine, change).await;
    assert_eq!((status, &answer["mac"]), (StatusCode::OK, &json!("52:54:00:12:34:57")), "{answer}");
    let (status, answer) = rig.api.bytes(Method::PATCH, machine, json!({"colour": "red"}).to_string()).await;
    assert_eq!((status, &answer["error"]["field"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!("colour")));
    let read: Machine = rig.api.read(machine).await;
    assert!(read.allow_no_tpm);

    let (status, answer) = rig.api.bytes(Method::DELETE, machine, "").await;
    assert_eq!((status, answer), (StatusCode::OK, serde_json::to_value(read).unwrap()));
    for method in [Method::DELETE, Method::GET, Method::PATCH] {
        let (status, answer) = rig.api.bytes(method.clone(), machine, "{}").await;
        let said = (status, &answer["error"]["code"]);
        assert_eq!(said, (StatusCode::NOT_FOUND, &json!("unknown_machine")), "{method}");
    }
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_request_is_named() {
    let rig = Rig::start().await;
    for (body, field) in [
        (json!({"id": "web-1", "mac": "52:54:00:12:34:56", "colour": "red"}), "colour"),
        (json!({"id": "web-1"}), "mac"),
        (json!({"id": "web-1", "mac": "52:54"}), "mac"),
        (json!({"id": "Web 1", "mac": "52:54:00:12:34:56"}), "id"),
    ] {
        let (status, answer) = rig.api.post("/v1/machines", &body).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{answer}");
        assert_eq!(answer["error"]["field"], field, "{answer}");
    }
    let (status, answer) = rig
        .api
        .post("/v1/deploys", &json!({"machine": "web-1", "image": "x", "disk": {"nmae": "sda"}}))
        .await;
    assert_eq!((status, &answer["error"]["field"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!("disk.nmae")));
    let (status, answer) = rig.api.bytes(Method::POST, "/v1/machines", "{").await;
    assert_eq!((status, &answer["error"]["code"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!("bad_request")));
    let (status, answer) = rig.api.bytes(Method::POST, "/v1/machines", vec![b' '; 2 << 20]).await;
    assert_eq!((status, &answer["error"]["code"]), (StatusCode::PAYLOAD_TOO_LARGE, &json!("too_large")));

    let body = json!({"machine": "none", "image": "none"});
    let (status, answer) = rig.api.post("/v1/deploys", &body).await;
    assert_eq!((status, &answer["error"]["field"]), (StatusCode::NOT_FOUND, &json!("machine")));
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_tell_who_did_what() {
    let rig = Rig::start().await;
    let _: Machine = rig.api.create("/v1/machines", &json!({"id": "web-1", "mac": "525400123456"})).await;
    let events: Vec<AuditEvent> = rig.api.read("/v1/events").await;
    let last = events.last().unwrap();
    assert_eq!((last.actor.as_str(), last.subject.as_str()), ("admin", "web-1"));
    assert_eq!(events.iter().map(|event| event.seq).collect::<Vec<_>>(), (1..=last.seq).collect::<Vec<_>>());
    let later: Vec<AuditEvent> = rig.api.read(&format!("/v1/events?after={}&limit=5", last.seq)).await;
    assert_eq!(later, []);
    rig.stop().await;
}
