//! `agent.toml`: who the machine is and where control is.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use ironwright_proto::{
    ids::{Digest, Mac, Name},
    kinds::Role,
};
use serde::Deserialize;

const MAX_FILE: u64 = 64 * 1024;
const MAX_TOKEN: usize = 128;
const DEFAULT_TCTI: &str = "device:/dev/tpmrm0";
const DEFAULT_STATE_DIR: &str = "/var/lib/ironwright/agent";

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file, or the token's file.
    #[error("reading {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// It is too long to be one.
    #[error("{0} is longer than {MAX_FILE} bytes")]
    TooLong(PathBuf),
    /// Others can read the token.
    #[error("{path} has mode {mode:o}, but holds a join token; only its owner may read it (mode 600)")]
    TooOpen {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Not TOML, an unknown key, or a key that is missing.
    #[error("the agent's configuration")]
    Syntax(#[source] Box<toml::de::Error>),
    /// A value that cannot be right.
    #[error("`{key}` in the agent's configuration: {why}")]
    Value {
        /// The key.
        key: &'static str,
        /// What is wrong with it.
        why: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    control_url: String,
    ca_pin: Digest,
    machine_id: Name,
    mac: Option<Mac>,
    state_dir: Option<PathBuf>,
    join_token: Option<String>,
    join_token_file: Option<PathBuf>,
    tcti: Option<String>,
    role: Option<String>,
}

/// A checked configuration.
///
/// ```toml
/// control_url = "https://10.0.0.1:8443"
/// ca_pin = "sha256:…"           # of control's CA certificate (DER)
/// machine_id = "web-1"
/// mac = "52:54:00:12:34:56"     # of the interface that control knows; default: the machine's first
/// state_dir = "/var/lib/ironwright/agent"
/// tcti = "device:/dev/tpmrm0"
/// # Only on a machine that may join without a TPM; it then does. Needs mode 600.
/// join_token = "…"              # or join_token_file = "…"
/// role = "node"
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Config {
    pub(super) control_url: String,
    pub(super) ca_pin: Digest,
    pub(super) machine_id: Name,
    pub(super) mac: Option<Mac>,
    pub(super) state_dir: PathBuf,
    pub(super) join_token: Option<String>,
    pub(super) tcti: String,
    pub(super) role: Role,
}

/// The token is not shown.
impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Config({} of {})", self.machine_id, self.control_url)
    }
}

impl Config {
    /// Reads and checks a file.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let (text, mode) = read(path)?;
        let raw = parse_raw(&text)?;
        if raw.join_token.is_some() && mode & 0o077 != 0 {
            return Err(ConfigError::TooOpen { path: path.to_owned(), mode });
        }
        raw.try_into()
    }

    /// Checks a text.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        parse_raw(text)?.try_into()
    }

    /// The interface that control knows the machine by, where the file names it.
    pub fn mac(&self) -> Option<Mac> {
        self.mac
    }
}

fn parse_raw(text: &str) -> Result<Raw, ConfigError> {
    toml::from_str(text).map_err(|err| ConfigError::Syntax(Box::new(err)))
}

impl TryFrom<Raw> for Config {
    type Error = ConfigError;

    fn try_from(raw: Raw) -> Result<Self, ConfigError> {
        let bad = |key, why: &str| ConfigError::Value { key, why: why.to_owned() };
        if !raw.control_url.starts_with("https://") || raw.control_url.ends_with('/') {
            return Err(bad("control_url", "expected https://host:port without a path"));
        }
        let join_token = match (raw.join_token, raw.join_token_file) {
            (Some(_), Some(_)) => return Err(bad("join_token", "there is a join_token_file too")),
            (None, Some(path)) => Some(read_token(&path)?),
            (token, None) => token,
        };
        if let Some(token) = &join_token {
            let plain = token.bytes().all(|b| b.is_ascii_graphic());
            if token.is_empty() || token.len() > MAX_TOKEN || !plain {
                return Err(bad("join_token", "expected 1 to 128 printable characters"));
            }
        }
        let role = match raw.role.as_deref() {
            None | Some("node") => Role::Node,
            Some(_) => return Err(bad("role", "expected `node`")),
        };
        Ok(Self {
            control_url: raw.control_url,
            ca_pin: raw.ca_pin,
            machine_id: raw.machine_id,
            mac: raw.mac,
            state_dir: raw.state_dir.unwrap_or_else(|| DEFAULT_STATE_DIR.into()),
            join_token,
            tcti: raw.tcti.unwrap_or_else(|| DEFAULT_TCTI.to_owned()),
            role,
        })
    }
}

