//! Who is asking: an operating system, firmware of some architecture, or iPXE.

use std::net::{Ipv4Addr, SocketAddrV4};

use ironwright_proto::ids::Mac;

use super::packet::{Request, option};

/// How a client wants its boot file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Client {
    /// Only wants an address.
    NoBoot,
    /// Our first stage: wants the URL of its script.
    Ipxe,
    /// PXE firmware: wants the name of a file on our TFTP server.
    Pxe(Arch),
    /// UEFI HTTP boot firmware (UEFI 2.10 section 24.7): wants an absolute URL.
    Http(Arch),
}

/// Processor and firmware, as far as boot files differ (IANA "Processor Architecture Types", RFC 5970).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arch {
    /// Type 0.
    Bios,
    /// Types 7 and 9, which firmware uses alike (field report D4), and 16.
    X64Uefi,
    /// Types 11 and 19.
    Arm64Uefi,
    /// One that we have no boot file for, such as 6 (32 bit UEFI).
    Other(u16),
}

const ARCH_HTTP_X64: u16 = 16;
/// Types whose firmware does HTTP boot.
const HTTP_TYPES: std::ops::RangeInclusive<u16> = 15..=20;

impl Arch {
    fn from_type(number: u16) -> Self {
        match number {
            0 => Self::Bios,
            7 | 9 | ARCH_HTTP_X64 => Self::X64Uefi,
            11 | 19 => Self::Arm64Uefi,
            other => Self::Other(other),
        }
    }
}

impl Client {
    /// Looks at user class, vendor class and architecture.
    pub fn of(request: &Request) -> Self {
        if is_ipxe(request) {
            return Self::Ipxe;
        }
        let class = request.option(option::VENDOR_CLASS).unwrap_or_default();
        // Option 93 may be a list; the first one is the firmware's own. Field report D6: the vendor class alone
        // ("PXEClient") says nothing about the architecture.
        let number = match request.option(option::ARCHITECTURE) {
            Some([high, low, ..]) => Some(u16::from_be_bytes([*high, *low])),
            _ => arch_in_class(class),
        };
        if class.starts_with(b"HTTPClient") {
            Self::Http(Arch::from_type(number.unwrap_or(ARCH_HTTP_X64)))
        } else if class.starts_with(b"PXEClient") {
            match number {
                Some(number) if HTTP_TYPES.contains(&number) => Self::Http(Arch::from_type(number)),
                number => Self::Pxe(Arch::from_type(number.unwrap_or(0))),
            }
        } else {
            Self::NoBoot
        }
    }
}

/// Field report D8: the user class comes as plain text, or as RFC 3004's list of classes that each begin
/// with their length; some builds send only their own option 175.
fn is_ipxe(request: &Request) -> bool {
    const NAME: &[u8] = b"iPXE";
    let Some(mut classes) = request.option(option::USER_CLASS) else {
        return request.option(option::IPXE).is_some();
    };
    if classes == NAME || request.option(option::IPXE).is_some() {
        return true;
    }
    while let [len, rest @ ..] = classes {
        let Some((class, rest)) = rest.split_at_checked(usize::from(*len)) else { return false };
        if class == NAME {
            return true;
        }
        classes = rest;
    }
    false
}

/// The number in `PXEClient:Arch:00007:UNDI:003016` (PXE 2.1 section 2.1.1).
fn arch_in_class(class: &[u8]) -> Option<u16> {
    let mut words = class.split(|&b| b == b':').skip_while(|word| *word != b"Arch");
    std::str::from_utf8(words.nth(1)?).ok()?.parse().ok()
}

/// Where boot files are, and what they are called. An architecture without a file is not booted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootFiles {
    /// Address of our TFTP and boot HTTP server.
    pub server: Ipv4Addr,
    /// Port of boot HTTP.
    pub http_port: u16,
    /// File for BIOS.
    pub bios: Option<String>,
    /// File for x64 UEFI.
    pub x64_uefi: Option<String>,
    /// File for 64 bit ARM UEFI.
    pub arm64_uefi: Option<String>,
}

/// What a client is told to load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootFile {
    /// A name on our TFTP server, or an absolute URL.
    pub name: String,
    /// Option 60 of the answer, which must be the client's own kind.
    pub class: &'static [u8],
}

/// The MAC has hyphens here: some builds of iPXE escape the colons of a URL's path.
fn script_url(site: SocketAddrV4, mac: Mac) -> String {
    format!("http://{site}/boot/{}/ipxe", mac.to_string().replace(':', "-"))
}

impl BootFiles {
    /// Chooses the boot file; `None` for clients that we do not boot.
    pub fn choose(&self, client: Client, mac: Mac) -> Option<BootFile> {
        let site = SocketAddrV4::new(self.server, self.http_port);
        let (name, class): (_, &[u8]) = match client {
            Client::NoBoot => return None,
            Client::Ipxe => (script_url(site, mac), b"PXEClient"),
            Client::Pxe(arch) => (self.file(arch)?.to_owned(), b"PXEClient"),
            Client::Http(arch) => (format!("http://{site}/{}", self.file(arch)?), b"HTTPClient"),
        };
        Some(BootFile { name, class })
    }

    fn file(&self, arch: Arch) -> Option<&str> {
        match arch {
            Arch::Bios => self.bios.as_deref(),
            Arch::X64Uefi => self.x64_uefi.as_deref(),
            Arch::Arm64Uefi => self.arm64_uefi.as_deref(),
            Arch::Other(_) => None,
        }
    }
}
