//! One function a command; each file is one noun.

mod deploy;
mod events;
mod images;
mod login;
mod machines;
mod nodes;
mod runs;
mod sim;
mod sites;

use std::process::ExitCode;

use ironwright_proto::api::Status;

use crate::{
    args::{Cli, Command, ControlCommand, SiteCommand},
    builders,
    client::Client,
    output, servers,
};

pub(crate) async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let json = cli.json;
    match cli.command {
        Command::Control(ControlCommand::Init { dir, names, api, gateway, ek_roots }) => {
            builders::control_init(&dir, names, api, gateway, ek_roots, json)?;
        }
        Command::Control(ControlCommand::Serve { dir }) => servers::control(dir).await?,
        Command::Site(SiteCommand::Run { config }) => servers::site(&config).await?,
        Command::Site(SiteCommand::ExampleConfig) => output::text(ironwright_site::Config::example())?,
        Command::Agent { config } => servers::agent(&config).await?,
        Command::Ramdisk(command) => builders::ramdisk(command, json)?,
        Command::Bundle(command) => builders::bundle(&command, json)?,
        Command::Sim(args) => return sim::run(args, json),
        Command::Login { url, ca_pin, token_file } => login::login(url, ca_pin, token_file, json).await?,
        Command::Status => status(&Client::from_login()?, json).await?,
        Command::Sites(command) => sites::run(&Client::from_login()?, command, json).await?,
        Command::Machines(command) => machines::run(&Client::from_login()?, command, json).await?,
        Command::Images(command) => images::run(&Client::from_login()?, command, json).await?,
        Command::Deploy(args) => return deploy::run(&Client::from_login()?, args, json).await,
        Command::Runs(command) => return runs::run(&Client::from_login()?, command, json).await,
        Command::Nodes(command) => nodes::run(&Client::from_login()?, command, json).await?,
        Command::Events { after, limit, follow } => {
            events::run(&Client::from_login()?, after, limit, follow, json).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn status(client: &Client, json: bool) -> anyhow::Result<()> {
    let status: Status = client.get("/v1/status").await?;
    if json {
        return output::json(&status);
    }
    output::text(&output::fields(&[
        ("version", status.version.clone()),
        ("CA pin", status.ca_pin.to_string()),
        ("sessions", status.sessions.to_string()),
        ("active runs", status.active_runs.to_string()),
    ]))?;
    Ok(())
}
