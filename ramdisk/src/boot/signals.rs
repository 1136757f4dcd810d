//! The signals that a first process gets: dead children, Ctrl-Alt-Del, and orders to end.

use std::{convert::Infallible, io};

use nix::sys::{
    reboot::set_cad_enabled,
    wait::{WaitPidFlag, WaitStatus, waitpid},
};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Orders to end, as signals.
pub struct Orders {
    terminate: Signal,
    ctrl_alt_del: Signal,
}

impl Orders {
    /// From now on Ctrl-Alt-Del is ours to handle, so that disks are flushed first.
    pub fn listen() -> io::Result<Self> {
        let orders = Self {
            terminate: signal(SignalKind::terminate())?,
            ctrl_alt_del: signal(SignalKind::interrupt())?,
        };
        set_cad_enabled(false)?;
        Ok(orders)
    }

    /// Waits for an order, and says which it was.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "told to end (SIGTERM)",
            _ = self.ctrl_alt_del.recv() => "Ctrl-Alt-Del",
        }
    }
}

/// Collects the children that died, for ever. Orphans of any process become ours.
pub async fn reap() -> io::Result<Infallible> {
    let mut died = signal(SignalKind::child())?;
    loop {
        // One signal may stand for several children.
        died.recv().await;
        while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            if status == WaitStatus::StillAlive {
                break;
            }
        }
    }
}
