//! The command line. `docs/cli.md` is its reference.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};
use ironwright_proto::ids::{Digest, Mac, Name};

/// From cold iron to a running, attested operating system.
#[derive(Parser)]
#[command(version, propagate_version = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Print JSON instead of tables.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Set up or run the control plane.
    #[command(subcommand)]
    Control(ControlCommand),
    /// Run a site agent, or manage it.
    #[command(subcommand)]
    Site(SiteCommand),
    /// Run the agent of an operating system; usually started by its systemd unit.
    #[command(after_help = "Example:\n  ironwright agent --config /etc/ironwright/agent.toml")]
    Agent {
        /// Configuration file.
        #[arg(long, default_value = "/etc/ironwright/agent.toml")]
        config: PathBuf,
    },
    /// Remember a control plane and an admin token for the commands below.
    #[command(
        after_help = "Example:\n  ironwright login --url https://10.0.0.1:8443 --ca-pin sha256:… < admin-token"
    )]
    Login {
        /// Base URL of control's API.
        #[arg(long)]
        url: String,
        /// SHA-256 of control's CA certificate, as `control init` printed it.
        #[arg(long)]
        ca_pin: Digest,
        /// File with the admin token; standard input where absent.
        #[arg(long)]
        token_file: Option<PathBuf>,
    },
    /// Show what control is doing.
    #[command(after_help = "Example:\n  ironwright status --json")]
    Status,
    /// Places that serve network boot.
    #[command(subcommand)]
    Sites(SitesCommand),
    /// Enrolled machines.
    #[command(subcommand)]
    Machines(MachinesCommand),
    /// Disk images.
    #[command(subcommand)]
    Images(ImagesCommand),
    /// Put an image on a machine and bring it up as a node.
    #[command(
        after_help = "Example:\n  ironwright deploy web-1 --image debian-12 --user-data cloud.yaml --watch"
    )]
    Deploy(DeployArgs),
    /// Durable workflows.
    #[command(subcommand)]
    Runs(RunsCommand),
    /// Joined identities.
    #[command(subcommand)]
    Nodes(NodesCommand),
    /// The audit log: who did what, when.
    #[command(after_help = "Examples:\n  ironwright events --limit 20\n  ironwright events --follow --json")]
    Events {
        /// Show entries after this sequence number.
        #[arg(long, default_value_t = 0)]
        after: u64,
        /// At most this many entries.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1000))]
        limit: u64,
        /// Go on showing new entries.
        #[arg(long)]
        follow: bool,
    },
    /// Build the initramfs.
    #[command(subcommand)]
    Ramdisk(RamdiskCommand),
    /// Build the agent bundle that deployed systems install.
    #[command(subcommand)]
    Bundle(BundleCommand),
    /// Simulate a fleet with the real cores, make things go wrong, and check what has to hold.
    #[command(after_help = "Examples:\n  ironwright sim --seed 1 --nodes 100 --minutes 60 --chaos heavy\n  \
                      ironwright sim --nodes 20 --minutes 30 --chaos light --log sim.log\n  \
                      ironwright sim --cold-start --nodes 10000 --gateways 8")]
    Sim(SimArgs),
}

/// The same arguments give the same log, whose digest is printed.
#[derive(Args)]
pub(crate) struct SimArgs {
    /// What all randomness comes from.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Machines.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) nodes: u32,
    /// Gateways on the one store.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) gateways: u32,
    /// Simulated minutes in which things go wrong; 15 quiet ones follow.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) minutes: u32,
    /// none, light (a fault for each node in 20 minutes) or heavy (one in 3 minutes).
    #[arg(long, default_value = "light")]
    pub(crate) chaos: ironwright_sim::Chaos,
    /// Where to write every line of the log.
    #[arg(long)]
    pub(crate) log: Option<PathBuf>,
    /// Time how all machines come up, and come back after everything was down, instead.
    #[arg(long, conflicts_with_all = ["minutes", "chaos", "log"])]
    pub(crate) cold_start: bool,
}

#[derive(Subcommand)]
pub(crate) enum ControlCommand {
    /// Make the store, the CA, the server key and the first admin token.
    #[command(
        after_help = "Example:\n  ironwright control init --dir /var/lib/ironwright --name control.example.net"
    )]
    Init {
        /// Folder to make; must not exist.
        #[arg(long)]
        dir: PathBuf,
        /// DNS name or IP address under which agents and clients reach control; the first one is advertised.
        #[arg(long = "name", required = true)]
        names: Vec<String>,
        /// Where the API listens.
        #[arg(long, default_value = "[::]:8443")]
        api: SocketAddr,
        /// Where the agents' gateway listens.
        #[arg(long, default_value = "[::]:9443")]
        gateway: SocketAddr,
        /// PEM file with the TPM manufacturers' CA certificates to trust.
        #[arg(long)]
        ek_roots: Option<PathBuf>,
    },
    /// Serve the API and the gateway.
    #[command(after_help = "Example:\n  ironwright control serve --dir /var/lib/ironwright")]
    Serve {
        /// Folder made by `control init`.
        #[arg(long)]
        dir: PathBuf,
    },
}

