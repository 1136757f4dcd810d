//! TLS listeners: accept, handshake, HTTP.

mod listener;
mod tls;

pub use self::tls::TlsError;
pub(crate) use self::{
    listener::{Listener, ListenerLimits, Peer},
    tls::{api_tls, gateway_tls},
};
