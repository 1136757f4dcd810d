//! A software TPM with an endorsement certificate from its own manufacturer, in its own folder and ports.

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::fd::OwnedFd,
    process::{Child, Command, Stdio},
    time::Duration,
};

use ironwright_tpm::verify::EkRoots;
use rustls_pki_types::{CertificateDer, pem::PemObject};
use tempfile::TempDir;

/// Starts tried until one finds its port still free.
const MAX_STARTS: u32 = 20;
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Random ports tried until one has a free neighbour.
const MAX_PORT_TRIES: u32 = 100;

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

    /// What control has to trust: root and issuing certificate, which is not in the TPM.
    pub(crate) fn roots(&self) -> EkRoots {
        EkRoots::from_pem(&(self.root_pem() + &self.read("issuercert.pem"))).expect("CA certificates")
    }

    /// The root certificate alone.
    pub(crate) fn root_pem(&self) -> String {
        self.read("swtpm-localca-rootca-cert.pem")
    }

    /// The issuing certificate.
    pub(crate) fn issuer_der(&self) -> Vec<u8> {
        CertificateDer::from_pem_slice(self.read("issuercert.pem").as_bytes())
            .expect("a certificate")
            .to_vec()
    }

    /// A certificate for a P-256 endorsement key, DER.
    pub(crate) fn certify_p256(&self, x: &[u8], y: &[u8]) -> Vec<u8> {
        let at = |name: &str| self.dir.path().join(name);
        let mut cert = Command::new("swtpm_cert");
        cert.args(["--tpm2", "--type", "ek", "--decryption", "--days", "30", "--serial", "77"]);
        cert.args(["--ecc-curveid", "secp256r1", "--ecc-x", &hex::encode(x), "--ecc-y", &hex::encode(y)]);
        cert.args([
            "--tpm-manufacturer",
            "id:00001014",
            "--tpm-model",
            "swtpm",
            "--tpm-version",
            "id:20191023",
        ]);
        cert.args(["--tpm-spec-family", "2.0", "--tpm-spec-level", "0", "--tpm-spec-revision", "164"]);
        cert.arg("--signkey").arg(at("signkey.pem")).arg("--issuercert").arg(at("issuercert.pem"));
        cert.arg("--out-cert").arg(at("p256.der"));
        run(&mut cert);
        fs::read(at("p256.der")).expect("the certificate")
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.dir.path().join(name))
            .expect("a file of the manufacturer, after its first TPM")
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
            let (data, control) = neighbouring_ports();
            let port = data.local_addr().expect("its address").port();
            // Freed for the program; where somebody else is faster, it ends, and other ports are tried.
            drop(data);
            let mut process = spawn(&dir, port, control);
            if answers(port + 1) {
                return Self { process, port, dir };
            }
            let _ = process.kill();
            process.wait().expect("the end of swtpm");
        }
        panic!("swtpm does not start: {}", fs::read_to_string(dir.path().join("log")).unwrap_or_default());
    }

    /// What libtss2 calls it.
    pub(crate) fn tcti(&self) -> String {
        format!("swtpm:host=127.0.0.1,port={}", self.port)
    }

    /// Runs one of tpm2-tools on this TPM, which nobody else may be connected to; gives its output.
    pub(crate) fn tool(&self, args: &[&str]) -> String {
        let mut tool = Command::new("tpm2");
        tool.args(args).current_dir(self.dir.path()).env("TPM2TOOLS_TCTI", self.tcti());
        run(&mut tool)
    }

    /// Sends one command as bytes; what it loads stays loaded.
    pub(crate) fn send(&self, command: &[u8]) {
        fs::write(self.dir.path().join("command"), command).expect("the command");
        self.tool(&["send", "-o", "response", "command"]);
    }

    /// Removes an NV index that the manufacturer made.
    pub(crate) fn undefine(&self, index: &str) {
        self.tool(&["nvundefine", "-Q", "-C", "p", index]);
    }

    /// Makes an NV index with this content.
    pub(crate) fn define(&self, index: &str, content: &[u8]) {
        fs::write(self.dir.path().join("content"), content).expect("the index's content");
        let size = content.len().to_string();
        self.tool(&["nvdefine", "-Q", "-C", "o", "-s", &size, "-a", "ownerwrite|ownerread|authread", index]);
        self.tool(&["nvwrite", "-Q", "-C", "o", "-i", "content", index]);
    }
}

impl Drop for Swtpm {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts the program; it gets its control socket, already listening, as standard input.
fn spawn(dir: &TempDir, port: u16, control: TcpListener) -> Child {
    let at = |name: &str| dir.path().join(name).display().to_string();
    Command::new("swtpm")
        .args(["socket", "--tpm2", "--flags", "not-need-init,startup-clear"])
        .args(["--tpmstate", &format!("dir={}", dir.path().display())])
        .args(["--server", &format!("type=tcp,port={port},bindaddr=127.0.0.1"), "--ctrl", "type=tcp,fd=0"])
        .args(["--log", &format!("file={}", at("log"))])
        .stdin(OwnedFd::from(control))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("swtpm is installed")
}

/// Whether the program on this control port serves; false where it ended. It answers only after it listens
/// for data.
fn answers(control_port: u16) -> bool {
    const CMD_GET_CAPABILITY: [u8; 4] = [0, 0, 0, 1];
    let Ok(mut control) = TcpStream::connect((Ipv4Addr::LOCALHOST, control_port)) else { return false };
    control.set_read_timeout(Some(START_TIMEOUT)).expect("a timeout");
    control.write_all(&CMD_GET_CAPABILITY).is_ok() && control.read_exact(&mut [0; 8]).is_ok()
}

/// libtss2 takes the port after the data port for control.
fn neighbouring_ports() -> (TcpListener, TcpListener) {
    for _ in 0..MAX_PORT_TRIES {
        let data = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = data.local_addr().expect("its address").port();
        let next = port.checked_add(1).map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)));
        if let Some(Ok(control)) = next {
            return (data, control);
        }
    }
    panic!("no two neighbouring ports are free")
}

/// Runs a program to its end and gives its output, or shows what it said where it fails.
fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}
