//! The HTTP API under `/v1`, as `ironwright_proto::api` describes it.
//!
//! ```text
//! typed errors ◀─ every answer that is not a success becomes an ApiError, also axum's own 404 and 405
//!   └ bearer token ◀─ one middleware before all routes, known and unknown
//!       └ time limit ◀─ all routes but the upload and the watch
//!           └ handler ── driver
//! ```

mod auth;
mod error;
mod extract;
mod images;
mod resources;
mod runs;

use std::time::Duration;

use axum::{
    Router,
    extract::Request,
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post, put},
};
use http::StatusCode;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

pub(crate) use self::error::Failure;
use crate::{driver::Handle, sources::Transfers};

/// From the end of a request's head to the beginning of its answer.
const REQUEST_LIMIT: Duration = Duration::from_secs(30);

/// What the handlers work with.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) driver: Handle,
    pub(crate) transfers: Transfers,
    /// Ends the answers that would otherwise go on for long.
    pub(crate) shutdown: CancellationToken,
}

/// Every route of `/v1`.
pub(crate) fn router(api: Api) -> Router {
    let bounded = Router::new()
        .route("/status", get(resources::status))
        .route("/sites", get(resources::sites).post(resources::create_site))
        .route("/machines", get(resources::machines).post(resources::create_machine))
        .route(
            "/machines/{id}",
            get(resources::machine).patch(resources::change_machine).delete(resources::remove_machine),
        )
        .route("/nodes", get(resources::nodes))
        .route("/nodes/{id}", get(resources::node))
        .route("/nodes/{id}/commands", post(resources::order))
        .route("/commands/{id}", get(resources::command))
        .route("/events", get(resources::events))
        .route("/images", get(images::list).post(images::create))
        .route("/images/{name}", get(images::show).delete(images::remove))
        .route("/deploys", post(runs::deploy))
        .route("/runs", get(runs::list))
        .route("/runs/{id}", get(runs::show))
        .route("/runs/{id}/cancel", post(runs::cancel))
        .layer(middleware::from_fn(time_limit));
    let unbounded = Router::new()
        .route("/images/{name}/bytes", put(images::upload))
        .route("/runs/{id}/watch", get(runs::watch));
    let v1 = bounded
        .merge(unbounded)
        .fallback(unknown_route)
        .layer(middleware::from_fn_with_state(api.clone(), auth::require_admin))
        .with_state(api);
    Router::new().nest("/v1", v1).fallback(unknown_route).layer(middleware::map_response(error::typed))
}

async fn unknown_route() -> StatusCode {
    StatusCode::NOT_FOUND
}

/// Answers for a handler that takes too long, or a client that sends its body too slowly.
pub(crate) async fn time_limit(request: Request, next: Next) -> Response {
    match timeout(REQUEST_LIMIT, next.run(request)).await {
        Ok(response) => response,
        Err(_) => Failure::new(
            StatusCode::REQUEST_TIMEOUT,
            "timeout",
            format!("the request was not done within {} s; try again", REQUEST_LIMIT.as_secs()),
        )
        .into_response(),
    }
}
