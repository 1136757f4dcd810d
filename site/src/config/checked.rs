//! The checked configuration.

use std::{
    fs, io,
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use ironwright_proto::ids::{Digest, Name};
use ironwright_pxe::{
    dhcp::{BootFiles, Config as DhcpConfig, Mode, Pool, PoolError, Subnet},
    files::{self, FilesError},
    ipxe::{self, ScriptError},
};

use super::raw::{Raw, RawDhcp};

/// Largest configuration file.
const MAX_FILE: u64 = 64 * 1024;
/// Most resolvers that clients are told of.
const MAX_DNS: usize = 4;
/// Shortest and longest time an address is granted for.
const LEASE_S: std::ops::RangeInclusive<u32> = 120..=7 * 86_400;
/// Longest words for the kernel: with boot parameters they must fit its command line.
const MAX_KERNEL_ARGS: usize = 512;
/// `IFNAMSIZ` of Linux, less the NUL.
const MAX_INTERFACE: usize = 15;

/// Why a configuration is refused. The message names the key.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Not readable.
    #[error("cannot read the configuration {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Not TOML, an unknown or missing key, or a value of the wrong form.
    #[error("the configuration is not valid")]
    Syntax(#[from] toml::de::Error),
    /// A value that makes no sense.
    #[error("configuration key `{key}`: {why}")]
    Value {
        /// The key.
        key: &'static str,
        /// What is wrong.
        why: String,
    },
    /// `dhcp.range`.
    #[error("configuration key `dhcp.range`")]
    Pool(#[from] PoolError),
    /// `boot_files`.
    #[error("configuration key `boot_files`")]
    BootFiles(#[from] FilesError),
    /// `kernel_args`.
    #[error("configuration key `kernel_args`")]
    KernelArgs(#[source] ScriptError),
}

/// What we do about DHCP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dhcp {
    /// We give addresses.
    Server(Subnet),
    /// We add boot options to another server's offers.
    Proxy,
    /// Nothing.
    Off,
}

/// A checked configuration.
#[derive(Debug, Clone)]
pub struct Config {
    pub(crate) control_url: String,
    pub(crate) ca_pin: Digest,
    pub(crate) site: Name,
    pub(crate) join_token_file: PathBuf,
    pub(crate) state_dir: PathBuf,
    pub(crate) interface: Option<String>,
    pub(crate) address: Ipv4Addr,
    pub(crate) http_port: u16,
    pub(crate) tftp_port: u16,
    pub(crate) kernel: PathBuf,
    pub(crate) ramdisk: PathBuf,
    pub(crate) agent_bundle: Option<PathBuf>,
    pub(crate) kernel_args: String,
    pub(crate) bios: Option<PathBuf>,
    pub(crate) x64_uefi: Option<PathBuf>,
    pub(crate) arm64_uefi: Option<PathBuf>,
    pub(crate) dhcp: Dhcp,
}

impl Config {
    /// Reads and checks a file.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let read = |source| ConfigError::Read { path: path.to_owned(), source };
        let file = fs::File::open(path).map_err(read)?;
        let text = io::read_to_string(io::Read::take(file, MAX_FILE)).map_err(read)?;
        Self::from_toml(&text)
    }

    /// Checks a configuration.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        toml::from_str::<Raw>(text)?.try_into()
    }

    /// A commented example, which is also a valid configuration.
    pub fn example() -> &'static str {
        super::EXAMPLE
    }

    /// All boot files, in no particular order.
    pub(crate) fn boot_files(&self) -> impl Iterator<Item = &Path> {
        [&self.bios, &self.x64_uefi, &self.arm64_uefi].into_iter().filter_map(|path| path.as_deref())
    }

    /// What DHCP tells clients; `None` where we leave it to others.
    pub(crate) fn dhcp(&self, http_port: u16) -> Result<Option<DhcpConfig>, FilesError> {
        let name = |path: &Option<PathBuf>| -> Result<Option<String>, FilesError> {
            path.as_deref().map(|path| files::file_name(path).map(str::to_owned)).transpose()
        };
        let boot = BootFiles {
            server: self.address,
            http_port,
            bios: name(&self.bios)?,
            x64_uefi: name(&self.x64_uefi)?,
            arm64_uefi: name(&self.arm64_uefi)?,
        };
        Ok(match &self.dhcp {
            Dhcp::Server(subnet) => Some(DhcpConfig { mode: Mode::Server(subnet.clone()), boot }),
            Dhcp::Proxy => Some(DhcpConfig { mode: Mode::Proxy, boot }),
            Dhcp::Off => None,
        })
    }
}

