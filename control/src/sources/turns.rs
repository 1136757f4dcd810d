//! Turns: how many images are read at the same time.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

/// Images that are read at the same time; others wait for their turn.
const MAX_TRANSFERS: usize = 4;
/// Whoever uploads holds a connection meanwhile, and learns after this long that control is busy.
pub(crate) const TURN_LIMIT: Duration = Duration::from_secs(30);

/// The right to read one image, until it is dropped.
pub(crate) type Turn = OwnedSemaphorePermit;

/// All turns, given in the order in which they are asked for.
#[derive(Debug, Clone)]
pub(super) struct Turns(Arc<Semaphore>);

impl Turns {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(MAX_TRANSFERS)))
    }

    /// Waits as long as it takes. `None` never comes, since the turns are not closed.
    pub(super) async fn take(&self) -> Option<Turn> {
        self.0.clone().acquire_owned().await.ok()
    }

    /// Waits for [`TURN_LIMIT`] at most.
    pub(super) async fn take_soon(&self) -> Option<Turn> {
        timeout(TURN_LIMIT, self.take()).await.ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_fifth_transfer_waits_for_30_s_at_most() {
        let turns = Turns::new();
        let mut held = Vec::new();
        for _ in 0..4 {
            held.push(turns.take().await.unwrap());
        }
        let start = Instant::now();
        assert!(turns.take_soon().await.is_none());
        assert_eq!(start.elapsed(), Duration::from_secs(30));

        let waiting = turns.clone();
        let fifth = tokio::spawn(async move { waiting.take_soon().await.is_some() });
        sleep(Duration::from_secs(29)).await;
        held.pop();
        assert!(fifth.await.unwrap());
    }
}
