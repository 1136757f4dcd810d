//! What the gateway calls: sessions, their frames, and time.

use ironwright_proto::wire;
use rand::{CryptoRng, RngCore};

use super::Control;
use crate::{
    error::Error,
    output::Output,
    session::{Opened, Peer},
    store::Store,
};

impl<S: Store> Control<S> {
    /// The first frame of a session.
    pub fn session_open(
        &mut self,
        peer: &Peer,
        hello: &wire::Hello,
        now_ms: i64,
        rng: &mut (impl RngCore + CryptoRng),
    ) -> Result<Opened, Error> {
        unimplemented!()
    }
    /// A later frame of a session.
    pub fn session_frame(
        &mut self,
        node: &str,
        epoch: u64,
        frame: &wire::AgentFrame,
        now_ms: i64,
        rng: &mut (impl RngCore + CryptoRng),
    ) -> Result<Output, Error> {
        unimplemented!()
    }
    /// The stream of a session ended. Changes nothing but whether the node is connected.
    pub fn session_closed(&mut self, node: &str, epoch: u64) {
        unimplemented!()
    }
    /// Time has passed; to be called about once a second.
    pub fn tick(&mut self, now_ms: i64, rng: &mut (impl RngCore + CryptoRng)) -> Result<Output, Error> {
        unimplemented!()
    }
}
