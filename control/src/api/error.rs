//! Every answer that is not a success is an `ApiError`.

use std::time::Duration;

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use http::{StatusCode, header};
use ironwright_control_core::Error;
use ironwright_proto::api::{ApiError, ApiErrorBody};

use crate::driver::Stopped;

/// Why a request is not answered with a success.
#[derive(Debug)]
pub(crate) struct Failure {
    status: StatusCode,
    error: ApiErrorBody,
    retry_after: Option<Duration>,
}

impl Failure {
    pub(crate) fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        let error = ApiErrorBody { code: code.to_owned(), message: message.into(), field: None };
        Self::with_body(status, error)
    }

    /// With the field of the request that is at fault.
    pub(crate) fn of_field(mut self, field: impl Into<String>) -> Self {
        self.error.field = Some(field.into());
        self
    }

    pub(crate) const fn with_body(status: StatusCode, error: ApiErrorBody) -> Self {
        Self { status, error, retry_after: None }
    }

    /// With the time after which it may go better (RFC 9110 section 10.2.3), in whole seconds.
    pub(crate) const fn retry_after(mut self, pause: Duration) -> Self {
        self.retry_after = Some(pause);
        self
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if status.is_server_error() {
            tracing::error!(error = &error as &dyn std::error::Error, "a request failed inside");
        }
        Self::with_body(status, error.to_api().error)
    }
}

impl From<Stopped> for Failure {
    fn from(stopped: Stopped) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", stopped.to_string())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(ApiError { error: self.error })).into_response();
        if let Some(pause) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, pause.as_secs().into());
        }
        response
    }
}

/// Gives answers that are not a success and not of ours (no such route, wrong method, bad path) the same form.
pub(super) async fn typed(response: Response) -> Response {
    let status = response.status();
    let is_json =
        response.headers().get(header::CONTENT_TYPE).is_some_and(|value| value == "application/json");
    if is_json || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let (code, message) = match status {
        StatusCode::NOT_FOUND => ("not_found", "there is no such route; see the API's documentation"),
        StatusCode::METHOD_NOT_ALLOWED => ("method_not_allowed", "this route does not take this method"),
        _ => ("bad_request", status.canonical_reason().unwrap_or("the request cannot be understood")),
    };
    let (mut head, _) = response.into_parts();
    let (ours, body) = Failure::new(status, code, message).into_response().into_parts();
    // Keeps what belongs to the status, such as Allow.
    head.headers.remove(header::CONTENT_LENGTH);
    head.headers.extend(ours.headers);
    Response::from_parts(head, body)
}
