//! A whole Ironwright: control and a site in one namespace, and the machines behind its bridge.

mod api;
mod cli;
mod lab;
mod server;

pub use api::{Event, Failure, ImageRecord, MachineRecord, Node, Progress, Run, Step};
pub use cli::Cli;
pub use server::Server;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, bail};

use self::{
    api::{Initialised, Site},
    lab::Lab,
};
use crate::{
    artifacts::Artifacts,
    machine::{Machine, MachineSpec},
    namespace::{ADDRESS, BRIDGE, Namespace, PREFIX},
    process,
    tpm::{Tpm, TpmMaker},
    wait,
};

/// Name of the site.
const SITE: &str = "lab";
/// Addresses that the site gives to machines.
const POOL: (&str, &str) = ("10.77.0.100", "10.77.0.199");
/// How long the site may take to join and to get its lease.
const SITE_LIMIT: Duration = Duration::from_secs(60);
/// How many audit events are read at most.
const MAX_EVENTS: &str = "1000";

/// Control, a site, and the network they share with the machines.
///
/// Call [`Cluster::pass`] at the end of a test: otherwise dropping it prints the ends of all logs and
/// keeps the folder.
#[derive(Debug)]
pub struct Cluster {
    /// `ironwright control serve`.
    pub control: Server,
    /// `ironwright site run`.
    pub site: Server,
    /// The operator's command line.
    pub cli: Cli,
    artifacts: Artifacts,
    namespace: Arc<Namespace>,
    tpm_maker: TpmMaker,
    lab: Lab,
}

impl Cluster {
    /// Starts control and a site. `name` is part of the folder's name.
    pub fn start(name: &str) -> Result<Self> {
        let artifacts = Artifacts::prepare().context("preparing kernel, ramdisk and bundle")?;
        let lab = Lab::new(name)?;
        let namespace = Arc::new(Namespace::new()?);
        let tpm_maker = TpmMaker::new(&lab.folder("tpm-maker")?)?;
        let cli = Cli::new(&artifacts.ironwright, Arc::clone(&namespace), lab.path().join("client.toml"));

        let dir = lab.path().join("control");
        let initialised = init_control(&cli, &dir, &lab, &tpm_maker)?;
        let serve = ["control", "serve", "--dir", &text(&dir)];
        let mut control =
            Server::new("control", &artifacts.ironwright, &serve, Arc::clone(&namespace), lab.path());
        control.start()?;
        let Initialised { admin_token, ca_pin, api_url } = &initialised;
        let mut login = cli.command(&["login", "--url", api_url, "--ca-pin", ca_pin]);
        process::run_with_input(&mut login, admin_token.as_bytes())?;

        let config = lab.path().join("site.toml");
        let token = lab.path().join("site-token");
        cli.text(&["sites", "add", SITE, "--token-file", &text(&token)])?;
        fs::write(&config, site_config(&lab, &artifacts, &initialised, &token)?)
            .context("writing the site's configuration")?;
        let run = ["site", "run", "--config", &text(&config)];
        let site = Server::new("site", &artifacts.ironwright, &run, Arc::clone(&namespace), lab.path());
        let mut cluster = Self { control, site, cli, artifacts, namespace, tpm_maker, lab };
        cluster.site.start()?;
        cluster.wait_for_lease()?;
        Ok(cluster)
    }

    /// The programs and what was made with them.
    pub fn artifacts(&self) -> &Artifacts {
        &self.artifacts
    }

    /// The folder of everything: logs, disks, control's and the site's state.
    pub fn path(&self) -> &Path {
        self.lab.path()
    }

    /// Puts a machine together, with a TPM of the trusted maker, and enrolls it.
    pub fn add_machine(&self, spec: MachineSpec) -> Result<Machine> {
        self.cli.text(&["machines", "add", &spec.name, "--mac", &spec.mac, "--site", SITE])?;
        let tpm = self.make_tpm(&format!("{}-tpm", spec.name))?;
        let dir = self.lab.path().join(&spec.name);
        Machine::new(spec, &dir, Arc::clone(&self.namespace), Some(tpm))
    }

