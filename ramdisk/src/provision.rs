//! The role `ramdisk`: join, then do what control orders, until it orders a reboot.

use std::{convert::Infallible, sync::Arc, time::Duration};

use ironwright_agent::{Executor, power::Reboot};
use ironwright_proto::boot_params::BootParams;
use nix::unistd;

use crate::{
    boot::{hardware, power::Kernel},
    console::{chain, say},
    exec::{Machine, Provisioner},
    join,
    net::{self, Network},
    session,
    stage::{self, Failure, GivenUp, Limits},
};

/// Getting an address; the second attempt starts with a fresh client.
const NET: Limits = Limits { attempts: 10, each: Duration::from_secs(45) };
/// How long one DHCP client asks.
const DHCP_WAIT: Duration = Duration::from_secs(30);

/// Brings the machine up and serves control. Returns only to be rebooted.
pub async fn run(params: &BootParams) -> Result<Infallible, GivenUp> {
    if let Err(errno) = unistd::sethostname(&params.machine_id) {
        say("start", format_args!("setting the host name {}: {errno}", params.machine_id));
    }
    let machine = hardware::machine();
    let network = network(params, &machine).await?;
    join::set_clock(params).await?;
    let identity = join::join(params, &machine.roots).await?;
    let executors: Vec<Arc<dyn Executor>> =
        vec![Arc::new(Provisioner::new(machine.clone())), Arc::new(Reboot::new(Arc::new(Kernel)))];
    let ended = session::serve(identity, executors, &machine).await;
    drop(network);
    Err(ended)
}

async fn network(params: &BootParams, machine: &Arc<Machine>) -> Result<Network, GivenUp> {
    let nic = hardware::boot_nic(machine, params.mac).await?;
    say("drivers", format_args!("{} modules loaded, {} is {}", machine.modules_loaded(), nic.name, nic.mac));
    let network = stage::run("net", NET, || async {
        net::bring_up(nic.clone(), DHCP_WAIT).await.map_err(|error| Failure::Passing(chain(&error)))
    })
    .await?;
    net::say_up(&network);
    Ok(network)
}
