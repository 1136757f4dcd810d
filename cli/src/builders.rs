//! Commands that make something on this machine: a control folder, an initramfs, an agent bundle.

use std::{
    fs::{self, File},
    io::{BufWriter, Read, Write},
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use ironwright_images::{bundle, kernel, modules::DriverSet, ramdisk};
use ironwright_proto::ids::Digest;
use serde_json::json;
use sha2::Digest as _;

use crate::{
    args::{BundleCommand, Drivers, RamdiskCommand},
    output,
};

/// libtss2 opens the TPM's transport by name at run time, so no ELF header mentions it.
const TPM_TRANSPORT: &str = "libtss2-tcti-device.so.0";

pub(crate) fn control_init(
    dir: &Path,
    names: Vec<String>,
    api: SocketAddr,
    gateway: SocketAddr,
    ek_roots: Option<PathBuf>,
    json: bool,
) -> anyhow::Result<()> {
    let options = ironwright_control::InitOptions { names, api: Some(api), gateway: Some(gateway), ek_roots };
    let made = ironwright_control::init(dir, options)?;
    if json {
        return output::json(&json!({
            "admin_token": made.admin_token.as_str(),
            "ca_pin": made.ca_pin,
            "api_url": made.api_url,
        }));
    }
    output::line(&format!("control made in {}", dir.display()))?;
    output::text(&output::fields(&[
        ("API", made.api_url.clone()),
        ("CA pin", made.ca_pin.to_string()),
        ("admin token", made.admin_token.as_str().to_owned()),
    ]))?;
    output::line("\nThe token is shown this once. Next:")?;
    output::line(&format!("  ironwright control serve --dir {}", dir.display()))?;
    output::line(&format!("  ironwright login --url {} --ca-pin {}", made.api_url, made.ca_pin))?;
    Ok(())
}

pub(crate) fn ramdisk(command: RamdiskCommand, json: bool) -> anyhow::Result<()> {
    let RamdiskCommand::Build { kernel, modules, init, output, drivers } = command;
    let release = kernel_release(&kernel)?;
    if modules.file_name().and_then(|name| name.to_str()) != Some(&release) {
        bail!("{} is for another kernel than {}, which is {release}", modules.display(), kernel.display());
    }
    let spec = ramdisk::RamdiskSpec {
        init: init.map_or_else(beside_this_program, Ok)?,
        modules_dir: modules,
        drivers: match drivers {
            Drivers::Vm => DriverSet::Vm,
            Drivers::Full => DriverSet::Full,
        },
        extra_modules: Vec::new(),
        extra_libraries: vec![TPM_TRANSPORT.to_owned()],
        level: ramdisk::DEFAULT_LEVEL,
    };
    let (report, digest) = write_whole(&output, |file| Ok(ramdisk::build(&spec, file)?))?;
    if json {
        return output::json(&json!({
            "digest": digest, "kernel": report.kernel, "size_bytes": report.compressed,
            "unpacked_bytes": report.unpacked, "modules": report.modules, "module_bytes": report.module_bytes,
            "libraries": report.libraries, "missing": report.missing,
        }));
    }
    output::text(&output::fields(&[
        ("ramdisk", output.display().to_string()),
        ("digest", digest.to_string()),
        ("kernel", report.kernel),
        ("size", format!("{} ({} unpacked)", output::size(report.compressed), output::size(report.unpacked))),
        ("modules", format!("{} ({})", report.modules, output::size(report.module_bytes))),
        ("shared objects", report.libraries.to_string()),
    ]))?;
    Ok(())
}

pub(crate) fn bundle(command: &BundleCommand, json: bool) -> anyhow::Result<()> {
    let BundleCommand::Build { output } = command;
    let program = std::env::current_exe().context("finding this program's own file")?;
    let (bundled, digest) =
        write_whole(output, |file| Ok(bundle::build(&program, "ironwright", &[TPM_TRANSPORT], file)?))?;
    let size = fs::metadata(output)?.len();
    if json {
        return output::json(&json!({
            "digest": digest, "size_bytes": size, "files": bundled.files, "unpacked_bytes": bundled.bytes,
        }));
    }
    output::text(&output::fields(&[
        ("bundle", output.display().to_string()),
        ("digest", digest.to_string()),
        ("size", format!("{} ({} unpacked)", output::size(size), output::size(bundled.bytes))),
        ("files", bundled.files.to_string()),
    ]))?;
    Ok(())
}

fn kernel_release(path: &Path) -> anyhow::Result<String> {
    let reading = || format!("reading the kernel {}", path.display());
    let mut head = Vec::new();
    let limit = kernel::HEAD_LEN as u64;
    File::open(path).and_then(|file| file.take(limit).read_to_end(&mut head)).with_context(reading)?;
    kernel::release(&head).with_context(reading)
}

fn beside_this_program() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe().context("finding this program's own file")?;
    let init = program.with_file_name("ironwright-ramdisk");
    if !init.exists() {
        bail!("there is no {}; name the ironwright-ramdisk binary with --init", init.display());
    }
    Ok(init)
}

/// Writes a file beside its place, then moves it there; returns the digest of its bytes.
fn write_whole<T>(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<File>) -> anyhow::Result<T>,
) -> anyhow::Result<(T, Digest)> {
    let writing = || format!("writing {}", path.display());
    let temporary = path.with_extension(format!("new.{}", std::process::id()));
    let result = (|| -> anyhow::Result<(T, Digest)> {
        let mut file = BufWriter::new(File::create(&temporary)?);
        let value = fill(&mut file)?;
        file.flush()?;
        file.get_ref().sync_all()?;
        let mut hasher = sha2::Sha256::new();
        std::io::copy(&mut File::open(&temporary)?, &mut hasher)?;
        fs::rename(&temporary, path)?;
        Ok((value, Digest(hasher.finalize().into())))
    })();
    if result.is_err() {
        // Nothing half-written stays; the first error is the one to tell.
        let _ = fs::remove_file(&temporary);
    }
    result.with_context(writing)
}
