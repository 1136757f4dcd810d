//! Deploy runs: start, read, cancel, and watch until the end.

use std::time::Duration;

use axum::{
    Extension, Json,
    body::{Body, Bytes},
    extract::{Path, State},
    response::{IntoResponse, Response},
};
use futures::stream;
use http::{StatusCode, header};
use ironwright_proto::api::{NewDeploy, Run};
use rand::rngs::OsRng;
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};

use super::{Api, Failure, auth::Actor, extract::JsonBody};

/// Progress comes often; a watcher sees it at most this often.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);
/// An empty line after this much silence tells both ends that the other is there.
const WATCH_KEEP_ALIVE: Duration = Duration::from_secs(15);

pub(super) async fn deploy(
    State(api): State<Api>,
    Extension(Actor(actor)): Extension<Actor>,
    JsonBody(new): JsonBody<NewDeploy>,
) -> Result<(StatusCode, Json<Run>), Failure> {
    let run = api
        .driver
        .call_with_output(move |core, now_ms| core.start_deploy(&actor, &new, now_ms, &mut OsRng))
        .await??;
    Ok((StatusCode::ACCEPTED, Json(run)))
}

pub(super) async fn list(State(api): State<Api>) -> Result<Json<Vec<Run>>, Failure> {
    Ok(Json(api.driver.call(|core, _| core.runs()).await??))
}

pub(super) async fn show(State(api): State<Api>, Path(id): Path<String>) -> Result<Json<Run>, Failure> {
    Ok(Json(read(&api, &id).await?))
}

pub(super) async fn cancel(
    State(api): State<Api>,
    Extension(Actor(actor)): Extension<Actor>,
    Path(id): Path<String>,
) -> Result<Json<Run>, Failure> {
    let run = api
        .driver
        .call_with_output(move |core, now_ms| core.cancel_run(&actor, &id, now_ms, &mut OsRng))
        .await??;
    Ok(Json(run))
}

/// One run as JSON a line, now and on every change, until it has ended.
pub(super) async fn watch(State(api): State<Api>, Path(id): Path<String>) -> Result<Response, Failure> {
    // Taken before the first read, so that no change falls between.
    let changes = api.driver.changes();
    let first = read(&api, &id).await?;
    let watching = Watching { api, id, changes, pending: Some(first), seen: None };
    let lines = Body::from_stream(stream::unfold(watching, Watching::next));
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], lines).into_response())
}

async fn read(api: &Api, id: &str) -> Result<Run, Failure> {
    let id = id.to_owned();
    Ok(api.driver.call(move |core, _| core.run(&id)).await??)
}

struct Watching {
    api: Api,
    id: String,
    changes: watch::Receiver<u64>,
    /// To be sent next.
    pending: Option<Run>,
    /// Sent last.
    seen: Option<Run>,
}

type Line = Result<Bytes, serde_json::Error>;

impl Watching {
    async fn next(mut self) -> Option<(Line, Self)> {
        if self.seen.as_ref().is_some_and(|run| run.state.is_final()) {
            return None;
        }
        let Some(run) = self.pending.take() else { return self.wait().await };
        let line = serde_json::to_vec(&run).map(|mut line| {
            line.push(b'\n');
            Bytes::from(line)
        });
        self.seen = Some(run);
        Some((line, self))
    }

    /// Waits for a change of the run. `None` ends the answer: control stops, and the client asks again.
    async fn wait(mut self) -> Option<(Line, Self)> {
        let shutdown = self.api.shutdown.clone();
        let silent_until = Instant::now() + WATCH_KEEP_ALIVE;
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return None,
                () = sleep_until(silent_until) => return Some((Ok(Bytes::from_static(b"\n")), self)),
                changed = self.changes.changed() => changed.ok()?,
            }
            let run = read(&self.api, &self.id).await.ok()?;
            if self.seen.as_ref() != Some(&run) {
                self.pending = Some(run);
                return Box::pin(self.next()).await;
            }
            sleep(WATCH_INTERVAL).await;
        }
    }
}
