//! Which accelerator QEMU uses.

use std::{fs, path::Path, sync::OnceLock, time::Duration};

use anyhow::{Result, bail};

use super::spec::{OVMF_CODE, OVMF_VARS};
use crate::{process, process::Process, wait};

/// How long the probe's guest may take; real hardware needs about two seconds.
const PROBE_LIMIT: Duration = Duration::from_secs(12);

/// What runs the guest's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accelerator {
    /// QEMU's own translator.
    Tcg,
    /// The kernel's hypervisor.
    Kvm,
}

impl Accelerator {
    /// KVM where a guest really runs under it, which `/dev/kvm` alone does not show. Probed once.
    pub fn best() -> Self {
        static BEST: OnceLock<Accelerator> = OnceLock::new();
        *BEST.get_or_init(|| if kvm_runs_a_guest().unwrap_or(false) { Self::Kvm } else { Self::Tcg })
    }

    pub(super) fn argument(self) -> &'static str {
        match self {
            Self::Tcg => "tcg,thread=multi",
            Self::Kvm => "kvm",
        }
    }

    pub(super) fn cpu(self) -> &'static str {
        match self {
            Self::Tcg => "max",
            Self::Kvm => "host",
        }
    }
}

/// Lets UEFI firmware run under KVM until it looks for something to boot: by then it has used every CPU mode.
fn kvm_runs_a_guest() -> Result<bool> {
    if !Path::new("/dev/kvm").exists() {
        return Ok(false);
    }
    let dir = tempfile::tempdir()?;
    let file = |name: &str| dir.path().join(name).display().to_string();
    fs::copy(OVMF_VARS, file("vars.fd"))?;
    let mut command = process::command("qemu-system-x86_64");
    command.args(["-nodefaults", "-display", "none", "-machine", "q35", "-m", "256M"]);
    command.args(["-accel", "kvm", "-cpu", "host"]);
    command.args(["-drive", &format!("if=pflash,format=raw,readonly=on,file={OVMF_CODE}")]);
    command.args(["-drive", &format!("if=pflash,format=raw,file={}", file("vars.fd"))]);
    command.args(["-serial", &format!("file:{}", file("serial"))]);
    let mut qemu = Process::start("qemu", &mut command, &dir.path().join("log"))?;
    let reached = wait::until("firmware to run under KVM", PROBE_LIMIT, || {
        if qemu.ended()?.is_some() || qemu.log()?.contains("KVM internal error") {
            bail!("KVM does not run guests here");
        }
        let serial = fs::read(file("serial")).unwrap_or_default();
        Ok(String::from_utf8_lossy(&serial).contains("BdsDxe").then_some(()))
    });
    Ok(reached.is_ok())
}
