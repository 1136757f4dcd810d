//! Reading requests so that what is wrong is named: the field, the limit.

use axum::{
    Json,
    body::to_bytes,
    extract::{FromRequest, FromRequestParts, Query, Request},
};
use http::{StatusCode, request::Parts};
use http_body_util::LengthLimitError;
use serde::de::DeserializeOwned;

use super::Failure;

/// Largest JSON body; user-data is the largest part of any.
const MAX_JSON_BYTES: usize = 1 << 20;

/// A JSON body of at most [`MAX_JSON_BYTES`].
pub(super) struct JsonBody<T>(pub(super) T);

impl<T: DeserializeOwned, S: Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, _: &S) -> Result<Self, Failure> {
        let body = to_bytes(request.into_body(), MAX_JSON_BYTES).await.map_err(|error| {
            let source = std::error::Error::source(&error);
            if source.is_some_and(<dyn std::error::Error>::is::<LengthLimitError>) {
                let message = format!("the body is larger than the {MAX_JSON_BYTES} bytes that are read");
                Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
            } else {
                Failure::new(StatusCode::BAD_REQUEST, "bad_request", "the body could not be read to its end")
            }
        })?;
        parse(&body).map(Self)
    }
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Failure> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let message = error.inner().to_string();
        let path = error.path().to_string();
        let field = match (path.as_str(), named_field(&message)) {
            (".", named) => named.map(str::to_owned),
            (_, Some(named)) if !path.ends_with(named) => Some(format!("{path}.{named}")),
            _ => Some(path),
        };
        let failure = Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_request", message);
        match field {
            Some(field) => failure.of_field(field),
            None => failure,
        }
    })?;
    reader
        .end()
        .map_err(|error| Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_request", error.to_string()))?;
    Ok(value)
}

/// Serde tells unknown and missing fields only in words: "unknown field `x`, expected …".
fn named_field(message: &str) -> Option<&str> {
    let rest = ["unknown field `", "missing field `"]
        .iter()
        .find_map(|words| message.find(words).map(|at| &message[at + words.len()..]))?;
    rest.split('`').next()
}

/// The query string.
pub(super) struct QueryString<T>(pub(super) T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for QueryString<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(value)) => Ok(Self(value)),
            Err(rejection) => {
                let message = rejection.body_text();
                let failure = Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_request", &message);
                Err(match named_field(&message) {
                    Some(field) => failure.of_field(field),
                    None => failure,
                })
            }
        }
    }
}

/// A created thing.
pub(super) const fn created<T>(thing: T) -> (StatusCode, Json<T>) {
    (StatusCode::CREATED, Json(thing))
}
