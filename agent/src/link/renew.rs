//! Keeping the certificate fresh: renewed for the same key when two thirds of its life are over.

use std::time::{Duration, SystemTime};

use ironwright_proto::wire::{RenewRequest, gateway_client::GatewayClient};
use rand::Rng;

use super::connection::chain;
use crate::{channel, identity::Identity};

/// The clock may be set at any time, so it is looked at again after this long.
const LOOK_AGAIN: Duration = Duration::from_secs(3600);
/// A failed renewal is tried again after a time drawn from here; ten days are left for it.
const RETRY: std::ops::RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(1800);
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Renews for as long as it is polled.
pub(crate) async fn keep(identity: Identity) {
    loop {
        let wait = identity.renew_at().duration_since(SystemTime::now()).unwrap_or_default();
        if !wait.is_zero() {
            tokio::time::sleep(wait.min(LOOK_AGAIN)).await;
            continue;
        }
        match tokio::time::timeout(CALL_TIMEOUT, renew(&identity)).await {
            Ok(Ok(())) => tracing::info!("the node certificate was renewed"),
            Ok(Err(err)) => failed(&chain(&*err)),
            Err(_) => failed("no answer in time"),
        }
        // A grant that is already due again must not become a loop.
        let pause = rand::thread_rng().gen_range(RETRY);
        tokio::time::sleep(pause).await;
    }
}

fn failed(why: &str) {
    tracing::warn!(why, "the node certificate could not be renewed; trying again later");
}

async fn renew(identity: &Identity) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let channel = channel::open(&identity.gateway_url(), identity.client_config()).await?;
    let request = RenewRequest { csr_der: identity.certificate_request()? };
    let grant = GatewayClient::new(channel).renew(request).await?.into_inner();
    identity.renew(&grant)?;
    Ok(())
}
