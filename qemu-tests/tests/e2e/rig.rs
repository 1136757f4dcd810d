//! The rig itself: what the other tests stand on.

use std::sync::Arc;

use anyhow::{Result, ensure};
use ironwright_qemu_tests::{
    image,
    machine::{Machine, MachineSpec, RunStatus},
    namespace::Namespace,
    tpm::TpmMaker,
};

use crate::DEPLOY_LIMIT;

/// The Debian image is whole: it boots by itself under either firmware, and its kernel finds the TPM.
#[test]
fn the_debian_image_boots_under_both_firmwares() -> Result<()> {
    let image = image::debian()?;
    let dir = tempfile::tempdir()?;
    let maker = TpmMaker::new(&dir.path().join("maker"))?;
    let network = Arc::new(Namespace::new()?);
    for spec in [MachineSpec::bios_virtio("bios"), MachineSpec::uefi_nvme("uefi")] {
        let name = spec.name.clone();
        let tpm = maker.make_tpm(&dir.path().join(format!("{name}-tpm")))?;
        let folder = dir.path().join(&name);
        let spec = spec.memory_mib(1024).without_network_boot();
        let mut machine = Machine::new(spec, &folder, Arc::clone(&network), Some(tpm))?;
        machine.load_disk(&image.file)?;
        machine.power_on()?;
        machine.console().wait_for("login:", DEPLOY_LIMIT)?;
        ensure!(machine.console().ever_said("tpm_"), "the kernel of {name} has found no TPM");
        ensure!(machine.qmp()?.status()? == RunStatus::Running, "{name} does not run");
        machine.quit()?;
    }
    Ok(())
}
