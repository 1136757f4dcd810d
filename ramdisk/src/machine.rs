//! What firmware says of this machine (SMBIOS, as the kernel shows it), and where we look for it.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

/// Longest text taken from firmware, in characters.
const MAX_TEXT: usize = 128;
/// Longest file read from the kernel's text files, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// Where the kernel shows the machine. Another root makes another machine, for tests.
#[derive(Debug, Clone)]
pub struct Roots {
    /// `/sys`
    pub sys: PathBuf,
    /// `/proc`
    pub proc: PathBuf,
    /// `/dev`
    pub dev: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self { sys: "/sys".into(), proc: "/proc".into(), dev: "/dev".into() }
    }
}

impl Roots {
    /// All three below one folder.
    pub fn under(folder: &Path) -> Self {
        Self { sys: folder.join("sys"), proc: folder.join("proc"), dev: folder.join("dev") }
    }
}

/// SMBIOS system information (type 1). Empty where firmware says nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dmi {
    /// Product UUID as the kernel writes it.
    pub product_uuid: String,
    /// Serial number.
    pub serial: String,
    /// Manufacturer.
    pub vendor: String,
    /// Product name.
    pub product: String,
}

impl Dmi {
    /// Reads it. Firmware is outside data: text only, of limited length.
    pub fn read(roots: &Roots) -> Self {
        let field = |name: &str| text(&roots.sys.join("class/dmi/id").join(name));
        Self {
            product_uuid: field("product_uuid"),
            serial: field("product_serial"),
            vendor: field("sys_vendor"),
            product: field("product_name"),
        }
    }
}

/// Seconds since the kernel started, as the kernel writes them.
pub(crate) fn uptime() -> String {
    let text = fs::read_to_string("/proc/uptime").unwrap_or_default();
    text.split_ascii_whitespace().next().unwrap_or("?").to_owned()
}

/// A one-line text file, cleaned; empty where it cannot be read.
pub(crate) fn text(path: &Path) -> String {
    let content = read_text(path).unwrap_or_default();
    content.trim().chars().filter(|c| !c.is_control()).take(MAX_TEXT).collect()
}

/// A text file of the kernel, at most 1 MiB of it.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(MAX_FILE).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn firmware_text_is_cleaned_and_cut() {
        let root = tempfile::tempdir().unwrap();
        let id = root.path().join("sys/class/dmi/id");
        fs::create_dir_all(&id).unwrap();
        fs::write(id.join("product_uuid"), "4C4C4544-0042-4810-8052-B4C04F395931\n").unwrap();
        fs::write(id.join("product_serial"), [b"  A\x1b[2J\xff".as_slice(), &[b'x'; 500]].concat()).unwrap();
        let dmi = Dmi::read(&Roots::under(root.path()));
        assert_eq!(dmi.product_uuid, "4C4C4544-0042-4810-8052-B4C04F395931");
        assert!(dmi.serial.starts_with("A[2J\u{fffd}x"));
        assert_eq!(dmi.serial.chars().count(), MAX_TEXT);
        assert_eq!(dmi.vendor, "");
    }
}
