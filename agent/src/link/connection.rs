//! One link: a TLS connection, a gRPC stream each way, and the task that drives them.

use futures::future::BoxFuture;
use ironwright_proto::wire::{AgentFrame, agent_frame, gateway_client::GatewayClient, gateway_frame};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::AbortOnDropHandle;

use crate::{channel, identity::Identity};

/// Frames that wait for the network; a gateway that takes none of them for so long is gone.
const OUTGOING: usize = 256;
/// Frames that wait for the session; beyond it the gateway has to wait.
const INCOMING: usize = 64;
/// Bytes of one frame.
const MAX_FRAME: usize = 2 << 20;

/// What a link reports, in this order: at most one `Up`, frames, then `Down`.
pub(crate) enum LinkEvent {
    /// Connected; frames can be sent.
    Up,
    /// The gateway says something.
    Frame(gateway_frame::Frame),
    /// It ended, or never came to be.
    Down(String),
}

/// What the link's task sends: `Up` carries the way to the gateway.
enum Report {
    Up(mpsc::Sender<AgentFrame>),
    Frame(gateway_frame::Frame),
}

/// A link; it ends when dropped.
pub(crate) struct Link {
    reports: mpsc::Receiver<Report>,
    outgoing: Option<mpsc::Sender<AgentFrame>>,
    task: AbortOnDropHandle<String>,
}

impl Link {
    pub(crate) fn open(identity: Identity) -> Self {
        let (report, reports) = mpsc::channel(INCOMING);
        let task = AbortOnDropHandle::new(tokio::spawn(drive(identity, report)));
        Self { reports, outgoing: None, task }
    }

    /// What happens next. Cancel safe.
    pub(crate) async fn next(&mut self) -> LinkEvent {
        match self.reports.recv().await {
            Some(Report::Up(outgoing)) => {
                self.outgoing = Some(outgoing);
                LinkEvent::Up
            }
            Some(Report::Frame(frame)) => LinkEvent::Frame(frame),
            None => {
                let why = (&mut self.task).await;
                LinkEvent::Down(why.unwrap_or_else(|_| "the link's task was lost".to_owned()))
            }
        }
    }

    /// Queues a frame. False where the link does not keep up and has to be given up. Progress is lossy: it
    /// is left out while half of the queue waits.
    pub(crate) fn send(&self, frame: agent_frame::Frame) -> bool {
        let Some(outgoing) = &self.outgoing else { return false };
        if matches!(frame, agent_frame::Frame::Progress(_)) && outgoing.capacity() < OUTGOING / 2 {
            return true;
        }
        outgoing.try_send(AgentFrame { frame: Some(frame) }).is_ok()
    }

    /// Sends what is queued, then ends our side and waits for the gateway to end its own.
    pub(crate) async fn finish(mut self) {
        self.outgoing = None;
        while !matches!(self.next().await, LinkEvent::Down(_)) {
            self.outgoing = None;
        }
    }
}

/// Runs the link to its end; returns why it ended.
async fn drive(identity: Identity, report: mpsc::Sender<Report>) -> String {
    match exchange(&identity, &report).await {
        Ok(()) => "the gateway ended the session".to_owned(),
        Err(err) => chain(&*err),
    }
}

async fn exchange(
    identity: &Identity,
    report: &mpsc::Sender<Report>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let channel = channel::open(&identity.gateway_url(), identity.client_config()).await?;
    let mut client = GatewayClient::new(channel).max_decoding_message_size(MAX_FRAME);
    let (outgoing, queued) = mpsc::channel(OUTGOING);
    // Hello has to be on its way before the gateway answers at all.
    if report.send(Report::Up(outgoing)).await.is_err() {
        return Ok(());
    }
    let answer: BoxFuture<'_, _> = Box::pin(client.session(ReceiverStream::new(queued)));
    let mut frames = answer.await?.into_inner();
    while let Some(message) = frames.message().await? {
        // A frame without content is one of a newer gateway.
        let Some(frame) = message.frame else { continue };
        if report.send(Report::Frame(frame)).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// An error with its causes, for a log line.
pub fn chain(err: &dyn std::error::Error) -> String {
    let mut text = err.to_string();
    let mut cause = err.source();
    while let Some(err) = cause {
        text.push_str(": ");
        text.push_str(&err.to_string());
        cause = err.source();
    }
    text
}
