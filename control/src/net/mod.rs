//! TLS listeners: accept, handshake, HTTP.

mod activity;
mod clients;
mod connection;
mod listener;
mod stall;
mod tls;

pub use self::tls::TlsError;
pub(crate) use self::{
    listener::{Listener, ListenerLimits, Peer, PerClient},
    tls::{api_tls, gateway_tls},
};
