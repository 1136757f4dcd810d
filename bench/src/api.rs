//! An operator: one HTTP/2 connection to control's API.

use anyhow::{Context, Result, ensure};
use http::{Method, Request, header};
use http_body_util::{BodyExt, Full};
use hyper::{body::Bytes, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use ironwright_proto::api::{NewCommand, Status};
use rustls_pki_types::ServerName;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::control::Control;

#[derive(Clone)]
pub(crate) struct Api {
    connection: http2::SendRequest<Full<Bytes>>,
    authority: String,
    token: String,
}

impl Api {
    pub(crate) async fn connect(control: &Control) -> Result<Self> {
        let mut tls = (*ironwright_agent::tls::pinned_client_config(control.ca_pin())?).clone();
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let tcp = TcpStream::connect(control.api()).await.context("connecting to control's API")?;
        tcp.set_nodelay(true)?;
        let name = ServerName::from(control.api().ip());
        let stream = TlsConnector::from(std::sync::Arc::new(tls)).connect(name, tcp).await?;
        let (connection, driver) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        tokio::spawn(driver);
        Ok(Self { connection, authority: control.api().to_string(), token: control.token().to_owned() })
    }

    async fn ask<T: DeserializeOwned>(&self, method: Method, path: &str, body: Vec<u8>) -> Result<T> {
        let request = Request::builder()
            .method(method)
            .uri(format!("https://{}{path}", self.authority))
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))?;
        let answer = self.connection.clone().send_request(request).await.context("asking control")?;
        let status = answer.status();
        let body = answer.into_body().collect().await.context("reading control's answer")?.to_bytes();
        ensure!(status.is_success(), "control says {status}: {}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).context("reading control's answer")
    }

    pub(crate) async fn sessions(&self) -> Result<u64> {
        Ok(self.ask::<Status>(Method::GET, "/v1/status", Vec::new()).await?.sessions)
    }

    /// Orders an inventory of a node; gives the command's id.
    pub(crate) async fn order(&self, node: &str, order: &NewCommand) -> Result<String> {
        let command: ironwright_proto::api::Command =
            self.ask(Method::POST, &format!("/v1/nodes/{node}/commands"), serde_json::to_vec(order)?).await?;
        Ok(command.id)
    }
}
