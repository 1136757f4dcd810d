//! The site under test, and the test's control.

use std::{
    fs::File,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant, SystemTime},
};

use futures::future::BoxFuture;
use ironwright_agent::{CommandError, Ctx, Executor, Order, link::HeldLease};
use ironwright_proto::{
    Message,
    ids::{Digest, Mac},
    kinds::{BOOT_LOCAL, BOOT_PREPARE},
    wire::{BootLocalArgs, BootPrepareArgs, BootPrepareResult, Lease},
};
use ironwright_site::{Authority, Config, Connection, Report, Signer, Site, Upstream};
use p256::ecdsa::{Signature, SigningKey, signature::Signer as _};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::watch,
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

pub(crate) const DEADLINE: Duration = Duration::from_secs(20);
pub(crate) const MAC: Mac = Mac([0x52, 0x54, 0, 0, 0, 1]);
pub(crate) const EPOCH: u64 = 7;

/// Control's side: key, events, and an upstream that is not there.
pub(crate) struct Control {
    pub(crate) key: SigningKey,
    pub(crate) events: Mutex<Vec<(&'static str, Value)>>,
}

impl Control {
    fn new() -> Arc<Self> {
        Arc::new(Self { key: SigningKey::from_slice(&[7; 32]).unwrap(), events: Mutex::default() })
    }

    pub(crate) fn events(&self, kind: &str) -> Vec<Value> {
        let events = self.events.lock().unwrap();
        events.iter().filter(|(found, _)| *found == kind).map(|(_, json)| json.clone()).collect()
    }
}

impl Signer for Control {
    fn sign(&self, message: &[u8]) -> anyhow::Result<(String, Vec<u8>)> {
        let signature: Signature = self.key.sign(message);
        Ok(("node-of-site".into(), signature.to_der().as_bytes().to_vec()))
    }
}

impl Report for Control {
    fn event(&self, kind: &'static str, json: Value) {
        self.events.lock().unwrap().push((kind, json));
    }
}

impl Upstream for Control {
    fn connect(&self) -> BoxFuture<'_, io::Result<Connection>> {
        Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) })
    }
}

/// A running site in a folder of its own.
pub(crate) struct Rig {
    pub(crate) dir: Arc<tempfile::TempDir>,
    pub(crate) control: Arc<Control>,
    pub(crate) executor: Arc<dyn Executor>,
    pub(crate) http: SocketAddr,
    pub(crate) tftp: SocketAddr,
    lease: watch::Sender<Option<HeldLease>>,
    shutdown: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Rig {
    pub(crate) async fn start() -> Self {
        Self::start_with(None).await
    }

    pub(crate) async fn start_with(upstream: Option<Arc<dyn Upstream>>) -> Self {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        for (name, content) in [("vmlinuz", "kernel"), ("ramdisk", "ramdisk"), ("ipxe.efi", "MZ")] {
            std::fs::write(dir.path().join(name), content).unwrap();
        }
        Self::open(dir, upstream).await
    }

    async fn open(dir: Arc<tempfile::TempDir>, upstream: Option<Arc<dyn Upstream>>) -> Self {
        let site = Site::open(&config(dir.path())).await.unwrap();
        let addresses = site.addresses();
        let control = Control::new();
        let executor = site.executor(upstream.unwrap_or_else(|| control.clone()));
        let (lease, heard) = watch::channel(None);
        let authority = Authority { lease: heard, signer: control.clone(), report: control.clone() };
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(site.run(authority, shutdown.clone()));
        let (http, tftp) = (addresses.http, addresses.tftp);
        Self { dir, control, executor, http, tftp, lease, shutdown, task }
    }

    pub(crate) async fn stop(self) -> Arc<tempfile::TempDir> {
        self.shutdown.cancel();
        tokio::time::timeout(DEADLINE, self.task).await.unwrap().unwrap().unwrap();
        self.dir
    }

    /// Ends the site and starts it again on the same state.
    pub(crate) async fn restart(self) -> Self {
        Self::open(self.stop().await, None).await
    }

    /// Gives the lease; it is over after `ttl`.
    pub(crate) fn give_lease(&self, ttl: Duration) {
        let ttl_ms = u32::try_from(ttl.as_millis()).unwrap();
        let lease = Lease { site: "lab".into(), epoch: EPOCH, ttl_ms };
        self.lease.send_replace(Some(HeldLease { lease, asked: Instant::now() }));
    }

    pub(crate) async fn prepare(&self, args: BootPrepareArgs) -> Result<BootPrepareResult, CommandError> {
        let result = self.command(BOOT_PREPARE, args.encode_to_vec()).await?;
        Ok(BootPrepareResult::decode(result.as_slice()).unwrap())
    }

    pub(crate) async fn local(&self) {
        let args = BootLocalArgs { machine_id: "web-1".into(), mac: MAC.to_string() };
        self.command(BOOT_LOCAL, args.encode_to_vec()).await.unwrap();
    }

    async fn command(&self, kind: &str, args: Vec<u8>) -> Result<Vec<u8>, CommandError> {
        let order = Order { id: "c1".into(), kind: kind.into(), args };
        let (ctx, _progress) = Ctx::detached("c1");
        tokio::time::timeout(DEADLINE * 3, self.executor.run(order, ctx)).await.unwrap()
    }

    /// Status and body of the machine's script.
    pub(crate) async fn script(&self) -> (u16, String) {
        self.get(&format!("/boot/{MAC}/ipxe")).await
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.http).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: site\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        tokio::time::timeout(DEADLINE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// Asks until the answer is as wanted.
    pub(crate) async fn script_until(&self, status: u16) -> String {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let (found, body) = self.script().await;
            if found == status {
                return body;
            }
            assert!(Instant::now() < deadline, "still {found}, wanted {status}");
            tokio::task::yield_now().await;
        }
    }
}

/// The example, in this folder and on loopback.
fn config(dir: &Path) -> Config {
    let path = |name: &str| dir.join(name).display().to_string();
    let text = format!(
        r#"
        control_url = "https://127.0.0.1:1"
        ca_pin = "{pin}"
        site = "lab"
        join_token_file = "{token}"
        state_dir = "{state}"
        address = "127.0.0.1"
        http_port = 0
        tftp_port = 0
        kernel = "{kernel}"
        ramdisk = "{ramdisk}"
        kernel_args = "console=ttyS0"
        boot_files.x64_uefi = "{efi}"
        dhcp.mode = "off"
        "#,
        pin = Digest([9; 32]),
        token = path("token"),
        state = path("state"),
        kernel = path("vmlinuz"),
        ramdisk = path("ramdisk"),
        efi = path("ipxe.efi"),
    );
    Config::from_toml(&text).unwrap()
}

pub(crate) fn prepare_args() -> BootPrepareArgs {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    BootPrepareArgs {
        machine_id: "web-1".into(),
        mac: MAC.to_string(),
        join_token: "t0ken".into(),
        expires_unix_ms: i64::try_from(now.as_millis()).unwrap() + 600_000,
        artifacts: vec![],
        control_url: "https://10.0.0.1:8443".into(),
        ca_pin: Digest([9; 32]).to_string(),
        extra_cmdline: "loglevel=5".into(),
    }
}

/// A folder of blobs, as control has them.
pub(crate) struct Folder(pub(crate) PathBuf);

impl ironwright_pxe::http::Blobs for Folder {
    fn open(&self, digest: &Digest) -> io::Result<Option<(File, u64)>> {
        match File::open(self.0.join(digest.hex())) {
            Ok(file) => {
                let len = file.metadata()?.len();
                Ok(Some((file, len)))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}
