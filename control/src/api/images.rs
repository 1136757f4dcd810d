//! Images: registered by URL and fetched in the background, or uploaded.

use std::time::Duration;

use axum::{
    Extension, Json,
    body::{Body, BodyDataStream},
    extract::{Path, State},
};
use futures::StreamExt;
use http::StatusCode;
use hyper::body::Body as _;
use ironwright_proto::{
    api::{ApiErrorBody, Image, ImageState, NewImage},
    ids::{Digest, Name},
};
use serde::Deserialize;
use tokio::time::timeout;

use super::{
    Api, Failure,
    auth::Actor,
    extract::{JsonBody, QueryString},
};
use crate::sources::{INSUFFICIENT_STORAGE, Source, TOO_SLOW, TURN_LIMIT, Turn};

/// A refused upload is read on for this long, so that its client, which is still sending, gets to the answer.
const LINGER_LIMIT: Duration = Duration::from_secs(30);

pub(super) async fn list(State(api): State<Api>) -> Result<Json<Vec<Image>>, Failure> {
    Ok(Json(api.driver.call(|core, _| core.images()).await??))
}

pub(super) async fn show(State(api): State<Api>, Path(name): Path<String>) -> Result<Json<Image>, Failure> {
    Ok(Json(api.driver.call(move |core, _| core.image(&name)).await??))
}

pub(super) async fn create(
    State(api): State<Api>,
    Extension(Actor(actor)): Extension<Actor>,
    JsonBody(new): JsonBody<NewImage>,
) -> Result<(StatusCode, Json<Image>), Failure> {
    api.transfers
        .check_url(&new.url)
        .map_err(|(code, why)| Failure::new(StatusCode::UNPROCESSABLE_ENTITY, code, why).of_field("url"))?;
    let expected = new.digest;
    let image = api.driver.call(move |core, now_ms| core.register_image(&actor, &new, now_ms)).await??;
    api.transfers.fetch(image.name.clone(), image.source.clone(), expected);
    Ok((StatusCode::ACCEPTED, Json(image)))
}

pub(super) async fn remove(
    State(api): State<Api>,
    Extension(Actor(actor)): Extension<Actor>,
    Path(name): Path<String>,
) -> Result<Json<Image>, Failure> {
    let image = api.driver.call(move |core, now_ms| core.remove_image(&actor, &name, now_ms)).await??;
    if let Some(digest) = image.digest {
        api.transfers.forget(digest).await?;
    }
    Ok(Json(image))
}

/// `?digest=sha256:…`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UploadQuery {
    digest: Option<Digest>,
}

pub(super) async fn upload(
    State(api): State<Api>,
    Extension(Actor(actor)): Extension<Actor>,
    Path(name): Path<String>,
    QueryString(query): QueryString<UploadQuery>,
    body: Body,
) -> Result<Json<Image>, Failure> {
    let len = body.size_hint().exact();
    let bytes = body.into_data_stream();
    let (name, turn) = match register(&api, actor, &name).await {
        Ok(registered) => registered,
        Err(failure) => {
            // Beside the answer: one that comes only after all bytes would be late.
            tokio::spawn(timeout(LINGER_LIMIT, linger(bytes)));
            return Err(failure);
        }
    };
    let bytes = bytes.map(|item| item.map_err(std::io::Error::other)).boxed();
    let image = api.transfers.upload(turn, name, Source { bytes, len }, query.digest).await?;
    match image.error.clone().filter(|_| image.state == ImageState::Failed) {
        Some(error) => Err(Failure::with_body(status_of(&error), error)),
        None => Ok(Json(image)),
    }
}

/// The status of an upload that failed.
fn status_of(error: &ApiErrorBody) -> StatusCode {
    match error.code.as_str() {
        INSUFFICIENT_STORAGE => StatusCode::INSUFFICIENT_STORAGE,
        TOO_SLOW => StatusCode::REQUEST_TIMEOUT,
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    }
}

/// The image is registered only once it is its turn.
async fn register(api: &Api, actor: String, name: &str) -> Result<(Name, Turn), Failure> {
    let name: Name = name.parse().map_err(|e: ironwright_proto::ids::IdError| {
        Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_request", e.to_string()).of_field("name")
    })?;
    let turn = api.transfers.upload_turn().await?.ok_or_else(busy)?;
    let image = api.driver.call(move |core, now_ms| core.register_upload(&actor, &name, now_ms)).await??;
    Ok((image.name, turn))
}

fn busy() -> Failure {
    let message = "control is busy with other images; try again in a minute";
    Failure::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message).retry_after(TURN_LIMIT)
}

async fn linger(mut bytes: BodyDataStream) {
    while let Some(Ok(_)) = bytes.next().await {}
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;

    use super::*;

    #[test]
    fn a_busy_control_says_when_to_come_back() {
        let response = busy().into_response();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()[http::header::RETRY_AFTER], "30");
    }
}