impl TryFrom<Raw> for Config {
    type Error = ConfigError;

    fn try_from(raw: Raw) -> Result<Self, ConfigError> {
        let is_base = raw
            .control_url
            .strip_prefix("https://")
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_graphic() && b != b'/'));
        if !is_base {
            return Err(value("control_url", "expected https://host:port without a path"));
        }
        if let Some(interface) = &raw.interface
            && (interface.is_empty() || interface.len() > MAX_INTERFACE || interface.contains(['/', ' ']))
        {
            return Err(value("interface", format!("`{interface}` is no interface name")));
        }
        if raw.address.is_unspecified() || raw.address.is_multicast() || raw.address.is_broadcast() {
            return Err(value("address", format!("{} is no address of an interface", raw.address)));
        }
        ipxe::check_cmdline(&raw.kernel_args).map_err(ConfigError::KernelArgs)?;
        if raw.kernel_args.len() > MAX_KERNEL_ARGS {
            return Err(value("kernel_args", format!("more than {MAX_KERNEL_ARGS} bytes")));
        }
        let dhcp = check_dhcp(raw.dhcp, raw.address)?;
        if raw.interface.is_none() && dhcp != Dhcp::Off {
            return Err(value("interface", "DHCP needs the interface it is to serve"));
        }
        let config = Self {
            control_url: raw.control_url,
            ca_pin: raw.ca_pin,
            site: raw.site,
            join_token_file: raw.join_token_file,
            state_dir: raw.state_dir,
            interface: raw.interface,
            address: raw.address,
            http_port: raw.http_port,
            tftp_port: raw.tftp_port,
            kernel: raw.kernel,
            ramdisk: raw.ramdisk,
            agent_bundle: raw.agent_bundle,
            kernel_args: raw.kernel_args,
            bios: raw.boot_files.bios,
            x64_uefi: raw.boot_files.x64_uefi,
            arm64_uefi: raw.boot_files.arm64_uefi,
            dhcp,
        };
        for path in config.boot_files() {
            files::file_name(path)?;
        }
        Ok(config)
    }
}

fn check_dhcp(raw: RawDhcp, address: Ipv4Addr) -> Result<Dhcp, ConfigError> {
    let (range, prefix, router, dns, lease_s) = match raw {
        RawDhcp::Server { range, prefix, router, dns, lease_s } => (range, prefix, router, dns, lease_s),
        RawDhcp::Proxy {} => return Ok(Dhcp::Proxy),
        RawDhcp::Off {} => return Ok(Dhcp::Off),
    };
    if !(8..=30).contains(&prefix) {
        return Err(value("dhcp.prefix", format!("{prefix} is not in 8 to 30")));
    }
    let network = |address: Ipv4Addr| u32::from(address) >> (32 - prefix);
    let outside = |end: &&Ipv4Addr| network(**end) != network(address);
    if let Some(end) = range.iter().chain(&router).find(outside) {
        return Err(value("dhcp.range", format!("{end} is not in the network of {address}/{prefix}")));
    }
    let pool = Pool::new(range[0], range[1])?;
    if let Some(taken) = [Some(address), router].into_iter().flatten().find(|taken| pool.contains(*taken)) {
        return Err(value("dhcp.range", format!("{taken} is in the range, yet it is taken")));
    }
    if dns.len() > MAX_DNS {
        return Err(value("dhcp.dns", format!("more than {MAX_DNS} addresses")));
    }
    if !LEASE_S.contains(&lease_s) {
        return Err(value("dhcp.lease_s", format!("{lease_s} is not in {LEASE_S:?}")));
    }
    Ok(Dhcp::Server(Subnet { pool, prefix, router, dns, lease_s }))
}

