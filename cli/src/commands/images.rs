//! `ironwright images`.

use std::{path::Path, time::Duration};

use anyhow::Context;
use futures::TryStreamExt;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use indicatif::{ProgressBar, ProgressStyle};
use ironwright_proto::{
    api::{Image, ImageState, NewImage},
    ids::{Digest, Name},
};
use tokio_util::io::ReaderStream;

use crate::{
    args::ImagesCommand,
    client::{Client, ClientError},
    output,
};

const POLL_INTERVAL: Duration = Duration::from_millis(300);

pub(super) async fn run(client: &Client, command: ImagesCommand, json: bool) -> anyhow::Result<()> {
    match command {
        ImagesCommand::Add { name, url, file, digest, no_wait } => {
            let image = match (url, file) {
                (_, Some(file)) => upload(client, &name, &file, digest, json).await?,
                (Some(url), None) => {
                    let request = NewImage { name, url, digest };
                    let image: Image = client.post("/v1/images", &request).await?;
                    if no_wait { image } else { wait(client, image, json).await? }
                }
                (None, None) => anyhow::bail!("give --url or --file"),
            };
            show(&image, json)
        }
        ImagesCommand::List => {
            let images: Vec<Image> = client.get("/v1/images").await?;
            if json {
                return output::json(&images);
            }
            let rows: Vec<_> = images
                .into_iter()
                .map(|i| {
                    vec![
                        i.name.to_string(),
                        state(i.state).to_owned(),
                        output::size(i.size_bytes),
                        output::or_dash(i.format),
                        output::or_dash(i.digest),
                    ]
                })
                .collect();
            output::text(&output::table(&["IMAGE", "STATE", "SIZE", "FORMAT", "DIGEST"], &rows))?;
            Ok(())
        }
        ImagesCommand::Show { name } => {
            show(&client.get::<Image>(&format!("/v1/images/{name}")).await?, json)
        }
    }
}

fn show(image: &Image, json: bool) -> anyhow::Result<()> {
    if json {
        return output::json(image);
    }
    output::text(&output::fields(&[
        ("image", image.name.to_string()),
        ("state", state(image.state).to_owned()),
        ("source", image.source.clone()),
        ("digest", output::or_dash(image.digest)),
        ("size", output::size(image.size_bytes)),
        ("size on disk", output::size(image.raw_size_bytes)),
        ("format", output::or_dash(image.format.clone())),
        ("error", output::or_dash(image.error.as_ref().map(|e| format!("{} ({})", e.message, e.code)))),
    ]))?;
    Ok(())
}

async fn upload(
    client: &Client,
    name: &Name,
    path: &Path,
    digest: Option<Digest>,
    quiet: bool,
) -> anyhow::Result<Image> {
    let reading = || format!("reading {}", path.display());
    let file = tokio::fs::File::open(path).await.with_context(reading)?;
    let about = file.metadata().await.with_context(reading)?;
    if !about.is_file() {
        anyhow::bail!("{} is no file; give a disk image", path.display());
    }
    let length = about.len();
    let bar = progress_bar(length, quiet);
    let counted = bar.clone();
    let frames = ReaderStream::with_capacity(file, 256 << 10)
        .map_ok(Frame::data)
        .inspect_ok(move |frame| counted.inc(frame.data_ref().map_or(0, |data| data.len() as u64)));
    let query = digest.map(|digest| format!("?digest={digest}")).unwrap_or_default();
    let image = client
        .put_stream(
            &format!("/v1/images/{name}/bytes{query}"),
            BodyExt::boxed(StreamBody::new(frames)),
            length,
        )
        .await;
    bar.finish_and_clear();
    Ok(image?)
}

/// Waits until control has fetched the image; a failed one is an error.
async fn wait(client: &Client, mut image: Image, quiet: bool) -> anyhow::Result<Image> {
    let bar = progress_bar(image.size_bytes, quiet);
    while image.state == ImageState::Fetching {
        bar.set_length(image.size_bytes.max(image.fetched_bytes));
        bar.set_position(image.fetched_bytes);
        tokio::time::sleep(POLL_INTERVAL).await;
        image = client.get(&format!("/v1/images/{}", image.name)).await?;
    }
    bar.finish_and_clear();
    match image.error.clone() {
        Some(error) => Err(ClientError::Refused(error).into()),
        None => Ok(image),
    }
}

/// A bar on standard error, of bytes.
pub(super) fn progress_bar(length: u64, quiet: bool) -> ProgressBar {
    if quiet {
        return ProgressBar::hidden();
    }
    let style = "{bar:30} {percent:>3}%  {binary_bytes}/{binary_total_bytes}  {binary_bytes_per_sec}  {msg}";
    let style = ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length).with_style(style)
}

const fn state(state: ImageState) -> &'static str {
    match state {
        ImageState::Fetching => "fetching",
        ImageState::Ready => "ready",
        ImageState::Failed => "failed",
        ImageState::Unknown => "unknown",
    }
}
