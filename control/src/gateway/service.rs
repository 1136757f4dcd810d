//! The gRPC service `Gateway`.

use std::sync::Arc;

use ironwright_control_core::session::Peer as NodePeer;
use ironwright_proto::wire::{
    AgentFrame, JoinGrant, RenewRequest,
    gateway_server::{Gateway, GatewayServer},
};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{Request, Response, Status, Streaming};

use super::{
    links::{Outbox, Outgoing},
    session,
};
use crate::{
    driver::Handle,
    join::{Issuer, status_of},
};

/// A Hello with many results, or an inventory, is the largest frame.
const MAX_FRAME_BYTES: usize = 4 << 20;

/// The service.
pub(crate) struct GatewayService {
    driver: Handle,
    issuer: Arc<Issuer>,
    sessions: TaskTracker,
    shutdown: CancellationToken,
}

impl GatewayService {
    pub(crate) fn server(
        driver: Handle,
        issuer: Arc<Issuer>,
        sessions: TaskTracker,
        shutdown: CancellationToken,
    ) -> GatewayServer<Self> {
        GatewayServer::new(Self { driver, issuer, sessions, shutdown })
            .max_decoding_message_size(MAX_FRAME_BYTES)
    }
}

fn node_of<T>(request: &Request<T>) -> Result<NodePeer, Status> {
    let node = request.extensions().get::<NodePeer>();
    node.cloned().ok_or_else(|| Status::unauthenticated("a node certificate is needed"))
}

#[tonic::async_trait]
impl Gateway for GatewayService {
    type SessionStream = ReceiverStream<Outgoing>;

    async fn session(
        &self,
        request: Request<Streaming<AgentFrame>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        if self.shutdown.is_cancelled() {
            return Err(Status::unavailable("control is stopping; try again in a few seconds"));
        }
        let node = node_of(&request)?;
        let (outbox, sent, cut) = Outbox::new();
        let session = session::run(self.driver.clone(), node, request.into_inner(), outbox, cut);
        self.sessions.spawn(session);
        Ok(Response::new(ReceiverStream::new(sent)))
    }

    async fn renew(&self, request: Request<RenewRequest>) -> Result<Response<JoinGrant>, Status> {
        let node = node_of(&request)?;
        let renew = request.into_inner();
        let grant = self
            .driver
            .call(move |core, now_ms| core.renew(&node, &renew, now_ms))
            .await?
            .map_err(status_of)?;
        Ok(Response::new(self.issuer.grant(&grant)?))
    }
}
