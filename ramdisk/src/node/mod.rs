//! The role `node`: this program as the operating system of a deployed disk, for images of our own.
//!
//! It is the kernel and this initramfs, so there is no service manager: the agent runs in PID 1. What it has
//! to know is in the disk's seed, as in any deployed system.

pub mod seed;

use std::{convert::Infallible, sync::Arc, time::Duration};

use ironwright_agent::{
    CancellationToken, link,
    node::{self, Config},
};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    boot::{hardware, power::Kernel},
    console::{chain, say},
    exec::Machine,
    net::{self, Network},
    session,
    stage::{self, Failure, GivenUp, Limits},
};

/// Our configuration in the seed.
const CONFIG_FILE: &str = "agent.toml";
/// Reading the seed: its disk may appear late.
const SEED: Limits = Limits { attempts: 5, each: Duration::from_secs(30) };
/// One round over all interfaces.
const NET: Limits = Limits { attempts: 10, each: Duration::from_secs(180) };
/// How long one interface's DHCP client asks before the next interface has its turn.
const DHCP_WAIT: Duration = Duration::from_secs(10);

/// Brings the machine up and serves control. Returns only to be rebooted.
pub async fn run() -> Result<Infallible, GivenUp> {
    let machine = hardware::machine();
    let network = stage::run("net", NET, || first_network(&machine)).await?;
    net::say_up(&network);
    let config = stage::run("seed", SEED, || read_config(&machine)).await?;

    let (handle, mut port) = link::channel();
    let connected = handle.connected.clone();
    let _teller = AbortOnDropHandle::new(tokio::spawn(session::tell_control(handle.events)));
    let _watcher = AbortOnDropHandle::new(tokio::spawn(async move {
        // A running system does not reboot because control is away.
        session::watch("node", connected, || false).await;
    }));
    let mut first = handle.connected;
    let ready = async {
        if first.wait_for(|open| *open).await.is_ok() {
            say("login", "ready");
        }
        std::future::pending::<Infallible>().await
    };
    let agent = node::run_with(config, &mut port, Arc::new(Kernel), CancellationToken::new());
    let why = tokio::select! {
        ended = agent => ended.map_or_else(|error| chain(&error), |()| "the agent ended".to_owned()),
        never = ready => match never {},
    };
    Err(GivenUp { stage: "node", why })
}

/// The first interface, by name, that gets an address.
async fn first_network(machine: &Arc<Machine>) -> Result<Network, Failure> {
    let nics = hardware::nics(machine, "a network interface", |_| true).await;
    let mut failures = Vec::new();
    for nic in nics.map_err(|given_up| Failure::Passing(given_up.why))? {
        match net::bring_up(nic, DHCP_WAIT).await {
            Ok(network) => return Ok(network),
            Err(error) => failures.push(chain(&error)),
        }
    }
    Err(Failure::Passing(failures.join("; ")))
}

async fn read_config(machine: &Arc<Machine>) -> Result<Config, Failure> {
    let reading = machine.clone();
    let read = move || {
        reading.settle();
        seed::read(&reading.roots, CONFIG_FILE)
    };
    let bytes =
        tokio::task::spawn_blocking(read).await.map_err(|error| Failure::Passing(error.to_string()))?;
    let bytes = bytes.map_err(|error| Failure::Passing(chain(&error)))?;
    let lasting = |error: &(dyn std::error::Error + 'static)| {
        Failure::Lasting(format!("{CONFIG_FILE}: {}; deploy this machine again", chain(error)))
    };
    let text = String::from_utf8(bytes).map_err(|error| lasting(&error))?;
    Config::parse(&text).map_err(|error| lasting(&error))
}