#[derive(Subcommand)]
pub(crate) enum SiteCommand {
    /// Serve network boot.
    #[command(after_help = "Example:\n  ironwright site run --config site.toml")]
    Run {
        /// Configuration file.
        #[arg(long, default_value = "/etc/ironwright/site.toml")]
        config: PathBuf,
    },
    /// Print a commented configuration file.
    #[command(after_help = "Example:\n  ironwright site example-config > site.toml")]
    ExampleConfig,
}

#[derive(Subcommand)]
pub(crate) enum SitesCommand {
    /// Add a site and make the token with which its agent joins; for an existing site, a new token in place of
    /// the old one.
    #[command(after_help = "Example:\n  ironwright sites add lab --token-file site.token")]
    Add {
        name: Name,
        /// Write the token to this new file (mode 0600) instead of standard output.
        #[arg(long)]
        token_file: Option<PathBuf>,
    },
    /// List sites.
    List,
}

#[derive(Subcommand)]
pub(crate) enum MachinesCommand {
    /// Enroll a machine.
    #[command(after_help = "Example:\n  ironwright machines add web-1 --mac 52:54:00:12:34:56")]
    Add {
        id: Name,
        /// MAC address of the interface that network boots.
        #[arg(long)]
        mac: Mac,
        /// Site that serves it; may be left out while there is one site.
        #[arg(long)]
        site: Option<Name>,
        /// SMBIOS system UUID.
        #[arg(long)]
        product_uuid: Option<String>,
        /// Let it join by token alone, because it has no TPM.
        #[arg(long)]
        allow_no_tpm: bool,
    },
    /// List machines.
    List,
    /// Change what is known of a machine.
    #[command(
        group = clap::ArgGroup::new("change").required(true).multiple(true),
        after_help = "Examples:\n  ironwright machines set web-1 --allow-no-tpm true\n  \
                            ironwright machines set web-1 --forget-tpm --mac 52:54:00:12:34:57"
    )]
    Set {
        id: Name,
        /// MAC address of the interface that network boots.
        #[arg(long, group = "change")]
        mac: Option<Mac>,
        /// Site that serves it.
        #[arg(long, group = "change")]
        site: Option<Name>,
        /// SMBIOS system UUID.
        #[arg(long, group = "change")]
        product_uuid: Option<String>,
        /// Whether it may join by token alone; where it is bound to a TPM, --forget-tpm has to come with it.
        #[arg(long, group = "change", value_name = "true|false")]
        allow_no_tpm: Option<bool>,
        /// Its TPM is no longer in it: bind the one that it has at its next deploy.
        #[arg(long, group = "change")]
        forget_tpm: bool,
    },
    /// Remove a machine and its node.
    #[command(after_help = "Example:\n  ironwright machines remove web-1")]
    Remove { id: Name },
    /// Show one machine, with its inventory.
    #[command(after_help = "Example:\n  ironwright machines show web-1")]
    Show { id: Name },
}

#[derive(Subcommand)]
pub(crate) enum ImagesCommand {
    /// Register an image by URL, or upload a file.
    #[command(
        after_help = "Examples:\n  ironwright images add debian-12 --url https://example.net/debian-12.raw.zst\n  \
                            ironwright images add debian-12 --file debian-12.raw.zst"
    )]
    Add {
        name: Name,
        /// URL that control fetches.
        #[arg(long, required_unless_present = "file", conflicts_with = "file")]
        url: Option<String>,
        /// File to upload.
        #[arg(long)]
        file: Option<PathBuf>,
        /// Refuse the image unless its bytes have this digest.
        #[arg(long)]
        digest: Option<Digest>,
        /// Do not wait until control has fetched it.
        #[arg(long)]
        no_wait: bool,
    },
    /// List images.
    List,
    /// Show one image.
    #[command(after_help = "Example:\n  ironwright images show debian-12")]
    Show { name: Name },
}

