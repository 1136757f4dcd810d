//! TPMs: swtpm with an endorsement key certificate from a CA of the rig's own.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};

use crate::{process, process::Process, wait};

/// How long swtpm may take to open its socket.
const START_LIMIT: Duration = Duration::from_secs(20);

/// A manufacturer of TPMs: a root CA and an issuing CA.
#[derive(Debug)]
pub struct TpmMaker {
    dir: PathBuf,
}

impl TpmMaker {
    /// Sets a manufacturer up in a folder of its own.
    pub fn new(dir: &Path) -> Result<Self> {
        let ca = dir.join("ca");
        fs::create_dir_all(&ca).with_context(|| format!("making {}", ca.display()))?;
        let (d, c) = (dir.display(), ca.display());
        write(
            &dir.join("setup.conf"),
            &format!(
                "create_certs_tool = /usr/bin/swtpm_localca\n\
                 create_certs_tool_config = {d}/localca.conf\n\
                 create_certs_tool_options = {d}/localca.options\n\
                 active_pcr_banks = sha256\n"
            ),
        )?;
        write(
            &dir.join("localca.conf"),
            &format!(
                "statedir = {c}\nsigningkey = {c}/signkey.pem\nissuercert = {c}/issuercert.pem\n\
                 certserial = {c}/certserial\n"
            ),
        )?;
        write(
            &dir.join("localca.options"),
            "--platform-manufacturer Ironwright\n--platform-version 1\n--platform-model rig\n",
        )?;
        let maker = Self { dir: dir.to_owned() };
        // The CA comes into being with its first TPM; control wants its certificates before that.
        maker.make_tpm(&dir.join("first"))?;
        Ok(maker)
    }

    /// Makes a TPM whose state lives in `dir`.
    pub fn make_tpm(&self, dir: &Path) -> Result<Tpm> {
        fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
        let mut setup = process::command("swtpm_setup");
        setup.args(["--tpm2", "--create-ek-cert", "--create-platform-cert", "--overwrite"]);
        setup.arg("--config").arg(self.dir.join("setup.conf"));
        setup.arg("--tpmstate").arg(format!("dir://{}", dir.display()));
        setup.arg("--logfile").arg(dir.join("setup.log"));
        process::run(&mut setup)
            .with_context(|| fs::read_to_string(dir.join("setup.log")).unwrap_or_default())
            .context("making a TPM")?;
        Ok(Tpm { dir: dir.to_owned() })
    }

    /// The manufacturer's CA certificates, root and issuing, as PEM.
    pub fn certificates_pem(&self) -> Result<String> {
        ["swtpm-localca-rootca-cert.pem", "issuercert.pem"].into_iter().try_fold(
            String::new(),
            |pem, name| {
                let path = self.dir.join("ca").join(name);
                Ok(pem + &fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?)
            },
        )
    }
}

/// A TPM. Its keys and counters outlive power cuts, as a chip's do.
#[derive(Debug)]
pub struct Tpm {
    dir: PathBuf,
}

impl Tpm {
    /// Gives the chip power. It loses it when the machine's end of [`Tpm::socket`] is closed.
    pub fn power_on(&self) -> Result<Process> {
        let socket = self.socket();
        let _ = fs::remove_file(&socket);
        let mut swtpm = process::command("swtpm");
        swtpm.args(["socket", "--tpm2", "--terminate"]);
        swtpm.arg("--tpmstate").arg(format!("dir={}", self.dir.display()));
        swtpm.arg("--ctrl").arg(format!("type=unixio,path={}", socket.display()));
        let process = Process::start("swtpm", &mut swtpm, &self.dir.join("swtpm.log"))?;
        wait::until("swtpm's socket", START_LIMIT, || Ok(socket.exists().then_some(())))?;
        Ok(process)
    }

    /// Control socket for QEMU.
    pub fn socket(&self) -> PathBuf {
        self.dir.join("ctrl")
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tpm_has_power_more_than_once_and_its_maker_has_two_certificates() {
        let dir = tempfile::tempdir().unwrap();
        let maker = TpmMaker::new(&dir.path().join("maker")).unwrap();
        assert_eq!(maker.certificates_pem().unwrap().matches("BEGIN CERTIFICATE").count(), 2);
        let tpm = maker.make_tpm(&dir.path().join("tpm")).unwrap();
        for _ in 0..2 {
            let mut process = tpm.power_on().unwrap();
            assert!(process.ended().unwrap().is_none());
            process.kill().unwrap();
        }
    }

    #[test]
    fn two_makers_have_different_roots() {
        let dir = tempfile::tempdir().unwrap();
        let pem = |name| TpmMaker::new(&dir.path().join(name)).unwrap().certificates_pem().unwrap();
        assert_ne!(pem("a"), pem("b"));
    }
}
