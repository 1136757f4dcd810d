//! Requests to responses.

use std::{
    fs::File,
    io::{self, Seek, SeekFrom},
    str::FromStr,
};

use bytes::Bytes;
use futures::TryStreamExt;
use http::{HeaderMap, HeaderName, Method, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::body::Frame;
use ironwright_proto::ids::{Digest, Mac};
use tokio::io::AsyncReadExt;
use tokio_util::io::ReaderStream;
use tracing::{debug, error};

use super::{
    Blobs, Boots, ScriptAnswer,
    range::{Part, part},
};
use crate::files::Files;

/// Bytes read from disk at a time.
const CHUNK: usize = 64 * 1024;
/// Longest path that is looked at; the longest valid one is that of a blob.
const MAX_PATH: usize = 256;

pub(super) type Body = BoxBody<Bytes, io::Error>;

/// What requests are answered from.
pub(super) struct Content {
    pub(super) files: std::sync::Arc<Files>,
    pub(super) blobs: std::sync::Arc<dyn Blobs>,
    pub(super) boots: std::sync::Arc<dyn Boots>,
}

/// Answers one request.
pub(super) async fn answer(content: &Content, request: &http::request::Parts) -> Response<Body> {
    let head = request.method == Method::HEAD;
    if !head && request.method != Method::GET {
        return refuse(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are served", Some("GET, HEAD"));
    }
    let mut path = request.uri.path();
    if path.len() > MAX_PATH {
        return refuse(StatusCode::URI_TOO_LONG, "the path is too long", None);
    }
    // Firmware joins a base URL and a name with one slash too many (field report T5).
    while let Some(rest) = path.strip_prefix('/').filter(|_| path.starts_with("//")) {
        path = rest;
    }
    let mut response = match path.split('/').collect::<Vec<_>>()[..] {
        ["", "boot", mac, "ipxe"] => {
            if head {
                return refuse(StatusCode::METHOD_NOT_ALLOWED, "scripts are for GET only", Some("GET"));
            }
            script(content, mac).await
        }
        ["", "blobs", "sha256", hex] => blob(content, hex, &request.headers).await,
        ["", name] => file(content, name),
        _ => not_found(),
    };
    if head {
        *response.body_mut() = empty();
    }
    debug!(method = %request.method, path, status = response.status().as_u16(), "answered");
    response
}

async fn script(content: &Content, mac: &str) -> Response<Body> {
    // iPXE escapes the colons of `chain http://…/boot/${mac}/ipxe`.
    let Ok(mac) = Mac::from_str(&mac.replace("%3A", ":").replace("%3a", ":")) else {
        return refuse(StatusCode::BAD_REQUEST, "the path does not hold a MAC address", None);
    };
    match content.boots.script(mac).await {
        ScriptAnswer::Script(text) => full(StatusCode::OK, "text/plain", text.into()),
        ScriptAnswer::Unknown => not_found(),
        ScriptAnswer::NotNow => {
            let why = "this site does not hold the lease for network boot";
            let mut response = refuse(StatusCode::SERVICE_UNAVAILABLE, why, None);
            set(&mut response, header::RETRY_AFTER, "5");
            response
        }
    }
}

fn file(content: &Content, name: &str) -> Response<Body> {
    match content.files.get(name) {
        Some(bytes) => full(StatusCode::OK, "application/octet-stream", bytes),
        None => not_found(),
    }
}

async fn blob(content: &Content, hex: &str, headers: &HeaderMap) -> Response<Body> {
    let Ok(digest) = Digest::from_str(&format!("sha256:{hex}")) else {
        return refuse(StatusCode::BAD_REQUEST, "the path does not hold a SHA-256 digest", None);
    };
    let etag = format!("\"{digest}\"");
    let range = headers.get(header::RANGE).and_then(|value| value.to_str().ok());
    // A range of another version of the file must not be mixed with this one (RFC 9110 section 13.1.5).
    let same = headers.get(header::IF_RANGE).is_none_or(|value| value.as_bytes() == etag.as_bytes());
    let range = range.filter(|_| same).map(str::to_owned);

    let blobs = content.blobs.clone();
    let opened = tokio::task::spawn_blocking(move || open_part(&*blobs, digest, range.as_deref())).await;
    let (file, size, part) = match opened {
        Ok(Ok(Some(opened))) => opened,
        Ok(Ok(None)) => return not_found(),
        Ok(Err(error)) => {
            error!(%digest, %error, "cannot read a blob");
            return refuse(StatusCode::INTERNAL_SERVER_ERROR, "the blob cannot be read", None);
        }
        Err(_) => return refuse(StatusCode::SERVICE_UNAVAILABLE, "the site is stopping", None),
    };
    let (status, len, content_range) = match part {
        Part::Whole => (StatusCode::OK, size, None),
        Part::Bytes { start, len } => {
            (StatusCode::PARTIAL_CONTENT, len, Some(format!("bytes {start}-{}/{size}", start + len - 1)))
        }
        Part::Unsatisfiable => {
            let mut response = refuse(StatusCode::RANGE_NOT_SATISFIABLE, "nothing in this range", None);
            set(&mut response, header::CONTENT_RANGE, &format!("bytes */{size}"));
            return response;
        }
    };
    let chunks = ReaderStream::with_capacity(tokio::fs::File::from_std(file).take(len), CHUNK);
    let mut response = Response::new(StreamBody::new(chunks.map_ok(Frame::data)).boxed());
    *response.status_mut() = status;
    set(&mut response, header::CONTENT_TYPE, "application/octet-stream");
    set(&mut response, header::CONTENT_LENGTH, &len.to_string());
    set(&mut response, header::ACCEPT_RANGES, "bytes");
    set(&mut response, header::ETAG, &etag);
    if let Some(range) = content_range {
        set(&mut response, header::CONTENT_RANGE, &range);
    }
    response
}

fn open_part(
    blobs: &dyn Blobs,
    digest: Digest,
    range: Option<&str>,
) -> io::Result<Option<(File, u64, Part)>> {
    let Some((mut file, size)) = blobs.open(&digest)? else { return Ok(None) };
    let part = part(range, size);
    if let Part::Bytes { start, .. } = part {
        file.seek(SeekFrom::Start(start))?;
    }
    Ok(Some((file, size, part)))
}

fn full(status: StatusCode, content_type: &'static str, bytes: Bytes) -> Response<Body> {
    let len = bytes.len().to_string();
    let mut response = Response::new(Full::new(bytes).map_err(|never| match never {}).boxed());
    *response.status_mut() = status;
    set(&mut response, header::CONTENT_TYPE, content_type);
    set(&mut response, header::CONTENT_LENGTH, &len);
    response
}

fn refuse(status: StatusCode, why: &'static str, allow: Option<&'static str>) -> Response<Body> {
    let mut response = full(status, "text/plain", format!("{why}\n").into());
    if let Some(allow) = allow {
        set(&mut response, header::ALLOW, allow);
    }
    response
}

pub(super) fn not_found() -> Response<Body> {
    refuse(StatusCode::NOT_FOUND, "there is nothing here", None)
}

fn empty() -> Body {
    Full::default().map_err(|never| match never {}).boxed()
}

/// All our values are digits, digests and constants; another one would be left out rather than panic.
fn set(response: &mut Response<Body>, name: HeaderName, value: &str) {
    if let Ok(value) = value.parse() {
        response.headers_mut().insert(name, value);
    }
}
