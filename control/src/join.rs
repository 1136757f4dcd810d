//! The gRPC service `Join`, on the API's listener: no client certificate, no bearer token; the core's join policy
//! decides, and what it grants becomes a certificate here.

use std::sync::Arc;

use ironwright_control_core::join::{Grant, JoinError};
use ironwright_proto::wire::{
    Envelope, JoinFinish, JoinGrant, JoinRound, TimeRequest, TokenJoin,
    join_server::{Join, JoinServer},
};
use rand::rngs::OsRng;
use time::OffsetDateTime;
use tonic::{Request, Response, Status};

use crate::{
    ca::{Authority, ServerIdentity},
    clock::unix_ms,
    driver::{Handle, Stopped},
    net::Peer,
};

/// The largest message is `JoinFinish` with an event log of 1 MiB.
const MAX_MESSAGE_BYTES: usize = (1 << 20) + (64 << 10);
const NONCE_LEN: usize = 32;

/// Turns grants into certificates.
pub(crate) struct Issuer {
    ca: Authority,
    gateway_url: String,
}

impl Issuer {
    pub(crate) const fn new(ca: Authority, gateway_url: String) -> Self {
        Self { ca, gateway_url }
    }

    /// The certificate of a grant with its chain, and where to go with it.
    pub(crate) fn grant(&self, grant: &Grant) -> Result<JoinGrant, Status> {
        let leaf = self.ca.issue_node(&grant.node_id, &grant.spki_der, OffsetDateTime::now_utc()).map_err(
            |error| {
                tracing::error!(
                    node = grant.node_id,
                    error = &error as &dyn std::error::Error,
                    "no certificate"
                );
                Status::internal("control could not issue the certificate")
            },
        )?;
        Ok(JoinGrant {
            node_id: grant.node_id.clone(),
            chain: vec![leaf.to_vec(), self.ca.certificate().to_vec()],
            gateway_url: self.gateway_url.clone(),
        })
    }
}

/// Only the code of a refusal leaves; the reason is in the audit log.
pub(crate) fn status_of(error: JoinError) -> Status {
    match error {
        JoinError::Refused(refusal) => {
            tracing::warn!(code = refusal.code.as_str(), reason = refusal.reason, "join refused");
            Status::permission_denied(refusal.code.as_str())
        }
        JoinError::Internal(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "a join failed inside");
            Status::internal("control could not do this because of an error of its own")
        }
    }
}

impl From<Stopped> for Status {
    fn from(stopped: Stopped) -> Self {
        Self::unavailable(stopped.to_string())
    }
}

/// The service.
pub(crate) struct JoinService {
    driver: Handle,
    issuer: Arc<Issuer>,
    server: Arc<ServerIdentity>,
}

impl JoinService {
    pub(crate) fn server(
        driver: Handle,
        issuer: Arc<Issuer>,
        server: Arc<ServerIdentity>,
    ) -> JoinServer<Self> {
        JoinServer::new(Self { driver, issuer, server }).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }
}

/// The peer's address, for the rate limit.
fn source_of<T>(request: &Request<T>) -> Result<String, Status> {
    let peer = request.extensions().get::<Peer>();
    peer.map(|peer| peer.address.to_string()).ok_or_else(|| Status::internal("the connection has no peer"))
}

#[tonic::async_trait]
impl Join for JoinService {
    async fn time(&self, request: Request<TimeRequest>) -> Result<Response<Envelope>, Status> {
        let nonce = request.into_inner().nonce;
        if nonce.len() != NONCE_LEN {
            return Err(Status::invalid_argument("malformed"));
        }
        let envelope = self.server.time_envelope(nonce, unix_ms()).map_err(|error| {
            tracing::error!(error = &error as &dyn std::error::Error, "cannot sign the time");
            Status::internal("control could not sign the time")
        })?;
        Ok(Response::new(envelope))
    }

    async fn begin(&self, request: Request<JoinRound>) -> Result<Response<JoinRound>, Status> {
        let source = source_of(&request)?;
        let round = request.into_inner();
        let challenge = self
            .driver
            .call(move |core, now_ms| core.join_begin(&source, &round.body, now_ms, &mut OsRng))
            .await?
            .map_err(status_of)?;
        Ok(Response::new(JoinRound { body: challenge }))
    }

    async fn finish(&self, request: Request<JoinFinish>) -> Result<Response<JoinGrant>, Status> {
        let source = source_of(&request)?;
        let finish = request.into_inner();
        let grant = self
            .driver
            .call(move |core, now_ms| core.join_finish(&source, &finish, now_ms, &mut OsRng))
            .await?
            .map_err(status_of)?;
        Ok(Response::new(self.issuer.grant(&grant)?))
    }

    async fn with_token(&self, request: Request<TokenJoin>) -> Result<Response<JoinGrant>, Status> {
        let source = source_of(&request)?;
        let join = request.into_inner();
        let grant = self
            .driver
            .call(move |core, now_ms| core.join_with_token(&source, &join, now_ms, &mut OsRng))
            .await?
            .map_err(status_of)?;
        Ok(Response::new(self.issuer.grant(&grant)?))
    }
}
