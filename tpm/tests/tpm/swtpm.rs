//! A software TPM with an endorsement certificate from its own manufacturer, in its own folder and ports.

use std::{
    fs,
    io::Read,
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

/// Two neighbouring free ports may be taken between looking and starting.
const MAX_STARTS: u32 = 20;
const START_DEADLINE: Duration = Duration::from_secs(20);

/// A certificate authority as TPM manufacturers have one: a root, and the key that signs certificates.
pub(crate) struct Manufacturer {
    dir: TempDir,
}

impl Manufacturer {
    /// The authority is made with the first TPM.
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder for the manufacturer");
        let at = |name: &str| dir.path().join(name).display().to_string();
        let authority = format!(
            "statedir = {}\nsigningkey = {}\nissuercert = {}\ncertserial = {}\n",
            at(""),
            at("signkey.pem"),
            at("issuercert.pem"),
            at("certserial")
        );
        let setup = format!(
            "create_certs_tool = /usr/bin/swtpm_localca\ncreate_certs_tool_config = {}\n\
             create_certs_tool_options = {}\nactive_pcr_banks = sha256\n",
            at("localca.conf"),
            at("localca.options")
        );
        let options = "--platform-manufacturer Ironwright\n--platform-version 1.0\n--platform-model Test\n";
        for (name, content) in
            [("localca.conf", authority.as_str()), ("localca.options", options), ("setup.conf", &setup)]
        {
            fs::write(dir.path().join(name), content).expect("the manufacturer's configuration");
        }
        Self { dir }
    }

    /// Makes a TPM with this manufacturer's certificates and starts it.
    pub(crate) fn make(&self) -> Swtpm {
        let dir = tempfile::tempdir().expect("a folder for the TPM");
        let mut setup = Command::new("swtpm_setup");
        setup.args(["--tpm2", "--createek", "--create-ek-cert", "--pcr-banks", "sha256", "--overwrite"]);
        setup.arg("--config").arg(self.dir.path().join("setup.conf"));
        // Three slashes: swtpm 0.7 takes no other form.
        setup.arg("--tpmstate").arg(format!("dir://{}", dir.path().display()));
        run(&mut setup);
        Swtpm::start(dir)
    }

    /// The PEM of the certificates that control has to trust.
    pub(crate) fn roots(&self) -> String {
        let read =
            |name: &str| fs::read_to_string(self.dir.path().join(name)).expect("the manufacturer's CA");
        read("swtpm-localca-rootca-cert.pem")
    }

    /// The issuing certificate, which is not in the TPM's NV.
    pub(crate) fn issuer(&self) -> String {
        fs::read_to_string(self.issuer_path()).expect("the manufacturer's issuing certificate")
    }

    /// Certificate and key that sign endorsement certificates.
    pub(crate) fn issuer_path(&self) -> PathBuf {
        self.dir.path().join("issuercert.pem")
    }

    pub(crate) fn issuer_key_path(&self) -> PathBuf {
        self.dir.path().join("signkey.pem")
    }
}

/// A running TPM; stopped and forgotten when dropped.
pub(crate) struct Swtpm {
    process: Child,
    port: u16,
    dir: TempDir,
}

impl Swtpm {
    fn start(dir: TempDir) -> Self {
        for _ in 0..MAX_STARTS {
            let port = free_port_pair();
            let mut process = spawn(dir.path(), port);
            if listens(&mut process, port + 1) {
                return Self { process, port, dir };
            }
            let _ = process.wait();
        }
        panic!("swtpm does not start: {}", fs::read_to_string(dir.path().join("log")).unwrap_or_default());
    }

    /// What libtss2 calls it.
    pub(crate) fn tcti(&self) -> String {
        format!("swtpm:host=127.0.0.1,port={}", self.port)
    }

    /// Runs one of tpm2-tools on this TPM, which nobody else may be connected to.
    pub(crate) fn tool(&self, args: &[&str]) {
        let mut tool = Command::new("tpm2");
        tool.args(args).current_dir(self.dir.path()).env("TPM2TOOLS_TCTI", self.tcti());
        run(&mut tool);
    }

    /// A file in the TPM's folder, where [`Self::tool`] runs.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

impl Drop for Swtpm {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn spawn(dir: &Path, port: u16) -> Child {
    Command::new("swtpm")
        .args(["socket", "--tpm2", "--flags", "not-need-init,startup-clear"])
        .arg("--tpmstate")
        .arg(format!("dir={}", dir.display()))
        .arg("--server")
        .arg(format!("type=tcp,port={port},bindaddr=127.0.0.1"))
        .arg("--ctrl")
        .arg(format!("type=tcp,port={},bindaddr=127.0.0.1", port + 1))
        .arg("--log")
        .arg(format!("file={}", dir.join("log").display()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("swtpm is installed")
}

/// Waits until `process` listens on its control port; false where it ended instead.
fn listens(process: &mut Child, control_port: u16) -> bool {
    let deadline = Instant::now() + START_DEADLINE;
    while Instant::now() < deadline {
        if process.try_wait().expect("swtpm's state").is_some() {
            return false;
        }
        if TcpStream::connect((Ipv4Addr::LOCALHOST, control_port)).is_ok() {
            return true;
        }
        std::thread::yield_now();
    }
    let _ = process.kill();
    false
}

/// libtss2 takes the port after the data port for control.
fn free_port_pair() -> u16 {
    loop {
        let first = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = first.local_addr().expect("its address").port();
        if port < u16::MAX && TcpListener::bind((Ipv4Addr::LOCALHOST, port + 1)).is_ok() {
            return port;
        }
    }
}

/// Runs a program to its end and shows what it said where it fails.
pub(crate) fn run(command: &mut Command) {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut said = String::new();
    let _ = child.stderr.take().expect("it is piped").read_to_string(&mut said);
    let status = child.wait().expect("its end");
    assert!(status.success(), "{command:?}: {said}");
}
