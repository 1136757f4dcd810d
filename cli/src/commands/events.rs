//! `ironwright events`.

use std::time::Duration;

use ironwright_proto::api::AuditEvent;

use crate::{client::Client, output};

const FOLLOW_INTERVAL: Duration = Duration::from_secs(1);

pub(super) async fn run(
    client: &Client,
    after: u64,
    limit: u64,
    follow: bool,
    json: bool,
) -> anyhow::Result<()> {
    let mut after = after;
    loop {
        let events: Vec<AuditEvent> = client.get(&format!("/v1/events?after={after}&limit={limit}")).await?;
        if let Some(last) = events.last() {
            after = last.seq;
        }
        if !follow && json {
            return output::json(&events);
        }
        for event in &events {
            if json {
                output::json_line(event)?;
            } else {
                let line = format!(
                    "{:>6}  {}  {:<12}  {:<20}  {}  {}",
                    event.seq,
                    output::time(event.at_ms),
                    event.actor,
                    event.action,
                    event.subject,
                    event.detail
                );
                output::line(&output::plain(&line))?;
            }
        }
        if !follow {
            return Ok(());
        }
        tokio::time::sleep(FOLLOW_INTERVAL).await;
    }
}
