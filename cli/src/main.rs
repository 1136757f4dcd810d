//! The `ironwright` program: control, site and agent servers, and the operator's client, in one binary.

mod args;
mod builders;
mod client;
mod client_config;
mod commands;
mod output;
mod servers;

use std::process::ExitCode;

use clap::Parser;

/// What a shell shows for a program that SIGPIPE ended.
const CLOSED_PIPE: u8 = 141;

fn main() -> ExitCode {
    let cli = args::Cli::parse();
    if let Err(error) = servers::init_logging(&cli.command) {
        eprintln!("ironwright: {error:#}");
        return ExitCode::from(2);
    }
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("ironwright: cannot start the async runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let outcome = runtime.block_on(commands::run(cli));
    // What still blocks a thread, such as a transfer that was cut, must not hold up the end.
    runtime.shutdown_background();
    match outcome {
        Ok(code) => code,
        Err(error) if is_closed_pipe(&error) => CLOSED_PIPE.into(),
        Err(error) => {
            eprintln!("ironwright: {}", output::plain(&format!("{error:#}")));
            error
                .downcast_ref::<client::ClientError>()
                .map_or(ExitCode::FAILURE, client::ClientError::exit_code)
        }
    }
}

/// Whether the error is that whoever read our output has had enough, as in `… | head`.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let kind = |cause: &(dyn std::error::Error + 'static)| {
        let io = cause.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        io.or_else(|| cause.downcast_ref::<serde_json::Error>().and_then(serde_json::Error::io_error_kind))
    };
    error.chain().any(|cause| kind(cause) == Some(std::io::ErrorKind::BrokenPipe))
}
