//! Emulated machines.

mod accelerator;
mod console;
mod qmp;
mod spec;

pub use accelerator::Accelerator;
pub use console::Console;
pub use qmp::{Qmp, RunStatus};
pub use spec::{DiskBus, Firmware, MachineSpec, NicModel};

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, bail};

use crate::{
    disk::Disk,
    namespace::{Namespace, Tap},
    process::{self, Process},
    tpm::Tpm,
};

/// How long QEMU may take to open its QMP socket, and to end.
const QEMU_LIMIT: Duration = Duration::from_secs(30);

/// A machine: a disk, a TPM and firmware variables that outlive power cuts, and QEMU while it has power.
#[derive(Debug)]
pub struct Machine {
    spec: MachineSpec,
    dir: PathBuf,
    namespace: Arc<Namespace>,
    tap: Tap,
    tpm: Option<Tpm>,
    console: Console,
    power: Option<Power>,
}

/// What exists only while the machine has power. QEMU is dropped first: it holds the TPM's socket.
#[derive(Debug)]
struct Power {
    qmp: Qmp,
    qemu: Process,
    _swtpm: Option<Process>,
}

impl Machine {
    /// Puts a machine together, without power. Its files go to `dir`.
    pub fn new(spec: MachineSpec, dir: &Path, namespace: Arc<Namespace>, tpm: Option<Tpm>) -> Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
        let disk = File::create_new(dir.join("disk.img")).context("making the disk")?;
        disk.set_len(spec.disk_bytes).context("sizing the disk")?;
        if spec.firmware == Firmware::Uefi {
            fs::copy(spec::OVMF_VARS, dir.join("vars.fd")).context("copying the UEFI variables")?;
        }
        let tap = namespace.add_tap()?;
        let console = Console::new(&dir.join("console.log"))?;
        Ok(Self { spec, dir: dir.to_owned(), namespace, tap, tpm, console, power: None })
    }

    /// What it is made of.
    pub fn spec(&self) -> &MachineSpec {
        &self.spec
    }

    /// The port that it is plugged into.
    pub fn tap(&self) -> &Tap {
        &self.tap
    }

    /// Its serial console.
    pub fn console(&mut self) -> &mut Console {
        &mut self.console
    }

    /// Its disk, as bytes.
    pub fn disk(&self) -> Result<Disk> {
        Disk::open(&self.disk_path())
    }

    /// File of its disk.
    pub fn disk_path(&self) -> PathBuf {
        self.dir.join("disk.img")
    }

    /// Puts a compressed image on the disk without any help of the machine, which must have no power.
    pub fn load_disk(&self, zstd_image: &Path) -> Result<()> {
        if self.power.is_some() {
            bail!("{} has power", self.spec.name);
        }
        let mut zstd = process::command("zstd");
        zstd.args(["--quiet", "--decompress", "--force", "--sparse"]).arg(zstd_image);
        process::run(zstd.arg("-o").arg(self.disk_path()))?;
        let disk = File::options().write(true).open(self.disk_path()).context("opening the disk")?;
        disk.set_len(self.spec.disk_bytes).context("sizing the disk")
    }

    /// The power button of a machine that is off, or the plug put back.
    pub fn power_on(&mut self) -> Result<()> {
        if self.power.is_some() {
            bail!("{} already has power", self.spec.name);
        }
        let swtpm = self.tpm.as_ref().map(Tpm::power_on).transpose()?;
        let qmp_socket = self.dir.join("qmp");
        let _ = fs::remove_file(&qmp_socket);
        let mut command = self.namespace.command("qemu-system-x86_64");
        command.args(self.spec.arguments(&spec::Wiring {
            dir: &self.dir,
            tap: &self.tap.name,
            tpm_socket: self.tpm.as_ref().map(Tpm::socket).as_deref(),
            qmp_socket: &qmp_socket,
            accelerator: Accelerator::best(),
        }));
        let mut qemu = Process::start_piped("qemu", &mut command, &self.dir.join("qemu.log"))?;
        self.console.follow(qemu.take_stdout().context("QEMU has no standard output")?);
        let qmp = Qmp::connect(&qmp_socket, QEMU_LIMIT)
            .with_context(|| format!("starting QEMU: {}", qemu.log().unwrap_or_default()))?;
        self.power = Some(Power { qmp, qemu, _swtpm: swtpm });
        Ok(())
    }

    /// Pulls the plug.
    pub fn power_off(&mut self) -> Result<()> {
        match self.power.take() {
            Some(mut power) => power.qemu.kill(),
            None => bail!("{} has no power", self.spec.name),
        }
    }

    /// Presses the power button of a running machine (ACPI).
    pub fn press_power_button(&mut self) -> Result<()> {
        self.qmp()?.execute("system_powerdown").map(drop)
    }

    /// Presses the reset button.
    pub fn reset(&mut self) -> Result<()> {
        self.qmp()?.execute("system_reset").map(drop)
    }

    /// Lets QEMU end by itself, with everything flushed.
    pub fn quit(&mut self) -> Result<()> {
        let mut power = self.power.take().with_context(|| format!("{} has no power", self.spec.name))?;
        // QEMU may close the socket before it answers.
        let _ = power.qmp.execute("quit");
        crate::wait::until("QEMU to end", QEMU_LIMIT, || power.qemu.ended()).map(drop)
    }

    /// The monitor; only while the machine has power.
    pub fn qmp(&mut self) -> Result<&mut Qmp> {
        let name = &self.spec.name;
        Ok(&mut self.power.as_mut().with_context(|| format!("{name} has no power"))?.qmp)
    }

    /// Bytes that the guest has written to its disk since power on; zeroing counts as writing.
    pub fn disk_bytes_written(&mut self) -> Result<u64> {
        self.qmp()?.bytes_written(spec::DRIVE)
    }

    /// Bytes that the network has sent to the machine, over all its power cycles.
    pub fn bytes_received(&self) -> Result<u64> {
        self.namespace.bytes_sent(&self.tap)
    }

    /// Slows the network towards the machine, so that an image takes a while. See [`Namespace::limit_rate`].
    pub fn limit_network(&self, megabits_per_s: u32) -> Result<()> {
        self.namespace.limit_rate(&self.tap, megabits_per_s)
    }

    /// Undoes [`Machine::limit_network`].
    pub fn unlimit_network(&self) -> Result<()> {
        self.namespace.unlimit_rate(&self.tap)
    }

    /// Solders another TPM onto the board; the machine must have no power.
    pub fn replace_tpm(&mut self, tpm: Tpm) -> Result<()> {
        if self.power.is_some() {
            bail!("{} has power", self.spec.name);
        }
        self.tpm = Some(tpm);
        Ok(())
    }
}
