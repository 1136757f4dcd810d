//! `control.toml`, in control's folder: read into a raw form that refuses unknown keys, then checked.

use std::{
    fmt, fs,
    io::Read,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    str::FromStr,
};

use ironwright_tpm::verify::EkRoots;
use rustls_pki_types::DnsName;
use serde::{Deserialize, Serialize};
use url::Url;

/// File of the configuration, in control's folder.
pub(crate) const CONFIG_FILE: &str = "control.toml";
/// What `init` puts in as the roots' place.
pub(crate) const EK_ROOTS_FILE: &str = "ek-roots.pem";

/// Port of the API where the config says nothing.
pub(crate) const DEFAULT_API_PORT: u16 = 8443;
/// Port of the gateway where the config says nothing.
pub(crate) const DEFAULT_GATEWAY_PORT: u16 = 9443;

const MAX_CONFIG_BYTES: u64 = 64 << 10;
const MAX_EK_ROOTS_BYTES: u64 = 8 << 20;
/// Every name is in the server certificate, which every handshake carries.
const MAX_NAMES: usize = 32;
const DEFAULT_IMAGE_BYTES: u64 = 256 << 30;

/// Why the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file that is missing or cannot be read.
    #[error("reading `{path}`")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// Much larger than any sensible one.
    #[error("`{path}` is larger than the {limit} bytes that are read")]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit.
        limit: u64,
    },
    /// Not TOML, an unknown key, or a value of the wrong type. The source names the line and key.
    #[error("reading `{path}`")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where and what.
        #[source]
        source: Box<toml::de::Error>,
    },
    /// A value that cannot be worked with.
    #[error("`{key}` in {CONFIG_FILE}: {why}")]
    Value {
        /// The key.
        key: &'static str,
        /// What is wrong, and what would be right.
        why: String,
    },
}

impl ConfigError {
    fn value(key: &'static str, why: impl fmt::Display) -> Self {
        Self::Value { key, why: why.to_string() }
    }
}

/// A DNS name or an address under which others reach control.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HostName {
    /// A DNS name.
    Dns(String),
    /// An IP address.
    Ip(IpAddr),
}

impl FromStr for HostName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bare = text.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = bare.parse::<IpAddr>() {
            return if address.is_unspecified() {
                Err(format!("`{text}` is not an address that others can reach"))
            } else {
                Ok(Self::Ip(address))
            };
        }
        match DnsName::try_from(text) {
            Ok(name) => Ok(Self::Dns(name.as_ref().to_owned())),
            Err(_) => Err(format!("`{text}` is neither a DNS name nor an IP address")),
        }
    }
}

impl HostName {
    /// `https://HOST:port`.
    pub(crate) fn https(&self, port: u16) -> String {
        format!("https://{self}:{port}")
    }
}

/// As in a URL: an IPv6 address stands in brackets.
impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns(name) => f.write_str(name),
            Self::Ip(IpAddr::V4(address)) => address.fmt(f),
            Self::Ip(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

/// What stands in the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Raw {
    /// DNS names and addresses of this control; the first one is what agents are told.
    pub(crate) names: Vec<String>,
    /// CA certificates of TPM makers: a PEM file or a folder of them, relative to control's folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ek_roots: Option<PathBuf>,
    /// The one folder of control's own disk from which images may be added by file URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) image_folder: Option<PathBuf>,
    #[serde(default)]
    pub(crate) api: RawListener,
    #[serde(default)]
    pub(crate) gateway: RawListener,
    #[serde(default)]
    pub(crate) limits: RawLimits,
}

/// `[api]` and `[gateway]`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawListener {
    /// Address and port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) listen: Option<SocketAddr>,
    /// What agents are told, where it is not `https://NAME:PORT`, e.g. behind a port forwarding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) url: Option<String>,
}

/// `[limits]`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawLimits {
    /// Largest image that is fetched or uploaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) image_bytes: Option<u64>,
}

/// Where a listener listens, and what others are told about it.
#[derive(Debug, Clone)]
pub(crate) struct Listen {
    pub(crate) address: SocketAddr,
    pub(crate) url: Option<String>,
}

/// A checked configuration.
#[derive(Clone)]
pub struct Config {
    dir: PathBuf,
    names: Vec<HostName>,
    ek_roots_pem: String,
    api: Listen,
    gateway: Listen,
    max_image_bytes: u64,
    image_folder: Option<PathBuf>,
}

