//! `ironwright login`.

use std::{io::Read, path::PathBuf};

use anyhow::{Context, bail};
use ironwright_proto::{api::Status, ids::Digest};

use crate::{client::Client, client_config::ClientConfig, output};

/// An admin token has 48 characters or so.
const MAX_TOKEN_BYTES: u64 = 1024;
/// What admin tokens begin with.
const TOKEN_PREFIX: &str = "iwa_";

pub(super) async fn login(
    url: String,
    ca_pin: Digest,
    token_file: Option<PathBuf>,
    json: bool,
) -> anyhow::Result<()> {
    let url = url.trim_end_matches('/').to_owned();
    if !url.starts_with("https://") {
        bail!("--url must begin with https://");
    }
    let source: Box<dyn Read> = match &token_file {
        Some(path) => {
            Box::new(std::fs::File::open(path).with_context(|| format!("opening {}", path.display()))?)
        }
        None => Box::new(std::io::stdin()),
    };
    let mut token = String::new();
    source.take(MAX_TOKEN_BYTES).read_to_string(&mut token).context("reading the admin token")?;
    let token = token.trim().to_owned();
    if token.is_empty() {
        bail!("the admin token is empty; `ironwright control init` printed it");
    }
    if !token.starts_with(TOKEN_PREFIX) || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        bail!(
            "this is no admin token, which begins with {TOKEN_PREFIX}; `ironwright control init` printed it"
        );
    }
    let config = ClientConfig { url, ca_pin, token };
    let client = Client::new(ClientConfig { url: config.url.clone(), ca_pin, token: config.token.clone() })?;
    let status: Status = client.get("/v1/status").await?;
    let path = config.save()?;
    if json {
        return output::json(&status);
    }
    output::line(&format!("logged in to control {} at {} ({})", status.version, config.url, path.display()))?;
    Ok(())
}
