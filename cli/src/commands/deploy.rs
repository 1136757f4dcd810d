//! `ironwright deploy`.

use std::process::ExitCode;

use anyhow::Context;
use ironwright_proto::api::{DiskHint, NewDeploy, Run};

use crate::{args::DeployArgs, client::Client, output};

/// What control takes.
const MAX_USER_DATA_BYTES: u64 = 256 << 10;

pub(super) async fn run(client: &Client, args: DeployArgs, json: bool) -> anyhow::Result<ExitCode> {
    let user_data = args.user_data.as_deref().map(read_user_data).transpose()?;
    let request = NewDeploy {
        machine: args.machine,
        image: args.image,
        user_data,
        disk: DiskHint {
            name: args.disk,
            serial: args.disk_serial,
            wwid: args.disk_wwid,
            min_size_bytes: args.disk_min_size,
        },
        extra_cmdline: args.cmdline,
        replace: args.replace,
    };
    let run: Run = client.post("/v1/deploys", &request).await?;
    if args.watch {
        return super::runs::watch(client, &run.id, json).await;
    }
    if json {
        output::json(&run)?;
    } else {
        output::line(&format!("run {} started; follow it with: ironwright runs watch {}", run.id, run.id))?;
        output::line(&format!("now power on {} with network boot", run.machine))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn read_user_data(path: &std::path::Path) -> anyhow::Result<String> {
    let reading = || format!("reading user-data from {}", path.display());
    let size = std::fs::metadata(path).with_context(reading)?.len();
    anyhow::ensure!(
        size <= MAX_USER_DATA_BYTES,
        "{} has {size} bytes; user-data may have {MAX_USER_DATA_BYTES}",
        path.display()
    );
    std::fs::read_to_string(path).with_context(reading)
}