impl Config {
    /// Reads and checks the `control.toml` of a folder.
    pub fn load(dir: &Path) -> Result<Self, ConfigError> {
        let path = dir.join(CONFIG_FILE);
        let text = read_limited(&path, MAX_CONFIG_BYTES)?;
        let raw: Raw =
            toml::from_str(&text).map_err(|source| ConfigError::Syntax { path, source: Box::new(source) })?;
        Self::check(dir, raw)
    }

    fn check(dir: &Path, raw: Raw) -> Result<Self, ConfigError> {
        Ok(Self {
            dir: dir.to_owned(),
            names: check_names(&raw.names)?,
            ek_roots_pem: raw.ek_roots.map_or(Ok(String::new()), |path| read_ek_roots(&dir.join(path)))?,
            api: check_listener(raw.api, DEFAULT_API_PORT, "api.url")?,
            gateway: check_listener(raw.gateway, DEFAULT_GATEWAY_PORT, "gateway.url")?,
            max_image_bytes: raw.limits.image_bytes.unwrap_or(DEFAULT_IMAGE_BYTES),
            image_folder: raw.image_folder.map(|folder| check_image_folder(dir, &folder)).transpose()?,
        })
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn names(&self) -> &[HostName] {
        &self.names
    }

    pub(crate) fn ek_roots_pem(&self) -> &str {
        &self.ek_roots_pem
    }

    pub(crate) fn api(&self) -> &Listen {
        &self.api
    }

    pub(crate) fn gateway(&self) -> &Listen {
        &self.gateway
    }

    pub(crate) fn max_image_bytes(&self) -> u64 {
        self.max_image_bytes
    }

    pub(crate) fn image_folder(&self) -> Option<&Path> {
        self.image_folder.as_deref()
    }
}

/// Gives the folder without links in its path. Control's own folder, with its keys, cannot be reached from it.
fn check_image_folder(dir: &Path, folder: &Path) -> Result<PathBuf, ConfigError> {
    let key = "image_folder";
    if !folder.is_absolute() {
        return Err(ConfigError::value(key, "expected an absolute path, e.g. /srv/images"));
    }
    let real = |path: &Path| {
        path.canonicalize().map_err(|source| ConfigError::Read { path: path.to_owned(), source })
    };
    let (dir, folder) = (real(dir)?, real(folder)?);
    if !folder.is_dir() {
        return Err(ConfigError::value(key, format!("`{}` is not a folder", folder.display())));
    }
    if dir.starts_with(&folder) || folder.starts_with(&dir) {
        let why = format!("`{}` may neither hold nor be in control's own folder", folder.display());
        return Err(ConfigError::value(key, why));
    }
    Ok(folder)
}

/// Checks the names that go into the server certificate.
pub(crate) fn check_names(names: &[String]) -> Result<Vec<HostName>, ConfigError> {
    if names.is_empty() || names.len() > MAX_NAMES {
        return Err(ConfigError::value(
            "names",
            format!("give 1 to {MAX_NAMES} names or addresses of control"),
        ));
    }
    names.iter().map(|name| name.parse().map_err(|why: String| ConfigError::value("names", why))).collect()
}

fn check_listener(raw: RawListener, port: u16, key: &'static str) -> Result<Listen, ConfigError> {
    if let Some(text) = &raw.url {
        let usable = Url::parse(text).is_ok_and(|url| {
            url.scheme() == "https" && url.has_host() && url.path() == "/" && url.query().is_none()
        });
        if !usable || text.ends_with('/') {
            return Err(ConfigError::value(key, "expected https://host:port without a path"));
        }
    }
    let everywhere = SocketAddr::from(([0u16; 8], port));
    Ok(Listen { address: raw.listen.unwrap_or(everywhere), url: raw.url })
}

/// Reads the certificates of a PEM file, or of all `.pem` files of a folder, and checks that they can be used.
pub(crate) fn read_ek_roots(path: &Path) -> Result<String, ConfigError> {
    let reading = |source| ConfigError::Read { path: path.to_owned(), source };
    let pem = if fs::metadata(path).map_err(reading)?.is_dir() {
        let entries: Result<Vec<_>, _> = fs::read_dir(path).map_err(reading)?.collect();
        let mut files: Vec<PathBuf> =
            entries.map_err(reading)?.into_iter().map(|entry| entry.path()).collect();
        files.retain(|file| file.extension().is_some_and(|extension| extension == "pem"));
        files.sort();
        let mut all = String::new();
        for file in files {
            all.push_str(&read_limited(&file, MAX_EK_ROOTS_BYTES - all.len() as u64)?);
            all.push('\n');
        }
        all
    } else {
        read_limited(path, MAX_EK_ROOTS_BYTES)?
    };
    match EkRoots::from_pem(&pem) {
        Ok(_) => Ok(pem),
        Err(e) => Err(ConfigError::value("ek_roots", format!("`{}`: {e}", path.display()))),
    }
}

fn read_limited(path: &Path, limit: u64) -> Result<String, ConfigError> {
    let reading = |source| ConfigError::Read { path: path.to_owned(), source };
    let mut text = String::new();
    let file = fs::File::open(path).map_err(reading)?;
    let read = file.take(limit + 1).read_to_string(&mut text).map_err(reading)?;
    if read as u64 > limit {
        return Err(ConfigError::TooLarge { path: path.to_owned(), limit });
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<Config, ConfigError> {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(CONFIG_FILE), text).unwrap();
        Config::load(dir.path())
    }

    fn words(error: &dyn std::error::Error) -> String {
        format!("{error}: {}", error.source().map(ToString::to_string).unwrap_or_default())
    }

    #[test]
    fn what_is_not_said_has_a_default() {
        let config = load("names = ['control.example.net']").unwrap();
        assert_eq!(config.api().address, "[::]:8443".parse().unwrap());
        assert_eq!(config.gateway().address, "[::]:9443".parse().unwrap());
        assert_eq!(config.names(), [HostName::Dns("control.example.net".into())]);
    }

    #[test]
    fn an_unknown_key_is_named() {
        for text in ["names = ['a']\nnmaes = 1", "names = ['a']\n[api]\nlisen = '[::]:1'"] {
            let error = words(&load(text).err().unwrap());
            assert!(error.contains("nmaes") || error.contains("lisen"), "{error}");
        }
    }

    #[test]
    fn bad_values_are_refused_with_their_key() {
        for (text, key) in [
            ("names = []", "names"),
            ("names = ['a b']", "names"),
            ("names = ['0.0.0.0']", "names"),
            ("names = ['a']\n[gateway]\nurl = 'https://a:1/'", "gateway.url"),
            ("names = ['a']\n[api]\nurl = 'http://a:1'", "api.url"),
        ] {
            let error = words(&load(text).err().unwrap());
            assert!(error.contains(key), "{text}: {error}");
        }
        assert!(matches!(load("names = ['a']\nek_roots = 'none.pem'"), Err(ConfigError::Read { .. })));
        assert!(matches!(load(&"#".repeat(70_000)), Err(ConfigError::TooLarge { .. })));
    }

    #[test]
    fn an_image_folder_is_apart_from_controls_own() {
        let parent = tempfile::tempdir().unwrap();
        let [control, images] = ["control", "images"].map(|name| parent.path().join(name));
        fs::create_dir_all(control.join("blobs")).unwrap();
        fs::create_dir(&images).unwrap();
        std::os::unix::fs::symlink(&control, parent.path().join("link")).unwrap();
        let load = |folder: &Path| {
            let text = format!("names = ['a']\nimage_folder = '{}'", folder.display());
            fs::write(control.join(CONFIG_FILE), text).unwrap();
            Config::load(&control)
        };
        assert_eq!(load(&images).unwrap().image_folder(), Some(&*images.canonicalize().unwrap()));
        let link = parent.path().join("link");
        for folder in
            [&*control, parent.path(), Path::new("/"), &control.join("blobs"), &link, Path::new("x")]
        {
            let error = words(&load(folder).err().unwrap());
            assert!(error.contains("image_folder"), "{folder:?}: {error}");
        }
        assert!(matches!(load(&parent.path().join("none")), Err(ConfigError::Read { .. })));
    }

    #[test]
    fn an_ipv6_address_stands_in_brackets_in_a_url() {
        assert_eq!("fd00::1".parse::<HostName>().unwrap().https(9443), "https://[fd00::1]:9443");
        assert_eq!("10.0.0.1".parse::<HostName>().unwrap().https(1), "https://10.0.0.1:1");
    }
}
