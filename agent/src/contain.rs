//! Code whose panics are caught, told apart from bugs that must end the process.
//!
//! A panic hook runs before unwinding begins, so catching a panic does not help where the hook never returns, as
//! that of a PID 1 which reboots. Such a hook asks [`is_contained`] first. The mark is of the thread, so it is
//! set for no longer than the contained code runs on it: for a future, during each poll.

use std::{
    cell::Cell,
    future::poll_fn,
    panic::{self, AssertUnwindSafe},
    pin::pin,
    task::Poll,
};

thread_local! {
    static CONTAINED: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic of this thread would be caught here. For panic hooks.
pub fn is_contained() -> bool {
    CONTAINED.get()
}

/// Runs `work`; `None` where it panicked. What it shares with others must be sound also when it stops midway.
pub fn call<T>(work: impl FnOnce() -> T) -> Option<T> {
    let outer = CONTAINED.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(work)).ok();
    CONTAINED.set(outer);
    result
}

/// Marks this thread for as long as the work lasts that it does now: of a thread that somebody spawned inside
/// contained code and whose panics he raises again there, to its end. Inside of [`call`] it changes nothing.
pub fn adopt_thread() {
    CONTAINED.set(true);
}

/// Runs a future to its end; `None` where it panicked. Tasks that it spawns are not contained.
pub async fn future<T>(work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    poll_fn(|context| match call(|| work.as_mut().poll(context)) {
        Some(Poll::Ready(result)) => Poll::Ready(Some(result)),
        Some(Poll::Pending) => Poll::Pending,
        None => Poll::Ready(None),
    })
    .await
}

/// Starts `work` on a blocking thread, where it goes on also when the future is dropped; `None` where it panicked.
pub fn spawn_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = Option<T>> {
    let done = tokio::task::spawn_blocking(|| call(work));
    async { done.await.ok().flatten() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_lasts_as_long_as_the_outermost_call() {
        assert!(!is_contained());
        assert_eq!(call(|| call(is_contained)), Some(Some(true)));
        assert_eq!(call(|| (call(|| -> u8 { panic!("on purpose") }), is_contained())), Some((None, true)));
        assert!(!is_contained());
        call(adopt_thread);
        assert!(!is_contained());
    }

    #[test]
    fn a_thread_is_adopted_until_its_end() {
        let adopted = std::thread::spawn(|| {
            adopt_thread();
            call(|| ());
            is_contained()
        });
        assert!(adopted.join().unwrap());
        assert!(!is_contained());
    }

    #[tokio::test]
    async fn a_waiting_future_leaves_its_thread_unmarked() {
        let mut waiting = pin!(future(async {
            assert!(is_contained());
            tokio::task::yield_now().await;
            is_contained()
        }));
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        assert!(!is_contained());
        assert_eq!(waiting.await, Some(true));
        assert!(!is_contained());
    }

    #[tokio::test]
    async fn panics_of_futures_and_blocking_work_are_none() {
        assert_eq!(future(async { panic!("on purpose") }).await, None::<u8>);
        assert_eq!(spawn_blocking(|| -> u8 { panic!("on purpose") }).await, None);
        assert_eq!(spawn_blocking(is_contained).await, Some(true));
    }
}
