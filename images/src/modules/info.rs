//! The `.modinfo` section of a module: `key=value` texts, each ended by a zero byte.

use std::{fs, path::Path};

use object::{
    Endianness,
    elf::FileHeader64,
    read::elf::{FileHeader, SectionHeader},
};

use super::{ModulesError, normal};

/// Largest module after unpacking, in bytes.
const MAX_MODULE: u64 = 256 << 20;

/// What we want to know about a module.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Info {
    /// Modules that must be loaded before.
    pub(super) depends: Vec<String>,
    /// Modules that should be loaded before, where they exist.
    pub(super) soft: Vec<String>,
    /// Patterns of devices, and other names.
    pub(super) aliases: Vec<String>,
}

/// The uncompressed bytes of a module, and its info.
pub(super) fn read(path: &Path) -> Result<(Vec<u8>, Info), ModulesError> {
    let failed = |source| ModulesError::Io { path: path.to_owned(), source };
    let raw = fs::read(path).map_err(failed)?;
    let bytes = match path.extension().and_then(|suffix| suffix.to_str()) {
        Some("ko") => raw,
        Some("zst") => unpack(&raw).map_err(failed)?,
        _ => return Err(ModulesError::Compressed(path.to_owned())),
    };
    let info = section(&bytes)
        .map(parse)
        .map_err(|error| ModulesError::Malformed { path: path.to_owned(), why: error.to_string() })?;
    Ok((bytes, info))
}

fn unpack(raw: &[u8]) -> std::io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    zstd::Decoder::new(raw)?.take(MAX_MODULE).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn section(module: &[u8]) -> object::Result<&[u8]> {
    let header = FileHeader64::<Endianness>::parse(module)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, module)?;
    match sections.section_by_name(endian, b".modinfo") {
        Some((_, section)) => section.data(endian, module),
        None => Ok(&[]),
    }
}

fn parse(section: &[u8]) -> Info {
    let mut info = Info::default();
    for text in section.split(|&b| b == 0).filter_map(|text| str::from_utf8(text).ok()) {
        match text.split_once('=') {
            Some(("depends", list)) => {
                info.depends.extend(list.split(',').filter(|name| !name.is_empty()).map(normal));
            }
            Some(("softdep", list)) => info.soft.extend(soft_before(list)),
            Some(("alias", alias)) => info.aliases.push(alias.to_owned()),
            _ => {}
        }
    }
    info
}

/// The names behind `pre:` in `pre: a b post: c`.
fn soft_before(list: &str) -> Vec<String> {
    let mut before = false;
    let mut names = Vec::new();
    for word in list.split_whitespace() {
        match word {
            "pre:" => before = true,
            "post:" => before = false,
            name if before => names.push(normal(name)),
            _ => {}
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_apart() {
        let section = b"license=GPL\0alias=pci:v00001AF4d*\0depends=virtio,virtio-ring\0\0\
            softdep=pre: crc32c a-b post: later\0alias=virtio:d1v*\0depends=\0";
        let expected = Info {
            depends: vec!["virtio".into(), "virtio_ring".into()],
            soft: vec!["crc32c".into(), "a_b".into()],
            aliases: vec!["pci:v00001AF4d*".into(), "virtio:d1v*".into()],
        };
        assert_eq!(parse(section), expected);
    }
}