    /// Another TPM of the maker that control trusts.
    pub fn make_tpm(&self, name: &str) -> Result<Tpm> {
        self.tpm_maker.make_tpm(&self.lab.path().join(name))
    }

    /// A TPM of a maker that control has never heard of.
    pub fn make_foreign_tpm(&self, name: &str) -> Result<Tpm> {
        let dir = self.lab.path().join(name);
        TpmMaker::new(&dir.join("maker"))?.make_tpm(&dir)
    }

    /// Uploads an image and returns its digest.
    pub fn add_image(&self, name: &str, file: &Path) -> Result<String> {
        self.cli.text(&["images", "add", name, "--file", &text(file)])?;
        let image: ImageRecord = self.cli.json(&["images", "show", name])?;
        image.digest.with_context(|| format!("image {name} is {} and has no digest", image.state))
    }

    /// Starts a deploy and returns the run's id. `more` are further words for the command line.
    pub fn deploy(&self, machine: &str, image: &str, more: &[&str]) -> Result<String> {
        let words = [&["deploy", machine, "--image", image][..], more].concat();
        Ok(self.cli.json::<Run>(&words)?.id)
    }

    /// A run as it is now.
    pub fn run(&self, id: &str) -> Result<Run> {
        self.cli.json(&["runs", "show", id])
    }

    /// Waits until a run is as wanted; fails early when it has ended otherwise. Control may be away meanwhile.
    pub fn wait_run(
        &self,
        id: &str,
        what: &str,
        limit: Duration,
        mut wanted: impl FnMut(&Run) -> bool,
    ) -> Result<Run> {
        let mut last = String::new();
        let result = wait::until(what, limit, || {
            let Some(run) = self.cli.json_if_reachable::<Run>(&["runs", "show", id])? else {
                return Ok(None);
            };
            last = run.summary();
            match wanted(&run) {
                true => Ok(Some(run)),
                false if run.is_final() => bail!("the run ended before {what}"),
                false => Ok(None),
            }
        });
        result.with_context(|| last)
    }

    /// Waits until a run has succeeded.
    pub fn wait_success(&self, id: &str, limit: Duration) -> Result<Run> {
        self.wait_run(id, "the run to succeed", limit, |run| run.state == "succeeded")
    }

    /// Waits until a run has failed.
    pub fn wait_failure(&self, id: &str, limit: Duration) -> Result<Run> {
        self.wait_run(id, "the run to fail", limit, |run| run.state == "failed")
    }

    /// Waits until imaging is under way: some of the image is written, and most is not.
    pub fn wait_imaging(&self, id: &str, limit: Duration) -> Result<Run> {
        let run = self.wait_run(id, "imaging to be under way", limit, |run| {
            let step = run.step("image.deploy");
            step.is_final() || step.is_running() && step.percent() >= 10
        })?;
        let step = run.step("image.deploy");
        if step.is_final() || step.percent() > 70 {
            bail!("imaging was over before it could be interrupted\n{}", run.summary());
        }
        Ok(run)
    }

    /// The node of a machine, if it has joined.
    pub fn node(&self, machine: &str) -> Result<Option<Node>> {
        let nodes: Vec<Node> = self.cli.json(&["nodes", "list"])?;
        Ok(nodes.into_iter().find(|node| node.machine.as_deref() == Some(machine)))
    }

    /// What control knows of a machine.
    pub fn machine_record(&self, machine: &str) -> Result<MachineRecord> {
        self.cli.json(&["machines", "show", machine])
    }

    /// The audit log.
    pub fn events(&self) -> Result<Vec<Event>> {
        self.cli.json(&["events", "--limit", MAX_EVENTS])
    }

