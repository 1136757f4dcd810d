//! Orders to nodes: how soon they begin, and how many become durable.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::stream::{StreamExt, TryStreamExt, iter};
use ironwright_proto::{api::NewCommand, kinds};
use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};

use crate::{agents::Fleet, api::Api};

/// How long a command may take to begin before the measurement gives up.
const LIMIT: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_micros(200);
/// Commands for each way of making them durable: with many at a time, and one by one.
const MANY: usize = 20_000;
const FEW: usize = 1_000;

/// Times in ms, sorted.
pub(crate) struct Times(Vec<f64>);

impl Times {
    /// The time that so much of all are not above.
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let index = ((self.0.len() as f64 * share).ceil() as usize).clamp(1, self.0.len()) - 1;
        self.0[index]
    }
}

fn inventory() -> NewCommand {
    NewCommand { kind: kinds::INVENTORY_COLLECT.to_owned(), at_most_once: false, within_s: 600 }
}

/// Gives `rate` orders a second for a while, each to another node: from the operator's request to the beginning of
/// the command on the node.
pub(crate) async fn dispatch(api: &Api, fleet: &Fleet, rate: u32, lasts: Duration) -> Result<Times> {
    let mut pace = interval(Duration::from_secs(1) / rate);
    pace.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut orders = JoinSet::new();
    let end = Instant::now() + lasts;
    for node in fleet.nodes().iter().cycle() {
        pace.tick().await;
        if Instant::now() >= end {
            break;
        }
        let (api, node, begun) = (api.clone(), node.clone(), fleet.begun.clone());
        orders.spawn(async move {
            let asked = Instant::now();
            let id = api.order(&node, &inventory()).await?;
            loop {
                if let Some(at) = begun.take(&id) {
                    return anyhow::Ok((at - asked).as_secs_f64() * 1000.0);
                }
                ensure!(asked.elapsed() < LIMIT, "command {id} did not begin");
                tokio::time::sleep(LOOK_EVERY).await;
            }
        });
    }
    let mut times = Vec::new();
    while let Some(time) = orders.join_next().await {
        times.push(time.context("an order was lost")??);
    }
    times.sort_by(f64::total_cmp);
    Ok(Times(times))
}

/// Durable commands in a second, with so many requests at a time.
pub(crate) async fn durable_per_second(api: &Api, fleet: &Fleet, at_a_time: usize) -> Result<f64> {
    let count = if at_a_time == 1 { FEW } else { MANY };
    let begun = Instant::now();
    let nodes = fleet.nodes().iter().cycle().take(count);
    let orders = iter(nodes).map(|node| async move { api.order(node, &inventory()).await });
    let done: Vec<String> = orders.buffer_unordered(at_a_time).try_collect().await?;
    #[allow(clippy::cast_precision_loss)] // Far below 2^52.
    Ok(done.len() as f64 / begun.elapsed().as_secs_f64())
}
