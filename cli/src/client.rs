//! The HTTPS client of control's API: one connection a request, the CA pinned, typed errors.

use std::{process::ExitCode, sync::Arc, time::Duration};

use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited, combinators::BoxBody};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use ironwright_proto::api::{ApiError, ApiErrorBody};
use rustls_pki_types::ServerName;
use serde::{Serialize, de::DeserializeOwned};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;

use crate::client_config::ClientConfig;

const CONNECT_LIMIT: Duration = Duration::from_secs(10);
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// Why a call to control did not succeed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// No answer came from there.
    #[error("cannot reach control at {url}: {why}; is `ironwright control serve` running there?")]
    Unreachable { url: String, why: String },
    /// Control refused.
    #[error("{}", describe(.0))]
    Refused(ApiErrorBody),
    /// An answer that is not of the API.
    #[error("control at {url} gave an answer that is not of its API: {why}")]
    BadAnswer { url: String, why: String },
}

fn describe(error: &ApiErrorBody) -> String {
    match &error.field {
        Some(field) => format!("{} ({}, field `{field}`)", error.message, error.code),
        None => format!("{} ({})", error.message, error.code),
    }
}

impl ClientError {
    /// Exit codes as in `docs/cli.md`.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Refused(_) => ExitCode::FAILURE,
            Self::Unreachable { .. } | Self::BadAnswer { .. } => ExitCode::from(3),
        }
    }
}

type Body = BoxBody<Bytes, std::io::Error>;

/// A control plane, and who we are there.
pub(crate) struct Client {
    config: ClientConfig,
    tls: Arc<rustls::ClientConfig>,
}

impl Client {
    /// A client for the control plane that `login` remembered.
    pub(crate) fn from_login() -> anyhow::Result<Self> {
        Self::new(ClientConfig::load()?)
    }

    pub(crate) fn new(config: ClientConfig) -> anyhow::Result<Self> {
        let tls = ironwright_agent::tls::pinned_client_config(config.ca_pin)?;
        Ok(Self { config, tls })
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let answer = self.send(Method::GET, path, None).await?;
        self.decode(answer).await
    }

    pub(crate) async fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let answer = self.send(Method::DELETE, path, None).await?;
        self.decode(answer).await
    }

    pub(crate) async fn post<Q: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Q,
    ) -> Result<T, ClientError> {
        self.send_json(Method::POST, path, body).await
    }

    pub(crate) async fn patch<Q: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Q,
    ) -> Result<T, ClientError> {
        self.send_json(Method::PATCH, path, body).await
    }

    async fn send_json<Q: Serialize, T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &Q,
    ) -> Result<T, ClientError> {
        let bytes = serde_json::to_vec(body).map_err(|e| self.bad_answer(&e))?;
        let body = Full::new(Bytes::from(bytes)).map_err(|never| match never {}).boxed();
        let answer = self.send(method, path, Some((body, None))).await?;
        self.decode(answer).await
    }

    /// Uploads a stream of known length.
    pub(crate) async fn put_stream<T: DeserializeOwned>(
        &self,
        path: &str,
        body: Body,
        length: u64,
    ) -> Result<T, ClientError> {
        let answer = self.send(Method::PUT, path, Some((body, Some(length)))).await?;
        self.decode(answer).await
    }

    /// Reads an answer of one JSON document a line; `each` returns whether to go on.
    pub(crate) async fn lines<T: DeserializeOwned>(
        &self,
        path: &str,
        mut each: impl FnMut(T) -> bool,
    ) -> Result<(), ClientError> {
        let mut answer = self.send(Method::GET, path, None).await?;
        if !answer.status().is_success() {
            return self.decode::<serde_json::Value>(answer).await.map(|_| ());
        }
        let mut pending = Vec::new();
        while let Some(frame) = answer.body_mut().frame().await {
            let frame = frame.map_err(|e| self.unreachable(&e))?;
            let Some(data) = frame.data_ref() else { continue };
            pending.extend_from_slice(data);
            if pending.len() > MAX_ANSWER_BYTES {
                return Err(self.bad_answer(&"a line without end"));
            }
            while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = pending.drain(..=end).collect();
                if line.len() > 1 && !each(serde_json::from_slice(&line).map_err(|e| self.bad_answer(&e))?) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<(Body, Option<u64>)>,
    ) -> Result<http::Response<Incoming>, ClientError> {
        let uri: http::Uri = self.config.url.parse().map_err(|e| self.unreachable(&e))?;
        let host = uri.host().ok_or_else(|| self.unreachable(&"the URL has no host"))?;
        let stream = timeout(CONNECT_LIMIT, self.connect(host, uri.port_u16().unwrap_or(443)))
            .await
            .map_err(|_| self.unreachable(&"no connection within 10 s"))??;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|e| self.unreachable(&e))?;
        // Ends by itself once the answer is read or dropped.
        tokio::spawn(connection);

        let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, authority)
            .header(header::AUTHORIZATION, format!("Bearer {}", self.config.token))
            .header(header::CONTENT_TYPE, "application/json");
        let unlimited = body.as_ref().is_some_and(|(_, length)| length.is_some());
        if let Some((_, Some(length))) = &body {
            request = request
                .header(header::CONTENT_LENGTH, *length)
                .header(header::CONTENT_TYPE, "application/octet-stream");
        }
        let body = body.map_or_else(
            || http_body_util::Empty::new().map_err(|never| match never {}).boxed(),
            |(body, _)| body,
        );
        let request = request.body(body).map_err(|e| self.unreachable(&e))?;
        let answer = sender.send_request(request);
        // An upload lasts as long as it lasts; everything else is answered soon.
        let answer = if unlimited {
            answer.await
        } else {
            timeout(ANSWER_LIMIT, answer).await.map_err(|_| self.unreachable(&"no answer within 60 s"))?
        };
        answer.map_err(|e| self.unreachable(&e))
    }

    async fn connect(
        &self,
        host: &str,
        port: u16,
    ) -> Result<tokio_rustls::client::TlsStream<TcpStream>, ClientError> {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_owned()).map_err(|e| self.unreachable(&e))?;
        let tcp = TcpStream::connect((host, port)).await.map_err(|e| self.unreachable(&e))?;
        TlsConnector::from(self.tls.clone()).connect(name, tcp).await.map_err(|e| self.unreachable(&e))
    }

    async fn decode<T: DeserializeOwned>(&self, answer: http::Response<Incoming>) -> Result<T, ClientError> {
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MAX_ANSWER_BYTES)
            .collect()
            .await
            .map_err(|e| self.bad_answer(&e))?
            .to_bytes();
        if status.is_success() {
            return serde_json::from_slice(&body).map_err(|e| self.bad_answer(&e));
        }
        match serde_json::from_slice::<ApiError>(&body) {
            Ok(error) => Err(ClientError::Refused(error.error)),
            Err(_) => Err(self.bad_answer(&describe_status(status))),
        }
    }

    fn unreachable(&self, why: &dyn std::fmt::Display) -> ClientError {
        ClientError::Unreachable { url: self.config.url.clone(), why: why.to_string() }
    }

    fn bad_answer(&self, why: &dyn std::fmt::Display) -> ClientError {
        ClientError::BadAnswer { url: self.config.url.clone(), why: why.to_string() }
    }
}

fn describe_status(status: StatusCode) -> String {
    format!("HTTP status {status}")
}
