//! An agent's end of a session.

use ironwright_proto::wire::{
    AgentFrame, GatewayFrame, Hello, agent_frame, gateway_client::GatewayClient, gateway_frame::Frame,
};
use tokio::{sync::mpsc, time::timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::{
    client::{Identity, channel, copy},
    rig::{DEADLINE, Rig},
};

/// A site agent with an open stream.
pub(crate) struct Agent {
    frames: mpsc::Sender<AgentFrame>,
    answers: Streaming<GatewayFrame>,
}

impl Agent {
    pub(crate) async fn open(rig: &Rig, identity: &Identity, site: &str) -> Self {
        let channel = channel(rig.gateway_address, rig.ca(), Some(copy(identity))).await.unwrap();
        let (frames, sent) = mpsc::channel(8);
        let hello = Hello {
            version: 1,
            role: "site".into(),
            boot_id: "boot-1".into(),
            journal_id: "journal-1".into(),
            agent_version: "0.1.0".into(),
            site: site.into(),
            address: "http://10.0.0.2:8080".into(),
            observed_generation: 0,
            ..Hello::default()
        };
        frames.send(AgentFrame { frame: Some(agent_frame::Frame::Hello(hello)) }).await.unwrap();
        let answers =
            GatewayClient::new(channel).session(ReceiverStream::new(sent)).await.unwrap().into_inner();
        Self { frames, answers }
    }

    pub(crate) async fn send(&self, frame: agent_frame::Frame) {
        self.frames.send(AgentFrame { frame: Some(frame) }).await.unwrap();
    }

    pub(crate) async fn next(&mut self) -> Option<Frame> {
        let frame = timeout(DEADLINE, self.answers.message()).await.expect("an answer in time");
        frame.ok().flatten()?.frame
    }

    /// Reads on until the frame is found.
    pub(crate) async fn until<T>(&mut self, wanted: impl Fn(Frame) -> Option<T>) -> T {
        loop {
            let frame = self.next().await.expect("the session is open");
            if let Some(found) = wanted(frame) {
                return found;
            }
        }
    }
}
