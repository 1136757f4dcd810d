//! The client's memory of a control plane: URL, CA pin and admin token, in a file of mode 0600.

use std::{
    fs,
    io::Write,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use ironwright_proto::ids::Digest;
use serde::{Deserialize, Serialize};

/// How to reach a control plane, and as whom.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClientConfig {
    pub(crate) url: String,
    pub(crate) ca_pin: Digest,
    pub(crate) token: String,
}

impl ClientConfig {
    /// `$IRONWRIGHT_CONFIG`, else `client.toml` in the XDG configuration folder.
    pub(crate) fn path() -> anyhow::Result<PathBuf> {
        if let Some(path) = std::env::var_os("IRONWRIGHT_CONFIG") {
            return Ok(path.into());
        }
        let base = match std::env::var_os("XDG_CONFIG_HOME") {
            Some(dir) => PathBuf::from(dir),
            None => {
                PathBuf::from(std::env::var_os("HOME").context("neither XDG_CONFIG_HOME nor HOME is set")?)
                    .join(".config")
            }
        };
        Ok(base.join("ironwright/client.toml"))
    }

    /// Reads the file that `login` wrote.
    pub(crate) fn load() -> anyhow::Result<Self> {
        let path = Self::path()?;
        let text = fs::read_to_string(&path)
            .with_context(|| format!("reading {}; run `ironwright login` first", path.display()))?;
        let mode = fs::metadata(&path)?.permissions().mode();
        if mode & 0o077 != 0 {
            bail!("{} holds an admin token and is readable by others; chmod it to 0600", path.display());
        }
        toml::from_str(&text).with_context(|| format!("reading {}", path.display()))
    }

    /// Writes the file whole or not at all.
    pub(crate) fn save(&self) -> anyhow::Result<PathBuf> {
        let path = Self::path()?;
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
        let temporary = path.with_extension(format!("new.{}", std::process::id()));
        write_secret(&temporary, &toml::to_string(self)?)?;
        fs::rename(&temporary, &path).with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    }
}

/// Writes a new file that only its owner can read; refuses to replace one.
pub(crate) fn write_secret(path: &Path, text: &str) -> anyhow::Result<()> {
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("making {}", path.display()))?;
    file.write_all(text.as_bytes())?;
    file.sync_all().with_context(|| format!("writing {}", path.display()))
}
