//! Nothing under `/v1` is done without the admin's token.

use http::{Method, StatusCode, header};
use http_body_util::BodyExt;
use ironwright_proto::api::ApiError;

use crate::rig::Rig;

/// Every route of `proto::api`, and some that do not exist.
const ROUTES: &[(Method, &str)] = &[
    (Method::GET, "/v1/status"),
    (Method::POST, "/v1/sites"),
    (Method::GET, "/v1/sites"),
    (Method::POST, "/v1/machines"),
    (Method::GET, "/v1/machines"),
    (Method::GET, "/v1/machines/m-1"),
    (Method::POST, "/v1/images"),
    (Method::GET, "/v1/images"),
    (Method::GET, "/v1/images/i-1"),
    (Method::PUT, "/v1/images/i-1/bytes"),
    (Method::DELETE, "/v1/images/i-1"),
    (Method::POST, "/v1/deploys"),
    (Method::GET, "/v1/runs"),
    (Method::GET, "/v1/runs/r-1"),
    (Method::GET, "/v1/runs/r-1/watch"),
    (Method::POST, "/v1/runs/r-1/cancel"),
    (Method::GET, "/v1/nodes"),
    (Method::GET, "/v1/nodes/n-1"),
    (Method::POST, "/v1/nodes/n-1/commands"),
    (Method::GET, "/v1/commands/c-1"),
    (Method::GET, "/v1/events"),
    (Method::PATCH, "/v1/machines/m-1"),
    (Method::DELETE, "/v1/machines/m-1"),
    (Method::DELETE, "/v1/machines"),
    (Method::GET, "/v1/no/such/route"),
    (Method::GET, "/v1"),
];

#[tokio::test(flavor = "multi_thread")]
async fn t8_every_route_needs_the_token() {
    let rig = Rig::start().await;
    let right = rig.api.token.clone();
    let mut wrong = right.clone();
    wrong.replace_range(right.len() - 1.., if right.ends_with('A') { "B" } else { "A" });
    let none_of_these = [
        None,
        Some(format!("Bearer {wrong}")),
        Some("Bearer ".to_owned()),
        Some(right.clone()),
        Some(format!("Basic {right}")),
        Some(format!("Bearer {right} {right}")),
        Some(format!("Bearer {}", "x".repeat(10_000))),
    ];
    for (method, path) in ROUTES {
        for authorization in &none_of_these {
            let response = rig.api.raw(method.clone(), path, authorization.as_deref(), "{}").await;
            assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{method} {path}");
            assert_eq!(response.headers()[header::WWW_AUTHENTICATE], "Bearer");
            let body = response.into_body().collect().await.unwrap().to_bytes();
            let error: ApiError = serde_json::from_slice(&body).unwrap();
            assert_eq!(error.error.code, "unauthorized");
        }
    }
    // Nothing was changed by all of that.
    assert_eq!(rig.api.get("/v1/machines").await, (StatusCode::OK, serde_json::json!([])));
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_routes_and_methods_are_typed_errors() {
    let rig = Rig::start().await;
    for (method, path, status, code) in [
        (Method::GET, "/v1/no/such/route", StatusCode::NOT_FOUND, "not_found"),
        (Method::GET, "/elsewhere", StatusCode::NOT_FOUND, "not_found"),
        (Method::DELETE, "/v1/machines", StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
        (Method::GET, "/v1/machines/%ff", StatusCode::BAD_REQUEST, "bad_request"),
        (Method::GET, "/v1/machines/none", StatusCode::NOT_FOUND, "unknown_machine"),
        (Method::GET, "/v1/nodes/none", StatusCode::NOT_FOUND, "unknown_node"),
        (Method::GET, "/v1/runs/none", StatusCode::NOT_FOUND, "unknown_run"),
        (Method::GET, "/v1/runs/none/watch", StatusCode::NOT_FOUND, "unknown_run"),
        (Method::GET, "/v1/images/none", StatusCode::NOT_FOUND, "unknown_image"),
        (Method::DELETE, "/v1/images/none", StatusCode::NOT_FOUND, "unknown_image"),
        (Method::GET, "/v1/commands/none", StatusCode::NOT_FOUND, "unknown_command"),
        (Method::GET, "/v1/events?limit=x", StatusCode::UNPROCESSABLE_ENTITY, "bad_request"),
    ] {
        let (found, body) = rig.api.bytes(method.clone(), path, "").await;
        assert_eq!((found, body["error"]["code"].as_str()), (status, Some(code)), "{method} {path}: {body}");
    }
    rig.stop().await;
}
