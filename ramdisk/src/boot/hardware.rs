//! Devices ready for use: drivers loaded, and the interface that is asked for there.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use ironwright_images::modules::Index;
use ironwright_proto::ids::Mac;
use tokio::time::{Instant, sleep, timeout_at};

use super::modules::{Drivers, SYS_BUS, load_into_kernel};
use crate::{
    console::say,
    exec::{Machine, Waits},
    machine::{Roots, text},
    net::{
        SYS_CLASS_NET,
        nics::{self, Nic},
    },
    stage::GivenUp,
};

/// Slow controllers take some seconds to show their interfaces.
const NIC_WAIT: Duration = Duration::from_secs(30);
const NIC_POLL: Duration = Duration::from_millis(50);

/// Opens the module index of the running kernel. Without one, only built-in drivers work.
pub fn drivers() -> Drivers {
    let release = text(Path::new("/proc/sys/kernel/osrelease"));
    let folder = PathBuf::from("/lib/modules").join(release);
    let buses = PathBuf::from(SYS_BUS);
    match Index::load(&folder) {
        Ok(index) => Drivers::new(buses, Box::new(move |alias| index.resolve(alias)), load_into_kernel),
        Err(error) => {
            say(
                "drivers",
                format_args!(
                    "reading the module index in {}: {error}; only built-in drivers will work",
                    folder.display()
                ),
            );
            Drivers::new(buses, Box::new(|_| Vec::new()), load_into_kernel)
        }
    }
}

/// Loads drivers until an interface passes `wanted`, and returns all that do.
pub async fn nics(
    machine: &Arc<Machine>,
    what: &str,
    wanted: impl Fn(&Nic) -> bool,
) -> Result<Vec<Nic>, GivenUp> {
    let deadline = Instant::now() + NIC_WAIT;
    loop {
        let settling = machine.clone();
        // Probing hardware blocks: for seconds where it is odd, for ever where it is broken.
        let _ = timeout_at(deadline, tokio::task::spawn_blocking(move || settling.settle())).await;
        let all = nics::list(Path::new(SYS_CLASS_NET));
        let (fitting, others): (Vec<Nic>, Vec<Nic>) = all.into_iter().partition(&wanted);
        if !fitting.is_empty() {
            return Ok(fitting);
        }
        if Instant::now() >= deadline {
            return Err(GivenUp { stage: "drivers", why: no_nic(what, &others) });
        }
        sleep(NIC_POLL).await;
    }
}

fn no_nic(what: &str, others: &[Nic]) -> String {
    let seen: Vec<String> = others.iter().map(|nic| format!("{} ({})", nic.name, nic.mac)).collect();
    let seen = if seen.is_empty() { "none".to_owned() } else { seen.join(", ") };
    let wait = NIC_WAIT.as_secs();
    format!(
        "{what} did not appear within {wait} s (interfaces here: {seen}); the ramdisk may lack its driver: \
         build it with `ironwright ramdisk build --drivers full`"
    )
}

/// The interface of this address.
pub async fn boot_nic(machine: &Arc<Machine>, mac: Mac) -> Result<Nic, GivenUp> {
    let what = format!("the interface {mac} that booted");
    let found = nics(machine, &what, |nic| nic.mac == mac).await?;
    let missing = || GivenUp { stage: "drivers", why: what.clone() };
    found.into_iter().next().ok_or_else(missing)
}

/// The machine as it is.
pub fn machine() -> Arc<Machine> {
    Arc::new(Machine::new(Roots::default(), drivers(), Waits::default()))
}
