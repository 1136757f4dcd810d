//! `GET /blobs/sha256/<hex>`: image bytes for sites, with ranges so that an interrupted fetch goes on.
//!
//! Standard: RFC 9110 section 14 (one byte range; several at once get the whole).

use axum::{
    Extension,
    body::Body,
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use http::{HeaderMap, Method, StatusCode, header};
use ironwright_control_core::session::Peer as NodePeer;
use ironwright_images::store::{Store, StoreError};
use tokio::io::AsyncReadExt;
use tokio_util::io::ReaderStream;

use crate::driver::Handle;

const READ_BYTES: usize = 256 << 10;

/// What the route works with.
#[derive(Clone)]
pub(super) struct Blobs {
    pub(super) driver: Handle,
    pub(super) store: Store,
}

pub(super) async fn get(
    State(blobs): State<Blobs>,
    Extension(node): Extension<NodePeer>,
    Path(hex_digest): Path<String>,
    method: Method,
    headers: HeaderMap,
) -> Response {
    // The certificate may outlive the node, or the node's key.
    match blobs.driver.call(move |core, _| core.peer_is_current(&node)).await {
        Ok(Ok(true)) => {}
        Ok(Ok(false)) => {
            return (StatusCode::FORBIDDEN, "this certificate is of no node any more\n").into_response();
        }
        Ok(Err(error)) => {
            tracing::error!(error = &error as &dyn std::error::Error, "a node cannot be looked up");
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
        Err(_) => return StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
    let mut digest = [0; 32];
    if hex::decode_to_slice(&hex_digest, &mut digest).is_err() {
        return StatusCode::NOT_FOUND.into_response();
    }
    let wanted = headers.get(header::RANGE).and_then(|value| value.to_str().ok()).map(str::to_owned);
    match tokio::task::spawn_blocking(move || open(&blobs.store, &digest, wanted.as_deref())).await {
        Ok(Ok(found)) => answer(found, &hex_digest, method == Method::HEAD),
        Ok(Err(error)) => {
            tracing::error!(error = &error as &dyn std::error::Error, "a blob cannot be read");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

enum Found {
    Nothing,
    Unsatisfiable { size: u64 },
    Bytes { file: std::fs::File, part: Part, size: u64 },
}

/// What of the blob is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Whole,
    Range { start: u64, len: u64 },
    Unsatisfiable,
}

fn open(store: &Store, digest: &[u8; 32], wanted: Option<&str>) -> Result<Found, StoreError> {
    let Some(object) = store.open(digest)? else { return Ok(Found::Nothing) };
    let size = object.size();
    let part = wanted.map_or(Part::Whole, |range| parse_range(range, size));
    let file = match part {
        Part::Unsatisfiable => return Ok(Found::Unsatisfiable { size }),
        Part::Whole => object.into_file(),
        Part::Range { start, len } => object.range(start, len)?.into_inner(),
    };
    Ok(Found::Bytes { file, part, size })
}

/// One range of `bytes`; what is no such range is as good as none.
fn parse_range(text: &str, size: u64) -> Part {
    let Some((first, last)) = text.strip_prefix("bytes=").and_then(|range| range.split_once('-')) else {
        return Part::Whole;
    };
    let (start, end) = match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(start), Ok(last)) if start <= last => (start, last.saturating_add(1).min(size)),
        (Ok(start), Err(_)) if last.is_empty() => (start, size),
        (Err(_), Ok(suffix)) if first.is_empty() => (size - suffix.min(size), size),
        _ => return Part::Whole,
    };
    if start < end { Part::Range { start, len: end - start } } else { Part::Unsatisfiable }
}

fn answer(found: Found, hex_digest: &str, head: bool) -> Response {
    let (file, part, size) = match found {
        Found::Nothing => return StatusCode::NOT_FOUND.into_response(),
        Found::Unsatisfiable { size } => {
            let range = [(header::CONTENT_RANGE, format!("bytes */{size}"))];
            return (StatusCode::RANGE_NOT_SATISFIABLE, range).into_response();
        }
        Found::Bytes { file, part, size } => (file, part, size),
    };
    let len = if let Part::Range { len, .. } = part { len } else { size };
    let body = if head {
        Body::empty()
    } else {
        let reader = tokio::fs::File::from_std(file).take(len);
        Body::from_stream(ReaderStream::with_capacity(reader, READ_BYTES))
    };
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_LENGTH, len.to_string()),
        (header::ACCEPT_RANGES, "bytes".to_owned()),
        (header::ETAG, format!("\"{hex_digest}\"")),
    ];
    match part {
        Part::Range { start, len } => {
            let range = format!("bytes {start}-{}/{size}", start + len - 1);
            (StatusCode::PARTIAL_CONTENT, headers, [(header::CONTENT_RANGE, range)], body).into_response()
        }
        _ => (headers, body).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_rfc_9110_says() {
        let range = |start, len| Part::Range { start, len };
        for (text, part) in [
            ("bytes=0-0", range(0, 1)),
            ("bytes=10-", range(10, 90)),
            ("bytes=90-1000", range(90, 10)),
            ("bytes=-5", range(95, 5)),
            ("bytes=-1000", range(0, 100)),
            ("bytes=100-", Part::Unsatisfiable),
            ("bytes=-0", Part::Unsatisfiable),
            ("bytes=5-4", Part::Whole),
            ("bytes=0-1,5-6", Part::Whole),
            ("lines=0-1", Part::Whole),
            ("bytes=a-b", Part::Whole),
        ] {
            assert_eq!(parse_range(text, 100), part, "{text}");
        }
        assert_eq!(parse_range("bytes=0-", 0), Part::Unsatisfiable);
    }
}
