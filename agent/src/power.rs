//! `node.reboot`: the one command that ends its own agent.
//!
//! The session journals `running{boot_id}` right before it starts this executor; a changed boot id is
//! what tells that it succeeded. So the executor never reports success itself.

use std::{io, sync::Arc, time::Duration};

use ironwright_proto::{kinds, wire::CommandError};

use crate::executor::{BoxFuture, Ctx, Executor, Order, fail};

/// A machine that is still up this long after it was told to reboot is stuck.
const REBOOT_GRACE: Duration = Duration::from_secs(300);

/// How this machine is rebooted.
pub trait Power: Send + Sync {
    /// Asks for the reboot. May return before it happens, or never.
    fn reboot(&self) -> BoxFuture<'_, io::Result<()>>;
}

/// Reboots through the service manager, so that services stop in order.
#[derive(Debug, Clone, Copy)]
pub struct Systemctl;

impl Power for Systemctl {
    fn reboot(&self) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async {
            let status = tokio::process::Command::new("systemctl").arg("reboot").status().await?;
            if status.success() {
                Ok(())
            } else {
                Err(io::Error::other(format!("systemctl reboot: {status}")))
            }
        })
    }
}

/// Runs `node.reboot`.
pub struct Reboot {
    power: Arc<dyn Power>,
}

impl Reboot {
    /// Reboots by `power`.
    pub fn new(power: Arc<dyn Power>) -> Self {
        Self { power }
    }
}

impl Executor for Reboot {
    fn kinds(&self) -> &'static [&'static str] {
        &[kinds::NODE_REBOOT]
    }

    fn run(&self, _order: Order, _ctx: Ctx) -> BoxFuture<'_, Result<Vec<u8>, CommandError>> {
        Box::pin(async {
            self.power
                .reboot()
                .await
                .map_err(|err| fail("reboot_failed", format!("asking this machine to reboot: {err}")))?;
            tokio::time::sleep(REBOOT_GRACE).await;
            let message = format!(
                "the machine is still up {} s after the reboot was asked for",
                REBOOT_GRACE.as_secs()
            );
            Err(fail("reboot_stalled", message))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fake(Result<(), io::ErrorKind>);

    impl Power for Fake {
        fn reboot(&self) -> BoxFuture<'_, io::Result<()>> {
            Box::pin(async { self.0.map_err(io::Error::from) })
        }
    }

    async fn run(power: Fake) -> CommandError {
        let order = Order { id: "c1".into(), kind: kinds::NODE_REBOOT.into(), args: vec![] };
        Reboot::new(Arc::new(power)).run(order, Ctx::detached("c1").0).await.unwrap_err()
    }

    #[tokio::test(start_paused = true)]
    async fn a_reboot_never_succeeds_in_the_boot_that_asked_for_it() {
        assert_eq!(run(Fake(Ok(()))).await.code, "reboot_stalled");
        let err = run(Fake(Err(io::ErrorKind::PermissionDenied))).await;
        assert_eq!(err.code, "reboot_failed");
    }
}
