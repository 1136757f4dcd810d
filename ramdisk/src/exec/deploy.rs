//! `image.deploy`: an image from the site onto the disk.
//!
//! ```text
//!  choose disk ──► fetch (async) ══ bounded channel ══► decode, write (blocking) ──► result
//!                     ▲                                        │
//!                     └── cancelled, or order dropped: stops,  ▼
//!                         which fails the writer ────► both ends of the disk zeroed
//! ```

use std::{
    io::{self, Read},
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use ironwright_agent::{CommandError, Ctx, contain, fail};
use ironwright_images::{
    deploy::{DeployError, DeployPlan, Deployed, Failure, Refusal, deploy},
    target::DiskFile,
};
use ironwright_proto::{
    ids::Digest,
    wire::{DiskHint, ImageDeployArgs, ImageDeployResult},
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    Machine, blocking, bug, disks,
    meter::Meter,
    source::{ChunkReader, SourceError, channel, fetch, resume::HeadError, url::HttpUrl},
};
use crate::console::{chain, say};

/// Name of the phase in progress reports.
const PHASE: &str = "write";

/// A checked order.
#[derive(Debug)]
pub struct Plan {
    url: HttpUrl,
    digest: Digest,
    /// Of the bytes at the URL.
    size: u64,
    /// After decoding, where known.
    raw_size: Option<u64>,
    hint: DiskHint,
    seed: Vec<(String, Vec<u8>)>,
}

impl TryFrom<ImageDeployArgs> for Plan {
    type Error = CommandError;

    fn try_from(args: ImageDeployArgs) -> Result<Self, CommandError> {
        let malformed = |field: &str, why: &dyn std::fmt::Display| {
            fail("malformed_args", format!("field `{field}` of image.deploy: {why}"))
        };
        if args.size_bytes == 0 {
            return Err(malformed("size_bytes", &"an image has at least one byte"));
        }
        Ok(Self {
            url: HttpUrl::parse(&args.url).map_err(|error| malformed("url", &error))?,
            digest: args.digest.parse().map_err(|error| malformed("digest", &error))?,
            size: args.size_bytes,
            raw_size: (args.raw_size_bytes > 0).then_some(args.raw_size_bytes),
            hint: args.hint.unwrap_or_default(),
            seed: args.seed.into_iter().map(|file| (file.name, file.content)).collect(),
        })
    }
}

/// What the writing thread needs.
struct Writer {
    disk: DiskFile,
    source: ChunkReader,
    plan: DeployPlan,
    ctx: Ctx,
}

impl Writer {
    /// Writes the image. Blocks.
    fn run(mut self) -> Result<Deployed, DeployError> {
        let mut meter = Meter::new(Instant::now());
        let mut progress = |progress: ironwright_images::deploy::Progress| {
            self.ctx.progress(PHASE, progress.read, progress.total);
            if let Some(line) = meter.line(progress.read, progress.total, Instant::now()) {
                say("image", line);
            }
        };
        deploy(Adopting(self.source), &mut self.disk, &self.plan, &mut progress)
    }
}

/// The source, as the decoder's thread reads it, which `deploy` spawns and whose panics it raises again.
struct Adopting(ChunkReader);

impl Read for Adopting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        contain::adopt_thread();
        self.0.read(buffer)
    }
}