    /// Waits for an entry of the audit log.
    pub fn wait_event(&self, what: &str, limit: Duration, wanted: impl Fn(&Event) -> bool) -> Result<Event> {
        wait::until(what, limit, || Ok(self.events()?.into_iter().find(|event| wanted(event))))
    }

    /// Waits until the site holds its lease, which it needs to serve anything.
    pub fn wait_for_lease(&self) -> Result<()> {
        wait::until("the site to hold its lease", SITE_LIMIT, || {
            let sites: Vec<Site> = self.cli.json_if_reachable(&["sites", "list"])?.unwrap_or_default();
            Ok(sites.iter().any(|site| site.holder.is_some()).then_some(()))
        })
    }

    /// The file in the site's cache that has this digest.
    pub fn cached_file(&self, digest: &str) -> Result<PathBuf> {
        let hex = digest.strip_prefix("sha256:").context("a digest begins with sha256:")?;
        find_file(&self.lab.path().join("site"), hex)
            .with_context(|| format!("the site has no {digest} in its cache"))
    }

    /// What to type in another terminal in front of a command of `ironwright`.
    pub fn operator_words(&self) -> Vec<String> {
        let mut words = self.namespace.enter_words();
        words.extend(["env".to_owned(), format!("IRONWRIGHT_CONFIG={}", text(self.cli.config()))]);
        words.push(text(&self.artifacts.ironwright));
        words
    }

    /// All went well: the servers are stopped, which they have to do cleanly, and the folder is removed.
    pub fn pass(mut self) -> Result<()> {
        self.site.stop()?;
        self.control.stop()?;
        self.lab.pass();
        Ok(())
    }
}

fn init_control(cli: &Cli, dir: &Path, lab: &Lab, tpm_maker: &TpmMaker) -> Result<Initialised> {
    let roots = lab.path().join("ek-roots.pem");
    fs::write(&roots, tpm_maker.certificates_pem()?).context("writing the TPM maker's certificates")?;
    let (dir, roots) = (text(dir), text(&roots));
    let (api, gateway) = (format!("{ADDRESS}:8443"), format!("{ADDRESS}:9443"));
    cli.json(&[
        "control",
        "init",
        "--dir",
        &dir,
        "--name",
        ADDRESS,
        "--api",
        &api,
        "--gateway",
        &gateway,
        "--ek-roots",
        &roots,
    ])
}

/// The site's configuration: a DHCP server on the bridge, and the artifacts that it serves.
fn site_config(lab: &Lab, artifacts: &Artifacts, control: &Initialised, token: &Path) -> Result<String> {
    let Initialised { api_url, ca_pin, .. } = control;
    let (state, token) = (text(&lab.folder("site")?), text(token));
    let (kernel, ramdisk) = (text(&artifacts.kernel.vmlinuz), text(&artifacts.ramdisk));
    let (bundle, (first, last)) = (text(&artifacts.bundle), POOL);
    Ok(format!(
        r#"control_url = "{api_url}"
ca_pin = "{ca_pin}"
site = "{SITE}"
join_token_file = "{token}"
state_dir = "{state}"
interface = "{BRIDGE}"
address = "{ADDRESS}"
kernel = "{kernel}"
ramdisk = "{ramdisk}"
agent_bundle = "{bundle}"
kernel_args = "console=ttyS0"

[boot_files]
bios = "/usr/lib/ipxe/undionly.kpxe"
x64_uefi = "/usr/lib/ipxe/snponly.efi"

[dhcp]
mode = "server"
range = ["{first}", "{last}"]
prefix = {PREFIX}
"#
    ))
}

fn find_file(folder: &Path, part_of_name: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?;
    entries.flatten().find_map(|entry| {
        let path = entry.path();
        if path.is_dir() {
            find_file(&path, part_of_name)
        } else {
            entry.file_name().to_string_lossy().contains(part_of_name).then_some(path)
        }
    })
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
