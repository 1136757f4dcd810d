//! The agents' side of control, on its own listener: no request gets here without a node certificate that the TLS
//! handshake has verified. Who the node is stands in the certificate's URI SAN, and nowhere else.

mod blobs;
pub(crate) mod links;
mod service;
mod session;

use std::sync::Arc;

use axum::{
    Router,
    extract::Request,
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::get,
};
use http::StatusCode;
use ironwright_control_core::session::Peer as NodePeer;
use ironwright_images::store::Store;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{blobs::Blobs, service::GatewayService};
use crate::{ca::node_id_of, driver::Handle, join::Issuer, net::Peer};

/// All routes of the gateway.
pub(crate) fn router(
    driver: Handle,
    issuer: Arc<Issuer>,
    store: Store,
    sessions: TaskTracker,
    shutdown: CancellationToken,
) -> Router {
    let blobs = Router::new()
        .route("/blobs/sha256/{hex}", get(blobs::get))
        .with_state(Blobs { driver: driver.clone(), store });
    let service = GatewayService::server(driver, issuer, sessions, shutdown);
    Router::new()
        .route_service("/ironwright.v1.Gateway/{method}", service)
        .merge(blobs)
        .layer(middleware::from_fn(require_node))
}

/// Puts the node into the request, or refuses it: also a certificate of control's CA that is no node's.
async fn require_node(mut request: Request, next: Next) -> Response {
    let Some(node) = request.extensions().get::<Peer>().and_then(node_of) else {
        return (StatusCode::FORBIDDEN, "a node certificate is needed\n").into_response();
    };
    request.extensions_mut().insert(node);
    next.run(request).await
}

fn node_of(peer: &Peer) -> Option<NodePeer> {
    let certificate = peer.certificate.as_ref()?;
    let node_id = node_id_of(certificate)?;
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    Some(NodePeer { node_id, spki_der: parsed.public_key().raw.to_vec() })
}
