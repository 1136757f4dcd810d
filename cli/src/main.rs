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
        Err(error) => {
            eprintln!("ironwright: {}", output::plain(&format!("{error:#}")));
            error
                .downcast_ref::<client::ClientError>()
                .map_or(ExitCode::FAILURE, client::ClientError::exit_code)
        }
    }
}
