//! Sites, machines, nodes, events and the status: reads, and writes that are done at once.

use axum::{
    Extension, Json,
    extract::{Path, State},
};
use http::StatusCode;
use ironwright_control_core::{Error, NodeOrder};
use ironwright_proto::api::{
    AuditEvent, Command, Machine, MachineChange, NewCommand, NewMachine, NewSite, Node, Site, SiteCreated,
    Status,
};
use rand::rngs::OsRng;
use serde::Deserialize;

use super::{
    Api, Failure,
    auth::Actor,
    extract::{JsonBody, QueryString, created},
};
use crate::driver::Core;

/// Events of one answer.
const MAX_EVENTS: usize = 1_000;
const DEFAULT_EVENTS: usize = 100;

type Answer<T> = Result<Json<T>, Failure>;
type Created<T> = Result<(StatusCode, Json<T>), Failure>;

pub(super) async fn status(State(api): State<Api>) -> Answer<Status> {
    Ok(Json(api.driver.call(|core, _| core.status(env!("CARGO_PKG_VERSION"))).await??))
}

pub(super) async fn sites(State(api): State<Api>) -> Answer<Vec<Site>> {
    Ok(Json(api.driver.call(|core, _| core.sites()).await??))
}

pub(super) async fn create_site(
    State(api): State<Api>,
    Extension(Actor(actor)): Extension<Actor>,
    JsonBody(new): JsonBody<NewSite>,
) -> Created<SiteCreated> {
    let site =
        api.driver.call(move |core, now_ms| core.create_site(&actor, &new, now_ms, &mut OsRng)).await??;
    Ok(created(site))
}

pub(super) async fn machines(State(api): State<Api>) -> Answer<Vec<Machine>> {
    Ok(Json(api.driver.call(|core, _| core.machines()).await??))
}

pub(super) async fn machine(State(api): State<Api>, Path(id): Path<String>) -> Answer<Machine> {
    Ok(Json(api.driver.call(move |core, _| core.machine(&id)).await??))
}

pub(super) async fn create_machine(
    State(api): State<Api>,
    Extension(Actor(actor)): Extension<Actor>,
    JsonBody(new): JsonBody<NewMachine>,
) -> Created<Machine> {
    let machine = api.driver.call(move |core, now_ms| core.create_machine(&actor, &new, now_ms)).await??;
    Ok(created(machine))
}

pub(super) async fn change_machine(
    State(api): State<Api>,
    Extension(Actor(actor)): Extension<Actor>,
    Path(id): Path<String>,
    JsonBody(change): JsonBody<MachineChange>,
) -> Answer<Machine> {
    let machine =
        api.driver.call(move |core, now_ms| core.change_machine(&actor, &id, &change, now_ms)).await??;
    Ok(Json(machine))
}

pub(super) async fn remove_machine(
    State(api): State<Api>,
    Extension(Actor(actor)): Extension<Actor>,
    Path(id): Path<String>,
) -> Answer<Machine> {
    let machine = api
        .driver
        .call_with_output(move |core, now_ms| core.remove_machine(&actor, &id, now_ms, &mut OsRng))
        .await??;
    Ok(Json(machine))
}

pub(super) async fn nodes(State(api): State<Api>) -> Answer<Vec<Node>> {
    Ok(Json(api.driver.call(|core, _| core.nodes()).await??))
}

pub(super) async fn node(State(api): State<Api>, Path(id): Path<String>) -> Answer<Node> {
    Ok(Json(api.driver.call(move |core, _| core.node(&id)).await??))
}

pub(super) async fn order(
    State(api): State<Api>,
    Extension(Actor(actor)): Extension<Actor>,
    Path(node): Path<String>,
    JsonBody(new): JsonBody<NewCommand>,
) -> Created<Command> {
    let ordered = move |core: &mut Core, now_ms: i64| {
        let order = NodeOrder {
            node,
            kind: new.kind,
            at_most_once: new.at_most_once,
            min_generation: 0,
            not_after_ms: now_ms.saturating_add(i64::from(new.within_s) * 1000),
        };
        let (id, output) = core.order(&actor, &order, now_ms, &mut OsRng)?;
        Ok::<_, Error>((core.command(&id)?, output))
    };
    Ok(created(api.driver.call_with_output(ordered).await??))
}

pub(super) async fn command(State(api): State<Api>, Path(id): Path<String>) -> Answer<Command> {
    Ok(Json(api.driver.call(move |core, _| core.command(&id)).await??))
}

/// `?after=SEQ&limit=N`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventsQuery {
    #[serde(default)]
    after: u64,
    limit: Option<usize>,
}

pub(super) async fn events(
    State(api): State<Api>,
    QueryString(query): QueryString<EventsQuery>,
) -> Answer<Vec<AuditEvent>> {
    let limit = query.limit.unwrap_or(DEFAULT_EVENTS).min(MAX_EVENTS);
    Ok(Json(api.driver.call(move |core, _| core.events_after(query.after, limit)).await??))
}
