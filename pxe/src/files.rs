//! The boot files that firmware may load, kept in memory: what is not named here is not served.

use std::{
    collections::BTreeMap,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use bytes::Bytes;

/// Largest boot file. The biggest iPXE of Debian has 2 MiB.
pub const MAX_FILE: u64 = 64 << 20;
/// Longest name: it has to fit the NUL-terminated `file` field of a BOOTP message (RFC 951).
pub const MAX_NAME: usize = 127;

/// Why a boot file cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// Not readable.
    #[error("cannot read boot file {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Larger than [`MAX_FILE`].
    #[error("boot file {0} is larger than {MAX_FILE} bytes")]
    TooLarge(PathBuf),
    /// The name is part of URLs and of the BOOTP `file` field.
    #[error("boot file {0} needs a name of 1 to {MAX_NAME} letters, digits, `.`, `-` or `_`")]
    Name(PathBuf),
    /// Two paths with one name.
    #[error("two boot files are named `{0}`")]
    Twice(String),
}

/// Boot files by name.
#[derive(Debug, Clone, Default)]
pub struct Files(BTreeMap<String, Bytes>);

impl Files {
    /// Reads all files. Each is served by the last part of its path.
    pub fn load<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Result<Self, FilesError> {
        let mut files = Self::default();
        for path in paths {
            let name = file_name(path)?.to_owned();
            let bytes = read(path)?;
            if files.0.insert(name.clone(), bytes).is_some() {
                return Err(FilesError::Twice(name));
            }
        }
        Ok(files)
    }

    /// A set that was not read from disk.
    pub fn from_bytes(files: impl IntoIterator<Item = (String, Bytes)>) -> Self {
        Self(files.into_iter().collect())
    }

    /// Finds a file by the name firmware asks for, which often has a leading `/` or several (field report T5).
    pub fn get(&self, asked: &str) -> Option<Bytes> {
        let name = asked.trim_start_matches('/');
        self.0.get(name.strip_prefix("./").unwrap_or(name)).cloned()
    }
}

/// The name that a boot file is served by.
pub fn file_name(path: &Path) -> Result<&str, FilesError> {
    let plain = |name: &&str| {
        (1..=MAX_NAME).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
    };
    path.file_name()
        .and_then(|name| name.to_str())
        .filter(plain)
        .ok_or_else(|| FilesError::Name(path.to_owned()))
}

fn read(path: &Path) -> Result<Bytes, FilesError> {
    let failed = |source| FilesError::Read { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes)).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(FilesError::TooLarge(path.to_owned()));
    }
    Ok(bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_named_files_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ipxe.efi");
        std::fs::write(&path, b"MZ").unwrap();
        let files = Files::load([path.as_path()]).unwrap();
        for asked in ["ipxe.efi", "/ipxe.efi", "//ipxe.efi", "./ipxe.efi"] {
            assert_eq!(files.get(asked).as_deref(), Some(&b"MZ"[..]), "{asked}");
        }
        for asked in ["", "/", "../ipxe.efi", "x/../ipxe.efi", path.to_str().unwrap(), "IPXE.EFI"] {
            assert_eq!(files.get(asked), None, "{asked}");
        }
        assert!(matches!(Files::load([path.as_path(), path.as_path()]), Err(FilesError::Twice(_))));
        assert!(matches!(Files::load([Path::new("/")]), Err(FilesError::Name(_))));
        assert!(matches!(Files::load([dir.path().join("no").as_path()]), Err(FilesError::Read { .. })));
    }
}
