//! The admin's bearer token (RFC 6750), checked once for all routes.

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use zeroize::Zeroizing;

use super::{Api, Failure};

/// Longer ones are no tokens of ours.
const MAX_TOKEN_LEN: usize = 128;

/// The person whose token the request carries; an extension of every request that got past [`require_admin`].
#[derive(Debug, Clone)]
pub(super) struct Actor(pub(super) String);

/// Lets only requests with a known token through.
pub(super) async fn require_admin(State(api): State<Api>, mut request: Request, next: Next) -> Response {
    match authenticate(&api, request.headers()).await {
        Ok(actor) => {
            request.extensions_mut().insert(actor);
            next.run(request).await
        }
        Err(failure) => {
            let mut response = failure.into_response();
            if response.status() == StatusCode::UNAUTHORIZED {
                response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            response
        }
    }
}

async fn authenticate(api: &Api, headers: &HeaderMap) -> Result<Actor, Failure> {
    let Some(token) = bearer_token(headers) else { return Err(unauthorized()) };
    let known = api.driver.call(move |core, _| core.authenticate(&token)).await??;
    known.map(Actor).ok_or_else(unauthorized)
}

fn bearer_token(headers: &HeaderMap) -> Option<Zeroizing<String>> {
    let text = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = text.split_once(' ')?;
    let usable = scheme.eq_ignore_ascii_case("bearer") && (1..=MAX_TOKEN_LEN).contains(&token.len());
    usable.then(|| Zeroizing::new(token.to_owned()))
}

fn unauthorized() -> Failure {
    Failure::new(
        StatusCode::UNAUTHORIZED,
        "unauthorized",
        "every request needs `Authorization: Bearer <admin token>`; log in with `ironwright login`",
    )
}
