//! A network of its own: one network namespace with a bridge and taps.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::process;

/// Address of the bridge, at which control and the site are reached.
pub const ADDRESS: &str = "10.77.0.1";
/// Prefix length of the network.
pub const PREFIX: u8 = 24;
/// The bridge's interface.
pub const BRIDGE: &str = "br0";
/// Taps join and leave; without an address of its own the bridge would change its address with them.
const BRIDGE_MAC: &str = "52:54:00:77:00:01";

/// A network namespace. It ends with this value, with everything in it.
///
/// A holder process (`cat`) keeps it; it ends when its standard input is closed, which happens however
/// this process ends. Without root the namespace belongs to a user namespace of its own.
#[derive(Debug)]
pub struct Namespace {
    holder: Child,
    unprivileged: bool,
    taps: AtomicU32,
}

/// An interface of the namespace that a machine is plugged into.
#[derive(Debug, Clone)]
pub struct Tap {
    /// Name of the interface, in its namespace.
    pub name: String,
}

impl Namespace {
    /// Makes the namespace and its bridge.
    pub fn new() -> Result<Self> {
        let unprivileged = !nix::unistd::geteuid().is_root();
        let mut unshare = process::command("unshare");
        if unprivileged {
            unshare.args(["--user", "--map-root-user"]);
        }
        let mut holder = unshare
            .args(["--net", "--", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the holder of a network namespace")?;
        let ready = say_and_hear(&mut holder);
        let namespace = Self { holder, unprivileged, taps: AtomicU32::new(0) };
        ready.context(
            "making a network namespace (this needs root, or a kernel that allows unprivileged user namespaces)",
        )?;
        namespace.set_up_bridge().context("setting up the bridge")?;
        Ok(namespace)
    }

    /// A command that runs inside the namespace and is killed with the calling thread.
    pub fn command(&self, program: &str) -> Command {
        let words = self.enter_words();
        let mut command = Command::new(&words[0]);
        command.env("PATH", process::SEARCH_PATH).args(&words[1..]);
        // Entering a user namespace clears the parent death signal, so it is set after that.
        command.args(["setpriv", "--pdeathsig", "KILL", "--", program]);
        command
    }

    /// What to put in front of a command line so that it runs inside the namespace.
    pub fn enter_words(&self) -> Vec<String> {
        let holder = self.holder.id().to_string();
        let user: &[&str] = if self.unprivileged { &["--user", "--preserve-credentials"] } else { &[] };
        let words = [&["nsenter", "--target", holder.as_str(), "--net"], user, &["--"]].concat();
        words.into_iter().map(str::to_owned).collect()
    }

    /// Adds a tap to the bridge.
    pub fn add_tap(&self) -> Result<Tap> {
        let name = format!("tap{}", self.taps.fetch_add(1, Ordering::Relaxed));
        self.ip(&format!("tuntap add dev {name} mode tap"))?;
        self.ip(&format!("link set {name} master {BRIDGE} up"))?;
        Ok(Tap { name })
    }

    /// Slows what goes to the machine behind a tap down to so many megabits per second.
    pub fn limit_rate(&self, tap: &Tap, megabits_per_s: u32) -> Result<()> {
        // The burst must hold what arrives in one tick of the kernel (4 ms at 250 Hz).
        let burst_kib = (megabits_per_s).max(64);
        let line = format!(
            "qdisc replace dev {} root tbf rate {megabits_per_s}mbit burst {burst_kib}kb latency 100ms",
            tap.name
        );
        process::run(self.command("tc").args(line.split(' '))).map(drop)
    }

    /// Undoes [`Namespace::limit_rate`].
    pub fn unlimit_rate(&self, tap: &Tap) -> Result<()> {
        process::run(self.command("tc").args(["qdisc", "del", "dev", &tap.name, "root"])).map(drop)
    }

    /// Bytes that went out of a tap: to the machine behind it.
    pub fn bytes_sent(&self, tap: &Tap) -> Result<u64> {
        let mut ip = self.command("ip");
        let text = process::run(ip.args(["-json", "-statistics", "link", "show", "dev", &tap.name]))?;
        let links: Value = serde_json::from_str(&text).context("reading ip's JSON")?;
        links[0]["stats64"]["tx"]["bytes"].as_u64().with_context(|| format!("ip tells no bytes: {text}"))
    }

    fn set_up_bridge(&self) -> Result<()> {
        self.ip("link set lo up")?;
        self.ip(&format!("link add {BRIDGE} address {BRIDGE_MAC} type bridge stp_state 0 forward_delay 0"))?;
        self.ip(&format!("address add {ADDRESS}/{PREFIX} dev {BRIDGE}"))?;
        self.ip(&format!("link set {BRIDGE} up"))
    }

    fn ip(&self, words: &str) -> Result<()> {
        process::run(self.command("ip").args(words.split(' '))).map(drop)
    }
}

/// The holder echoes once it runs, and it runs once it has the namespace.
fn say_and_hear(holder: &mut Child) -> Result<()> {
    let stdin = holder.stdin.as_mut().context("the holder has no input")?;
    stdin.write_all(b"here\n")?;
    let mut answer = String::new();
    BufReader::new(holder.stdout.take().context("the holder has no output")?).read_line(&mut answer)?;
    ensure!(answer == "here\n", "the holder ended");
    Ok(())
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_namespaces_have_the_same_address_and_do_not_see_each_other() {
        let (one, two) = (Namespace::new().unwrap(), Namespace::new().unwrap());
        let tap = one.add_tap().unwrap();
        assert_eq!(tap.name, "tap0");
        for namespace in [&one, &two] {
            let text = process::run(namespace.command("ip").args(["-4", "-o", "address"])).unwrap();
            assert!(text.contains("br0    inet 10.77.0.1/24"), "{text}");
        }
        let taps = |n: &Namespace| process::run(n.command("ip").args(["-o", "link", "show", "type", "tun"]));
        assert!(taps(&one).unwrap().contains("master br0"));
        assert_eq!(taps(&two).unwrap(), "");
    }

    #[test]
    fn a_tap_can_be_slowed_down_and_freed_again() {
        let namespace = Namespace::new().unwrap();
        let tap = namespace.add_tap().unwrap();
        assert_eq!(namespace.bytes_sent(&tap).unwrap(), 0);
        let rules = || process::run(namespace.command("tc").args(["qdisc", "show", "dev", "tap0"])).unwrap();
        namespace.limit_rate(&tap, 80).unwrap();
        assert!(rules().contains("rate 80Mbit"), "{}", rules());
        namespace.unlimit_rate(&tap).unwrap();
        assert!(!rules().contains("tbf"), "{}", rules());
    }
}