#[derive(Args)]
pub(crate) struct DeployArgs {
    /// Machine to deploy.
    pub(crate) machine: Name,
    /// Image to put on its disk.
    #[arg(long)]
    pub(crate) image: Name,
    /// cloud-init user-data for the first boot.
    #[arg(long)]
    pub(crate) user_data: Option<PathBuf>,
    /// Disk by kernel name, e.g. nvme0n1.
    #[arg(long)]
    pub(crate) disk: Option<String>,
    /// Disk by serial number.
    #[arg(long)]
    pub(crate) disk_serial: Option<String>,
    /// Disk by world wide id.
    #[arg(long)]
    pub(crate) disk_wwid: Option<String>,
    /// Disk of at least this size, e.g. 100G (1024-based).
    #[arg(long, value_parser = crate::output::parse_size)]
    pub(crate) disk_min_size: Option<u64>,
    /// Words added to the ramdisk's kernel command line.
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    pub(crate) cmdline: String,
    /// Erase the machine also where it runs as a node.
    #[arg(long)]
    pub(crate) replace: bool,
    /// Show the steps live until the run ends.
    #[arg(long)]
    pub(crate) watch: bool,
}

#[derive(Subcommand)]
pub(crate) enum RunsCommand {
    /// List runs.
    List,
    /// Show one run.
    #[command(after_help = "Example:\n  ironwright runs show run-0123456789abcdef")]
    Show {
        #[arg(value_parser = parse_id)]
        run: String,
    },
    /// Show the steps live until the run ends; exit 1 where it does not succeed.
    #[command(after_help = "Example:\n  ironwright runs watch run-0123456789abcdef")]
    Watch {
        #[arg(value_parser = parse_id)]
        run: String,
    },
    /// End a run.
    #[command(after_help = "Example:\n  ironwright runs cancel run-0123456789abcdef")]
    Cancel {
        #[arg(value_parser = parse_id)]
        run: String,
    },
}

#[derive(Subcommand)]
pub(crate) enum NodesCommand {
    /// List nodes.
    List,
    /// Show one node.
    #[command(after_help = "Example:\n  ironwright nodes show node-0123456789abcdef")]
    Show {
        #[arg(value_parser = parse_id)]
        node: String,
    },
}

/// Which kernel modules the initramfs carries.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Drivers {
    /// Drivers of virtual machines.
    Vm,
    /// Every network and storage driver of the kernel.
    Full,
}

#[derive(Subcommand)]
pub(crate) enum RamdiskCommand {
    /// Build an initramfs (newc, zstd) with our PID 1, its shared objects and kernel modules.
    #[command(after_help = "Example:\n  ironwright ramdisk build --kernel /boot/vmlinuz-6.1.0-13-amd64 \
                      --modules /lib/modules/6.1.0-13-amd64 --output ramdisk.img")]
    Build {
        /// Kernel that will boot it; checked against the modules' version.
        #[arg(long)]
        kernel: PathBuf,
        /// The kernel's folder lib/modules/VERSION.
        #[arg(long)]
        modules: PathBuf,
        /// The ironwright-ramdisk binary; beside this program where absent.
        #[arg(long)]
        init: Option<PathBuf>,
        /// File to write.
        #[arg(long)]
        output: PathBuf,
        /// Set of drivers.
        #[arg(long, value_enum, default_value = "full")]
        drivers: Drivers,
    },
}

#[derive(Subcommand)]
pub(crate) enum BundleCommand {
    /// Pack this program and every shared object it needs as tar.gz.
    #[command(after_help = "Example:\n  ironwright bundle build --output agent-bundle.tar.gz")]
    Build {
        /// File to write.
        #[arg(long)]
        output: PathBuf,
    },
}

/// An id that control gave to a run or a node; it becomes a part of a URL.
fn parse_id(text: &str) -> Result<String, String> {
    let usable = !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    if usable { Ok(text.to_owned()) } else { Err("an id has only letters, digits and -".to_owned()) }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_grammar_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_that_does_something_has_an_example() {
        fn check(command: &clap::Command) {
            // Lists take nothing, so their usage is their example.
            let plain = command.get_name() == "list";
            let example = command.get_after_help().is_some();
            assert!(command.has_subcommands() || plain || example, "{}", command.get_name());
            command.get_subcommands().filter(|sub| sub.get_name() != "help").for_each(check);
        }
        check(&Cli::command());
    }

    #[test]
    fn ids_are_no_paths() {
        for id in ["../machines", "a b", "", "a/b", "a%2fb"] {
            assert!(Cli::try_parse_from(["ironwright", "runs", "show", id]).is_err(), "{id}");
        }
        assert!(Cli::try_parse_from(["ironwright", "nodes", "show", "n-1"]).is_ok());
    }

    #[test]
    fn secrets_are_not_taken_on_the_command_line() {
        assert!(Cli::try_parse_from(["ironwright", "login", "--url", "u", "--token", "x"]).is_err());
    }
}