fn value(key: &'static str, why: impl Into<String>) -> ConfigError {
    ConfigError::Value { key, why: why.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(from: &str, to: &str) -> Result<Config, ConfigError> {
        let text = Config::example();
        assert!(text.contains(from), "{from}");
        Config::from_toml(&text.replacen(from, to, 1))
    }

    #[test]
    fn the_example_is_valid() {
        let config = Config::from_toml(Config::example()).unwrap();
        let dhcp = config.dhcp(8080).unwrap().unwrap();
        assert_eq!(dhcp.boot.bios.as_deref(), Some("undionly.kpxe"));
        assert_eq!(dhcp.boot.x64_uefi.as_deref(), Some("snponly.efi"));
        assert!(matches!(dhcp.mode, Mode::Server(subnet) if subnet.prefix == 24));
    }

    #[test]
    fn an_unknown_key_is_named() {
        for (from, to) in [("site = ", "sites = 1\nsite = "), ("prefix = ", "prefixes = 1\nprefix = ")] {
            let err = changed(from, to).unwrap_err();
            assert!(
                matches!(&err, ConfigError::Syntax(err) if err.to_string().contains("unknown")),
                "{err:?}"
            );
        }
    }

    #[test]
    fn values_that_make_no_sense_are_named() {
        for (from, to, key) in [
            ("https://control.example:8443", "http://control.example", "control_url"),
            ("https://control.example:8443", "https://control.example/v1", "control_url"),
            ("\"eth1\"", "\"a/b\"", "interface"),
            ("interface = \"eth1\"", "", "interface"),
            ("\"10.0.0.2\"", "\"0.0.0.0\"", "address"),
            ("\"10.0.0.2\"", "\"10.0.0.150\"", "dhcp.range"),
            ("10.0.0.199", "10.0.1.199", "dhcp.range"),
            ("prefix = 24", "prefix = 31", "dhcp.prefix"),
            ("lease_s = 3600", "lease_s = 1", "dhcp.lease_s"),
            ("dns = [", "dns = [\"1.1.1.1\", \"1.1.1.1\", \"1.1.1.1\", \"1.1.1.1\", ", "dhcp.dns"),
        ] {
            let err = changed(from, to).unwrap_err();
            assert!(matches!(&err, ConfigError::Value { key: found, .. } if *found == key), "{to}: {err:?}");
        }
        assert!(matches!(changed("console=tty0", "a && b").unwrap_err(), ConfigError::KernelArgs(_)));
        assert!(matches!(changed("10.0.0.199", "10.0.0.99").unwrap_err(), ConfigError::Pool(_)));
        assert!(matches!(changed("undionly.kpxe", "a b").unwrap_err(), ConfigError::BootFiles(_)));
    }

    #[test]
    fn other_modes_take_no_range() {
        let head = Config::example().split("[dhcp]").next().unwrap();
        let with = |dhcp: &str| Config::from_toml(&format!("{head}[dhcp]\n{dhcp}"));
        assert_eq!(with("mode = \"proxy\"").unwrap().dhcp, Dhcp::Proxy);
        assert_eq!(with("mode = \"off\"").unwrap().dhcp, Dhcp::Off);
        assert!(matches!(with("mode = \"proxy\"\nprefix = 24"), Err(ConfigError::Syntax(_))));
        assert!(matches!(with("mode = \"both\""), Err(ConfigError::Syntax(_))));
    }
}
