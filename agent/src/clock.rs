//! Time from control, for a machine that may wake with any clock.

use std::time::Duration;

use ironwright_proto::{
    envelope::{self, EnvelopeError},
    ids::Digest,
    wire::{Envelope, TimePayload, TimeRequest, join_client::JoinClient},
};
use nix::{
    sys::time::TimeSpec,
    time::{ClockId, clock_settime},
};
use p256::ecdsa::VerifyingKey;
use rand::RngCore;
use rustls_pki_types::{CertificateDer, UnixTime};
use subtle::ConstantTimeEq;
use tonic::Status;

use crate::{
    channel::{self, ConnectError},
    events::unix_ms,
    tls::{ChainError, PinnedCa, Times, anonymous_client, check_server_leaf},
};

const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// A clock that is off by less is left alone.
const TOLERANCE_MS: u64 = 2_000;

/// Why there is no time from control.
#[derive(Debug, thiserror::Error)]
pub enum ClockError {
    /// No connection.
    #[error("reaching control to ask for the time")]
    Connect(#[from] ConnectError),
    /// The call failed.
    #[error("asking control for the time")]
    Call(#[source] Box<Status>),
    /// No answer in time.
    #[error("control did not tell the time within {} s", CALL_TIMEOUT.as_secs())]
    Timeout,
    /// Not signed by control's server certificate.
    #[error("checking who signed the time")]
    Chain(#[from] ChainError),
    /// Not signed over this answer.
    #[error("checking the signature of the time")]
    Envelope(#[from] EnvelopeError),
    /// An answer to another question.
    #[error("the signed time repeats another nonce than the one sent")]
    Stale,
    /// The kernel refused.
    #[error("setting the clock of this machine")]
    Set(#[source] nix::Error),
}

/// When to set the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetClock {
    /// Whatever it says now.
    Always,
    /// Where it is off by more than 2 s.
    IfOff,
    /// Not at all; only ask.
    Never,
}

/// Asks control for the time, sets the clock accordingly, and returns the time in milliseconds since the
/// Unix epoch. TLS ignores certificate times for this one call; the answer is a signed envelope.
pub async fn sync(control_url: &str, ca_pin: Digest, set: SetClock) -> Result<i64, ClockError> {
    let time = fetch(control_url, ca_pin).await?;
    let off = unix_ms().abs_diff(time);
    if set == SetClock::Always || (set == SetClock::IfOff && off > TOLERANCE_MS) {
        set_clock(time)?;
        tracing::info!(off_ms = off, "clock set to control's time");
    }
    Ok(time)
}

/// Sets this machine's clock to `unix_ms`.
pub fn set_clock(unix_ms: i64) -> Result<(), ClockError> {
    let time = TimeSpec::new(unix_ms.div_euclid(1000), unix_ms.rem_euclid(1000) * 1_000_000);
    clock_settime(ClockId::CLOCK_REALTIME, time).map_err(ClockError::Set)
}

/// Asks control for the time without touching the clock.
pub async fn fetch(control_url: &str, ca_pin: Digest) -> Result<i64, ClockError> {
    let pinned = PinnedCa::new(ca_pin, Times::Ignored);
    let ask = async {
        let channel = channel::open(control_url, anonymous_client(pinned.clone())).await?;
        let mut nonce = [0; 32];
        rand::rngs::OsRng.fill_bytes(&mut nonce);
        let request = TimeRequest { nonce: nonce.to_vec() };
        let answer =
            JoinClient::new(channel).time(request).await.map_err(|s| ClockError::Call(Box::new(s)))?;
        let ca = pinned.ca().ok_or(ChainError::Malformed)?;
        check(&answer.into_inner(), &nonce, &ca)
    };
    tokio::time::timeout(CALL_TIMEOUT, ask).await.map_err(|_| ClockError::Timeout)?
}

/// Believes the time of an envelope only where a server certificate of `ca` signed it for `nonce`.
fn check(answer: &Envelope, nonce: &[u8; 32], ca: &CertificateDer<'_>) -> Result<i64, ClockError> {
    let leaf = CertificateDer::from(answer.chain.first().ok_or(ChainError::Malformed)?.as_slice());
    check_server_leaf(&leaf, ca, UnixTime::now(), Times::Ignored)?;
    let (_, parsed) = x509_parser::parse_x509_certificate(&leaf).map_err(|_| ChainError::Malformed)?;
    let point = &parsed.public_key().subject_public_key.data;
    let key = VerifyingKey::from_sec1_bytes(point).map_err(|_| ChainError::Malformed)?;
    let payload: TimePayload = envelope::open(answer, envelope::TIME, &key)?;
    if !bool::from(payload.nonce.as_slice().ct_eq(nonce)) {
        return Err(ClockError::Stale);
    }
    Ok(payload.unix_ms)
}