/// Runs the order.
pub async fn run(machine: Arc<Machine>, plan: Plan, ctx: Ctx) -> Result<ImageDeployResult, CommandError> {
    let began = Instant::now();
    let (path, disk) = open_disk(machine.clone(), &plan).await?;
    say("image", format_args!("{} to {}", plan.url, path.display()));
    let (sink, source) = channel();
    let (url, size, patience) = (plan.url.clone(), plan.size, machine.waits.source);
    let fetching = async move { contain::future(fetch(&url, size, patience, sink)).await };
    let mut fetching = AbortOnDropHandle::new(tokio::spawn(fetching));
    let writer = Writer {
        disk,
        source,
        plan: DeployPlan {
            digest: plan.digest.0,
            size: plan.size,
            raw_size: plan.raw_size,
            target_is_zero: machine.take_zeroed(&path),
            seed: plan.seed,
        },
        ctx: ctx.clone(),
    };
    let mut writing = pin!(contain::spawn_blocking(move || writer.run()));
    let written = tokio::select! {
        written = &mut writing => written,
        () = ctx.cancelled() => {
            // Without its source the writer fails and makes the disk unbootable; wait for that.
            fetching.abort();
            writing.await
        }
    };
    match written.ok_or_else(|| bug("the writer"))? {
        Ok(deployed) => Ok(result(&path, plan.digest, &deployed, began.elapsed())),
        Err(error) if ctx.is_cancelled() => Err(fail("cancelled", chain(&error))),
        Err(error) => {
            let source = match is_source(&error).then_some(&mut fetching) {
                Some(fetching) => {
                    fetching.await.ok().map(|fetched| fetched.ok_or_else(|| bug("the fetcher")))
                }
                None => None,
            };
            Err(explain(&error, source.transpose()?.and_then(Result::err).as_ref()))
        }
    }
}

async fn open_disk(machine: Arc<Machine>, plan: &Plan) -> Result<(PathBuf, DiskFile), CommandError> {
    let hint = plan.hint.clone();
    // Encoded bytes are the least that is known where the decoded size is not.
    let needed = plan.raw_size.unwrap_or(plan.size);
    blocking(move || {
        let (disk, file) = disks::open(&machine, &hint, needed)?;
        Ok((disk.path, file))
    })
    .await
}

fn result(path: &Path, digest: Digest, deployed: &Deployed, took: Duration) -> ImageDeployResult {
    ImageDeployResult {
        path: path.display().to_string(),
        format: deployed.format.as_str().to_owned(),
        digest: digest.to_string(),
        bytes_read: deployed.bytes_read,
        bytes_written: deployed.bytes_written,
        duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
    }
}

/// Whether the writer failed because reading did.
fn is_source(error: &DeployError) -> bool {
    matches!(
        error,
        DeployError::Refused(Refusal::Read(_))
            | DeployError::Failed(Failure::Source { .. })
            | DeployError::Stuck { cause: Failure::Source { .. }, .. }
    )
}

/// The stable code and the text of a failed deploy. What the fetcher says is closer to the cause than what
/// the writer saw of it.
fn explain(error: &DeployError, source: Option<&SourceError>) -> CommandError {
    match source {
        Some(source) => {
            let code = match source {
                SourceError::Refused { source: HeadError::OtherSize { .. }, .. } => "image_size_mismatch",
                SourceError::Refused { .. } | SourceError::GivenUp { .. } => "source_unreachable",
            };
            fail(code, format!("{error}: {}", chain(source)))
        }
        None => fail(code(error), chain(error)),
    }
}

fn code(error: &DeployError) -> &'static str {
    match error {
        DeployError::Refused(refusal) => match refusal {
            Refusal::Format(_) => "unknown_format",
            Refusal::Read(_) => "corrupt_image",
            Refusal::LargerThanDisk { .. } => "image_too_large",
            Refusal::RawSize { .. } => "image_size_mismatch",
            Refusal::Table(table) => table.code(),
            Refusal::Seed(_) => "bad_seed",
        },
        DeployError::Failed(failure) | DeployError::Stuck { cause: failure, .. } => match failure {
            Failure::Source { .. } => "source_unreachable",
            Failure::Truncated { .. } | Failure::TooLong { .. } | Failure::RawSize { .. } => {
                "image_size_mismatch"
            }
            Failure::Corrupt { .. } => "corrupt_image",
            Failure::Digest { .. } => "digest_mismatch",
            Failure::LargerThanDisk { .. } => "image_too_large",
            Failure::Disk { .. } => "write_failed",
        },
    }
}
