//! A session with control for as long as the machine is ours, and the console's view of it.
//!
//! ```text
//!            ┌──── open ────► connected ── lost ─┐
//!   waiting ─┤                                   │
//!      ▲     └ 30 min, nothing running ─► silent (the machine boots anew)
//!      └─────────────────────────────────────────┘
//! ```

use std::{sync::Arc, time::Duration};

use ironwright_agent::{
    CancellationToken, EventSink, Executor, Identity,
    link::{self, AgentConfig, JournalPlace, LinkError},
};
use ironwright_proto::kinds::Role;
use serde_json::json;
use tokio::{sync::watch, time};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    console::{self, chain, say},
    exec::Machine,
    machine::uptime,
    stage::GivenUp,
};

/// A ramdisk without a session for this long, and with nothing to do, boots anew: its site may know better.
const SILENCE_LIMIT: Duration = Duration::from_secs(30 * 60);
/// Event kind of console lines.
const LOG: &str = "log";

/// Serves control as a ramdisk; returns why the machine has to boot anew.
pub(crate) async fn serve(
    identity: Identity,
    executors: Vec<Arc<dyn Executor>>,
    machine: &Machine,
) -> GivenUp {
    let given_up = |why| GivenUp { stage: "session", why };
    let boot_id = match link::boot_id() {
        Ok(boot_id) => boot_id,
        Err(error) => return given_up(format!("reading the boot id: {error}")),
    };
    // A ramdisk keeps its journal in memory: after a crash it is another boot anyway.
    let config = AgentConfig { role: Role::Ramdisk, boot_id, site: None, journal: JournalPlace::Memory };
    let (handle, mut port) = link::channel();
    let _teller = AbortOnDropHandle::new(tokio::spawn(tell_control(handle.events)));
    let session = link::run(&mut port, config, identity, executors, CancellationToken::new());
    tokio::select! {
        ended = session => given_up(why_ended(ended)),
        () = watch("session", handle.connected, || !machine.is_busy()) => {
            given_up(format!("no session with control for {} min", SILENCE_LIMIT.as_secs() / 60))
        }
    }
}

fn why_ended(ended: Result<(), LinkError>) -> String {
    match ended {
        Ok(()) => "the session ended".to_owned(),
        Err(error) => chain(&error),
    }
}

/// Says on the console when sessions open and are lost. Returns when there was none for too long and the
/// machine `is_idle`.
pub(crate) async fn watch(
    stage: &'static str,
    mut connected: watch::Receiver<bool>,
    is_idle: impl Fn() -> bool,
) {
    loop {
        match time::timeout(SILENCE_LIMIT, connected.wait_for(|open| *open)).await {
            Ok(Ok(_)) => {}
            // The session's task has ended; whoever runs it knows why.
            Ok(Err(_)) => return,
            Err(_) if is_idle() => return,
            Err(_) => continue,
        }
        say(stage, format_args!("session open, {} s after the kernel started", uptime()));
        if connected.wait_for(|open| !open).await.is_err() {
            return;
        }
        say(stage, "session lost; trying to open another");
    }
}

/// Gives control the lines of the console, those from before the session too.
pub(crate) async fn tell_control(events: EventSink) {
    let (kept, mut lines) = console::listen();
    let send = |line: console::Line| {
        events.send(LOG, &json!({ "stage": line.stage, "text": line.text }));
    };
    kept.into_iter().for_each(send);
    while let Some(line) = lines.recv().await {
        send(line);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silence_ends_an_idle_machine_but_not_a_busy_one() {
        let (tx, rx) = watch::channel(false);
        let began = time::Instant::now();
        watch("test", rx.clone(), || true).await;
        assert_eq!(began.elapsed(), SILENCE_LIMIT);

        let idle = AtomicBool::new(false);
        let began = time::Instant::now();
        let end_of_work = async {
            time::sleep(SILENCE_LIMIT + SILENCE_LIMIT / 2).await;
            idle.store(true, Ordering::Relaxed);
        };
        tokio::join!(watch("test", rx, || idle.load(Ordering::Relaxed)), end_of_work);
        assert_eq!(began.elapsed(), SILENCE_LIMIT * 2);
        drop(tx);
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_starts_the_time_anew() {
        let (tx, rx) = watch::channel(false);
        let began = time::Instant::now();
        let session = async {
            time::sleep(SILENCE_LIMIT / 2).await;
            tx.send_replace(true);
            time::sleep(SILENCE_LIMIT * 3).await;
            tx.send_replace(false);
        };
        tokio::join!(watch("test", rx, || true), session);
        assert_eq!(began.elapsed(), SILENCE_LIMIT * 9 / 2);
    }
}
