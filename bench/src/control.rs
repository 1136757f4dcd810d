//! The control process, and a folder for it in which a fleet has joined already.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use ironwright_control::{
    InitOptions,
    testing::{JoinedNode, join_fleet},
};
use ironwright_proto::ids::Digest;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    net::TcpStream,
    process::{Child, Command},
};

/// How long control has to listen, or to end.
const LIMIT: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A folder of control.
pub(crate) struct Prepared {
    dir: PathBuf,
    api: SocketAddr,
    token: String,
    ca_pin: Digest,
}

/// A running control.
pub(crate) struct Control {
    prepared: Prepared,
    process: Child,
}

/// Makes a folder, and the nodes.
pub(crate) async fn prepare(dir: &Path, nodes: usize) -> Result<(Prepared, Vec<JoinedNode>)> {
    let dir = dir.join("control");
    let (api, gateway) = (free_address()?, free_address()?);
    tokio::task::spawn_blocking(move || {
        let options = InitOptions {
            names: vec!["127.0.0.1".to_owned()],
            api: Some(api),
            gateway: Some(gateway),
            ek_roots: None,
        };
        let made = ironwright_control::init(&dir, options).context("making control's folder")?;
        let fleet = join_fleet(&dir, nodes, &format!("https://{gateway}")).context("joining the fleet")?;
        let token = made.admin_token.as_str().to_owned();
        Ok((Prepared { dir, api, token, ca_pin: made.ca_pin }, fleet))
    })
    .await?
}

/// A port of loopback that was free a moment ago.
fn free_address() -> Result<SocketAddr> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0").context("finding a free port")?.local_addr()?)
}

impl Prepared {
    /// Starts the process and waits until it listens.
    pub(crate) async fn start(self, program: &Path) -> Result<Control> {
        let mut process = Command::new(program)
            .args(["control", "serve", "--dir"])
            .arg(&self.dir)
            .env("RUST_LOG", "error")
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        let end = Instant::now() + LIMIT;
        while TcpStream::connect(self.api).await.is_err() {
            if let Some(status) = process.try_wait()? {
                bail!("control ended with {status}");
            }
            ensure!(Instant::now() < end, "control does not listen on {}", self.api);
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(Control { prepared: self, process })
    }
}

impl Control {
    pub(crate) const fn api(&self) -> SocketAddr {
        self.prepared.api
    }

    pub(crate) fn token(&self) -> &str {
        &self.prepared.token
    }

    pub(crate) const fn ca_pin(&self) -> Digest {
        self.prepared.ca_pin
    }

    fn pid(&self) -> Result<u32> {
        self.process.id().context("control has ended")
    }

    /// Resident memory.
    pub(crate) fn memory_bytes(&self) -> Result<u64> {
        let path = format!("/proc/{}/status", self.pid()?);
        let status = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().context("reading VmRSS")?;
        Ok(kib * 1024)
    }

    /// SIGKILL, and a new process on the same folder.
    pub(crate) async fn kill_and_start(mut self, program: &Path) -> Result<Self> {
        self.process.kill().await.context("killing control")?;
        self.prepared.start(program).await
    }

    /// SIGTERM.
    pub(crate) async fn stop(mut self) -> Result<()> {
        let pid = i32::try_from(self.pid()?).context("an odd process id")?;
        kill(Pid::from_raw(pid), Signal::SIGTERM).context("ending control")?;
        tokio::time::timeout(LIMIT, self.process.wait()).await.context("control does not end")??;
        Ok(())
    }
}