fn read_token(path: &Path) -> Result<String, ConfigError> {
    let (text, mode) = read(path)?;
    if mode & 0o077 != 0 {
        return Err(ConfigError::TooOpen { path: path.to_owned(), mode });
    }
    Ok(text.trim().to_owned())
}

/// A file's text and its permission bits.
fn read(path: &Path) -> Result<(String, u32), ConfigError> {
    let failed = |source| ConfigError::File { path: path.to_owned(), source };
    let file = fs::File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.mode() & 0o7777;
    let mut text = String::new();
    let mut limited = io::Read::take(file, MAX_FILE + 1);
    io::Read::read_to_string(&mut limited, &mut text).map_err(failed)?;
    if text.len() as u64 > MAX_FILE {
        return Err(ConfigError::TooLong(path.to_owned()));
    }
    Ok((text, mode))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const PIN: &str = "sha256:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

    fn minimal() -> String {
        format!("control_url = \"https://10.0.0.1:8443\"\nca_pin = \"{PIN}\"\nmachine_id = \"web-1\"\n")
    }

    #[test]
    fn a_minimal_configuration_joins_by_tpm() {
        let config = Config::parse(&minimal()).unwrap();
        assert_eq!(config.tcti, "device:/dev/tpmrm0");
        assert_eq!((config.join_token, config.role), (None, Role::Node));
        assert_eq!(config.state_dir, Path::new("/var/lib/ironwright/agent"));
    }

    #[test]
    fn an_unknown_key_is_named() {
        let err = Config::parse(&format!("{}colour = \"red\"", minimal())).unwrap_err();
        let ConfigError::Syntax(source) = err else { panic!("{err}") };
        assert!(source.to_string().contains("colour"), "{source}");
    }

    #[test]
    fn wrong_values_are_named() {
        for (from, to, key) in [
            ("https://10.0.0.1:8443", "http://10.0.0.1", "control_url"),
            ("machine_id", "role = \"king\"\nmachine_id", "role"),
            ("machine_id", "join_token = \"\"\nmachine_id", "join_token"),
            ("machine_id", "join_token = \"a b\"\nmachine_id", "join_token"),
        ] {
            let err = Config::parse(&minimal().replace(from, to)).unwrap_err();
            assert!(matches!(err, ConfigError::Value { key: k, .. } if k == key), "{err}");
        }
        for (from, to) in [("sha256:00", "sha256:zz"), ("web-1", "Web_1"), ("ca_pin", "pin")] {
            let err = Config::parse(&minimal().replace(from, to)).unwrap_err();
            assert!(matches!(err, ConfigError::Syntax(_)), "{err}");
        }
    }

    #[test]
    fn a_token_that_others_can_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.toml");
        fs::write(&path, format!("{}join_token = \"s3cret\"\n", minimal())).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(Config::load(&path), Err(ConfigError::TooOpen { mode: 0o644, .. })));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let config = Config::load(&path).unwrap();
        assert_eq!(config.join_token.as_deref(), Some("s3cret"));
        assert!(!format!("{config:?}").contains("s3cret"));

        let token = dir.path().join("token");
        fs::write(&token, "from-file\n").unwrap();
        fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, format!("{}join_token_file = {token:?}\n", minimal())).unwrap();
        assert_eq!(Config::load(&path).unwrap().join_token.as_deref(), Some("from-file"));
    }

    #[test]
    fn an_endless_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.toml");
        fs::write(&path, "#".repeat(70_000)).unwrap();
        assert!(matches!(Config::load(&path), Err(ConfigError::TooLong(_))));
    }
}
