//! The demo: from a blank disk to Debian's login prompt.

use std::{
    fs,
    io::{self, BufRead},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use ironwright_qemu_tests::{
    artifacts::Artifacts,
    cluster::Cluster,
    image,
    machine::{Accelerator, Machine, MachineSpec},
    wait,
};

use crate::{
    cargo, setup,
    timeline::{self, Timeline},
};

/// Id of the machine, and host name of its system.
const MACHINE: &str = "web-1";
/// From power on to the login prompt, on a slow machine without a hypervisor.
const LIMIT: Duration = Duration::from_secs(1800);
/// Lines of the console that are shown at the end.
const CONSOLE_LINES: usize = 12;
/// What the operator wants of the system: cloud-init's business, not ours.
const USER_DATA: &str = "#cloud-config\npassword: ironwright\nchpasswd: {expire: false}\n";

/// Tells what happens, with the time since the demo began.
struct Clock(Instant);

impl Clock {
    fn tell(&self, news: &str) {
        println!("{}", timeline::line(self.0.elapsed(), news));
    }
}

/// Runs the demo; with `keep` it stays up until Enter is pressed.
pub(crate) fn run(keep: bool) -> Result<()> {
    let clock = Clock(Instant::now());
    setup::run()?;
    cargo::build_programs()?;
    clock.tell("programs are built");
    Artifacts::prepare()?;
    clock.tell("kernel, ramdisk and agent bundle are there");
    let image = image::debian()?;
    clock.tell("the Debian image is there");

    let cluster = Cluster::start("demo")?;
    clock.tell("control and the site run");
    let spec = MachineSpec::uefi_nvme(MACHINE).memory_mib(1024);
    let mut machine = cluster.add_machine(spec)?;
    clock.tell(&format!("machine {MACHINE} has a blank NVMe disk, UEFI and a TPM"));
    let digest = cluster.add_image("debian-12", &image.file)?;
    clock.tell(&format!("image debian-12 is {digest}"));
    deploy(&cluster, &mut machine, &clock)?;

    let nodes = cluster.cli.text(&["nodes", "list"])?;
    println!("\n$ ironwright nodes list\n{nodes}");
    println!(
        "The console of {MACHINE}:\n{}\n",
        machine.console().lines_until(&login_prompt(), CONSOLE_LINES)
    );
    expect_active(&cluster)?;
    if keep {
        explain(&cluster, &machine);
        io::stdin().lock().read_line(&mut String::new()).context("waiting for Enter")?;
    }
    machine.power_off()?;
    cluster.pass()?;
    println!(
        "demo: {MACHINE} went from a blank disk to a login prompt; {} s in all",
        clock.0.elapsed().as_secs()
    );
    Ok(())
}

/// Deploys, switches the machine on, and watches until its console asks for a login and its node is active.
fn deploy(cluster: &Cluster, machine: &mut Machine, clock: &Clock) -> Result<()> {
    let user_data = cluster.path().join("user-data");
    fs::write(&user_data, USER_DATA).context("writing the user-data")?;
    let user_data = user_data.display().to_string();
    let run = cluster.deploy(MACHINE, "debian-12", &["--user-data", &user_data])?;
    clock.tell(&format!("run {run} is under way"));
    machine.power_on()?;
    clock.tell(match Accelerator::best() {
        Accelerator::Kvm => "power on (KVM)",
        Accelerator::Tcg => "power on (emulated CPUs, as no guest runs under KVM here)",
    });
    let mut timeline = Timeline::default();
    let mut prompt = false;
    let login = login_prompt();
    let started = Instant::now();
    cluster.wait_run(&run, "the run to succeed", LIMIT, |run| {
        for line in timeline.news(run, clock.0.elapsed()) {
            println!("{line}");
        }
        if !prompt && machine.console().ever_said(&login) {
            prompt = true;
            clock.tell("the console asks for a login");
        }
        run.state == "succeeded"
    })?;
    machine.console().wait_for(&login, LIMIT.saturating_sub(started.elapsed()))?;
    if !prompt {
        clock.tell("the console asks for a login");
    }
    Ok(())
}

fn login_prompt() -> String {
    format!("{MACHINE} login:")
}

fn expect_active(cluster: &Cluster) -> Result<()> {
    let node = wait::until("the node", Duration::ZERO, || cluster.node(MACHINE))?;
    ensure!(node.state == "active", "the node is {}", node.state);
    Ok(())
}

fn explain(cluster: &Cluster, machine: &Machine) {
    let enter = cluster.operator_words().join(" ");
    let folder = cluster.path().display();
    println!(
        "Everything keeps running. From another terminal:\n\n    \
         {enter} nodes list\n    \
         {enter} events\n    \
         tail -f {folder}/{MACHINE}/console.log\n\n\
         Control's and the site's logs and states are in {folder}, the disk is {}.\n\
         Press Enter to end it.",
        machine.disk_path().display()
    );
}
