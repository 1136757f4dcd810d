//! The incoming end of one session.
//!
//! ```text
//! stream opens ──▶ waits for Hello ──Welcome──▶ open ──▶ each frame goes to the core, in order
//!                     │                          │
//!                     │ 30 s, another frame,     │ stream ends, or the outgoing end is dropped:
//!                     ▼ Rejected                 ▼ fenced, silent, too slow, draining
//!                   ended                      ended: the core is told
//! ```
//!
//! A session waits for the driver with each frame, so an agent that sends too much is held back by its own stream.

use std::time::Duration;

use futures::{Stream, StreamExt};
use ironwright_control_core::{
    Error, SessionRef,
    session::{Opened, Peer},
};
use ironwright_proto::wire::{AgentFrame, GatewayFrame, Hello, Rejected, agent_frame, gateway_frame};
use rand::rngs::OsRng;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::links::Outbox;
use crate::driver::{Handle, State, Stopped};

const HELLO_LIMIT: Duration = Duration::from_secs(30);

/// Runs one session to its end.
pub(super) async fn run(
    driver: Handle,
    peer: Peer,
    mut frames: impl Stream<Item = Result<AgentFrame, Status>> + Unpin,
    outbox: Outbox,
    cut: CancellationToken,
) {
    let Some(hello) = first_frame(&mut frames).await else {
        tracing::debug!(node = peer.node_id, "a session without Hello");
        return;
    };
    let node = peer.node_id.clone();
    let Ok(Some(session)) =
        driver.apply(move |state, now_ms| open(state, &peer, &hello, outbox, now_ms)).await
    else {
        return;
    };
    tracing::info!(node, epoch = session.epoch, "session open");
    let why = pump(&driver, &session, frames, cut).await;
    tracing::info!(node, epoch = session.epoch, why, "session ended");
    let closing = driver.apply(move |state, _| {
        state.links.remove(&session);
        state.core.session_closed(&session.node, session.epoch);
    });
    // Without a driver there is nobody to tell.
    let _: Result<(), Stopped> = closing.await;
}

async fn first_frame(frames: &mut (impl Stream<Item = Result<AgentFrame, Status>> + Unpin)) -> Option<Hello> {
    match timeout(HELLO_LIMIT, frames.next()).await.ok()?? {
        Ok(AgentFrame { frame: Some(agent_frame::Frame::Hello(hello)) }) => Some(hello),
        _ => None,
    }
}

/// Asks the core for a session. Where it gives none, the outbox is dropped here, which ends the stream.
fn open(state: &mut State, peer: &Peer, hello: &Hello, outbox: Outbox, now_ms: i64) -> Option<SessionRef> {
    match state.core.session_open(peer, hello, now_ms, &mut OsRng) {
        Ok(Opened::Welcome { epoch, output }) => {
            let session = SessionRef { node: peer.node_id.clone(), epoch };
            state.links.add(session.clone(), outbox);
            state.emit(output);
            Some(session)
        }
        Ok(Opened::Rejected(rejected)) => {
            tracing::warn!(node = peer.node_id, code = rejected.code, "session rejected");
            outbox.send(reject(rejected));
            None
        }
        Err(error) => {
            log(&error, "a session could not be opened");
            None
        }
    }
}

const fn reject(rejected: Rejected) -> GatewayFrame {
    GatewayFrame { frame: Some(gateway_frame::Frame::Rejected(rejected)) }
}

/// Hands frames to the core until the session ends; gives the reason for the log.
async fn pump(
    driver: &Handle,
    session: &SessionRef,
    mut frames: impl Stream<Item = Result<AgentFrame, Status>> + Unpin,
    cut: CancellationToken,
) -> &'static str {
    loop {
        let frame = tokio::select! {
            () = cut.cancelled() => return "closed by control",
            frame = frames.next() => frame,
        };
        let frame = match frame {
            Some(Ok(frame)) => frame,
            Some(Err(_)) => return "connection lost",
            None => return "closed by the agent",
        };
        let SessionRef { node, epoch } = session.clone();
        let handled = driver
            .call_with_output(move |core, now_ms| {
                core.session_frame(&node, epoch, &frame, now_ms, &mut OsRng).map(|output| ((), output))
            })
            .await;
        match handled {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                log(&error, "a frame could not be handled");
                return "error";
            }
            Err(Stopped) => return "control is stopping",
        }
    }
}

fn log(error: &Error, what: &str) {
    tracing::error!(error = error as &dyn std::error::Error, "{what}");
}
