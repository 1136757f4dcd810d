//! The commands of the role `site`: `boot.prepare` and `boot.local`.

use std::sync::Arc;

use ironwright_agent::{
    CommandError, Ctx, Executor, Order,
    executor::{BoxFuture, fail},
};
use ironwright_proto::{
    Message,
    ids::{Digest, Mac, Name},
    kinds::{BOOT_LOCAL, BOOT_PREPARE},
    wire::{BootLocalArgs, BootPrepareArgs, BootPrepareResult},
};
use ironwright_pxe::{Now, ipxe};

use crate::{
    authority::Upstream,
    cache::Cache,
    fetch::{self, FetchError},
    keeper::{KeeperClient, KeeperError},
    script::Served,
    table::{Entry, Ramdisk, TableError, Token},
};

/// Artifacts of one command.
const MAX_ARTIFACTS: usize = 16;
/// Longest words of the operator: with our own they must fit the kernel's command line.
const MAX_EXTRA_CMDLINE: usize = 512;
/// Longest token, as boot parameters have it.
const MAX_TOKEN: usize = 128;

/// Runs the site's commands.
pub(crate) struct SiteExecutor {
    pub(crate) keeper: KeeperClient,
    pub(crate) cache: Cache,
    pub(crate) upstream: Arc<dyn Upstream>,
    pub(crate) served: Served,
}

impl Executor for SiteExecutor {
    fn kinds(&self) -> &'static [&'static str] {
        &[BOOT_PREPARE, BOOT_LOCAL]
    }

    fn run(&self, order: Order, ctx: Ctx) -> BoxFuture<'_, Result<Vec<u8>, CommandError>> {
        Box::pin(async move {
            match order.kind.as_str() {
                BOOT_PREPARE => self.prepare(&order, &ctx).await,
                BOOT_LOCAL => self.local(&order).await,
                other => Err(fail("unsupported", format!("a site does not run {other}"))),
            }
        })
    }
}

impl SiteExecutor {
    /// Fetches first: the entry must not send a machine to an image that is not here.
    async fn prepare(&self, order: &Order, ctx: &Ctx) -> Result<Vec<u8>, CommandError> {
        let Prepare { mac, ramdisk } = order.decode_args::<BootPrepareArgs>()?.try_into()?;
        let mut keep = self.keeper.artifacts().await.map_err(keeper_failed)?;
        keep.extend(ramdisk.artifacts.iter().chain(self.served.blobs()).copied());
        let keep = keep.into_iter().map(|digest| digest.0).collect();
        for &digest in &ramdisk.artifacts {
            tokio::select! {
                fetched = fetch::fetch(&*self.upstream, &self.cache, digest, &keep, ctx) => {
                    fetched.map_err(|error| fetch_failed(digest, error))?;
                }
                () = ctx.cancelled() => return Err(fail("cancelled", "fetching was cancelled")),
            }
        }
        self.keeper.set(mac, Entry::Ramdisk(ramdisk)).await.map_err(keeper_failed)?;
        let result = BootPrepareResult {
            base_url: self.served.base_url.clone(),
            kernel: self.served.kernel.to_string(),
            ramdisk: self.served.ramdisk.to_string(),
            agent_bundle: self.served.agent_bundle.map(|digest| digest.to_string()).unwrap_or_default(),
        };
        Ok(result.encode_to_vec())
    }

    async fn local(&self, order: &Order) -> Result<Vec<u8>, CommandError> {
        let args: BootLocalArgs = order.decode_args()?;
        let mac = parse("mac", &args.mac)?;
        self.keeper.set(mac, Entry::Local).await.map_err(keeper_failed)?;
        Ok(Vec::new())
    }
}

/// Checked arguments of `boot.prepare`.
struct Prepare {
    mac: Mac,
    ramdisk: Ramdisk,
}

impl TryFrom<BootPrepareArgs> for Prepare {
    type Error = CommandError;

    fn try_from(args: BootPrepareArgs) -> Result<Self, CommandError> {
        let token = args.join_token;
        if token.len() > MAX_TOKEN || !token.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        {
            return Err(malformed("join_token", "expected at most 128 letters, digits, `-`, `_` or `.`"));
        }
        if args.expires_unix_ms <= Now::read().unix_ms {
            return Err(malformed("expires_unix_ms", "it is over"));
        }
        let url = args.control_url;
        if !url.starts_with("https://") || ipxe::check_cmdline(&url).is_err() || url.contains(' ') {
            return Err(malformed("control_url", "expected https://host:port"));
        }
        ipxe::check_cmdline(&args.extra_cmdline).map_err(|error| malformed("extra_cmdline", error))?;
        if args.extra_cmdline.len() > MAX_EXTRA_CMDLINE {
            return Err(malformed("extra_cmdline", format!("more than {MAX_EXTRA_CMDLINE} bytes")));
        }
        if args.artifacts.len() > MAX_ARTIFACTS {
            return Err(malformed("artifacts", format!("more than {MAX_ARTIFACTS}")));
        }
        let artifacts =
            args.artifacts.iter().map(|text| parse("artifacts", text)).collect::<Result<_, _>>()?;
        let machine: Name = parse("machine_id", &args.machine_id)?;
        let ramdisk = Ramdisk {
            machine,
            token: (!token.is_empty()).then_some(Token(token)),
            expires_ms: args.expires_unix_ms,
            control_url: url,
            ca_pin: parse("ca_pin", &args.ca_pin)?,
            extra_cmdline: args.extra_cmdline,
            artifacts,
        };
        Ok(Self { mac: parse("mac", &args.mac)?, ramdisk })
    }
}

fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(field: &str, text: &str) -> Result<T, CommandError> {
    text.parse().map_err(|error| malformed(field, error))
}

fn malformed(field: &str, why: impl std::fmt::Display) -> CommandError {
    fail("malformed_args", format!("argument `{field}`: {why}"))
}

fn fetch_failed(digest: Digest, error: FetchError) -> CommandError {
    fail(error.code(), format!("fetching {digest} into the cache: {:#}", anyhow::Error::from(error)))
}

fn keeper_failed(error: KeeperError) -> CommandError {
    let code = match &error {
        KeeperError::Table(TableError::Full) => "boot_table_full",
        KeeperError::Stopping => "interrupted",
        _ => "storage_failed",
    };
    fail(code, format!("setting the boot entry: {:#}", anyhow::Error::from(error)))
}
