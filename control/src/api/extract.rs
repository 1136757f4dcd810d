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

/// What of a request's own words is repeated in the error.
const MAX_ECHO_CHARS: usize = 200;

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
    // Serde would take an array as a struct's fields in their order.
    if body.trim_ascii_start().first().is_some_and(|first| *first != b'{') {
        return Err(Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_request", "expected a JSON object"));
    }
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let message = error.inner().to_string();
        let path = error.path().to_string();
        let field = match (path.as_str(), named_field(&message)) {
            (".", named) => named.map(str::to_owned),
            (_, Some(named)) if !path.ends_with(named) => Some(format!("{path}.{named}")),
            _ => Some(path),
        };
        let failure = Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_request", clip(&message));
        match field {
            Some(field) => failure.of_field(clip(&field)),
            None => failure,
        }
    })?;
    reader
        .end()
        .map_err(|error| Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_request", error.to_string()))?;
    Ok(value)
}

/// The beginning of what a request may have made long.
fn clip(text: &str) -> String {
    match text.char_indices().nth(MAX_ECHO_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
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
                let failure = Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_request", clip(&message));
                Err(match named_field(&message) {
                    Some(field) => failure.of_field(clip(field)),
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

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;
    use ironwright_proto::api::{ApiError, NewImage};

    use super::*;

    async fn refused(body: &[u8]) -> ApiError {
        let failure = parse::<NewImage>(body).expect_err("a refusal");
        let response = failure.into_response();
        assert_eq!(response.status(), StatusCode::UNPROCESSABLE_ENTITY);
        let bytes = to_bytes(response.into_body(), 4096).await.expect("a short answer");
        serde_json::from_slice(&bytes).unwrap()
    }

    #[tokio::test]
    async fn a_long_unknown_key_is_not_repeated_whole() {
        let body = format!(r#"{{"{}": 1}}"#, "é".repeat(500_000));
        let error = refused(body.as_bytes()).await.error;
        assert!(error.message.starts_with("unknown field `é"), "{}", error.message);
        assert_eq!(error.message.chars().count(), 201);
        assert_eq!(error.field.unwrap().chars().count(), 201);
    }

    #[tokio::test]
    async fn only_an_object_is_taken_for_a_struct() {
        for body in [r#"["x", "http://a/b", null]"#, " [1]", "null", "1"] {
            assert_eq!(refused(body.as_bytes()).await.error.message, "expected a JSON object", "{body}");
        }
        assert!(parse::<NewImage>(b" {\"name\": \"x\", \"url\": \"http://a/b\"}").is_ok());
    }
}
