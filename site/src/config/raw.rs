//! What the file may hold. An unknown key is an error: it is mostly a misspelt one.

use std::{net::Ipv4Addr, path::PathBuf};

use ironwright_proto::ids::{Digest, Name};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Raw {
    pub(super) control_url: String,
    pub(super) ca_pin: Digest,
    pub(super) site: Name,
    pub(super) join_token_file: PathBuf,
    pub(super) state_dir: PathBuf,
    pub(super) interface: Option<String>,
    pub(super) address: Ipv4Addr,
    #[serde(default = "default_http_port")]
    pub(super) http_port: u16,
    #[serde(default = "default_tftp_port")]
    pub(super) tftp_port: u16,
    pub(super) kernel: PathBuf,
    pub(super) ramdisk: PathBuf,
    pub(super) agent_bundle: Option<PathBuf>,
    #[serde(default)]
    pub(super) kernel_args: String,
    #[serde(default)]
    pub(super) boot_files: RawBootFiles,
    pub(super) dhcp: RawDhcp,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawBootFiles {
    pub(super) bios: Option<PathBuf>,
    pub(super) x64_uefi: Option<PathBuf>,
    pub(super) arm64_uefi: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum RawDhcp {
    Server {
        range: [Ipv4Addr; 2],
        prefix: u8,
        router: Option<Ipv4Addr>,
        #[serde(default)]
        dns: Vec<Ipv4Addr>,
        #[serde(default = "default_lease_s")]
        lease_s: u32,
    },
    Proxy {},
    Off {},
}

const fn default_http_port() -> u16 {
    8080
}

const fn default_tftp_port() -> u16 {
    69
}

const fn default_lease_s() -> u32 {
    3600
}
