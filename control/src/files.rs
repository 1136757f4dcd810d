//! Files that hold secrets or must survive a power cut: created exclusively, never readable by others,
//! replaced as a whole.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
};

/// Mode of every file that [`write_new`] and [`replace`] make: read and written by its owner only.
const PRIVATE: u32 = 0o600;
const PRIVATE_DIR: u32 = 0o700;

/// Makes a folder that only its owner can enter; it must not exist.
pub(crate) fn make_private_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(PRIVATE_DIR).create(path)
}

/// Writes a file that must not exist yet (O_EXCL: no link is followed), and syncs it.
pub(crate) fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(PRIVATE).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Puts new content in the place of a file: after a crash there is either the old or the new one.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let fresh = path.with_extension("new");
    match fs::remove_file(&fresh) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => write_new(&fresh, bytes)?,
    }
    fs::rename(&fresh, path)?;
    sync_dir(path.parent().unwrap_or(Path::new(".")))
}

/// Makes the names in a folder durable.
pub(crate) fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn t28_a_link_in_the_way_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        symlink(&victim, dir.path().join("server.key")).unwrap();
        let error = write_new(&dir.path().join("server.key"), b"secret").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert!(!victim.exists());
    }

    #[test]
    fn a_replaced_file_stays_private_and_a_leftover_does_no_harm() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("server.crt");
        fs::write(path.with_extension("new"), b"leftover of a crash").unwrap();
        replace(&path, b"one").unwrap();
        replace(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!path.with_extension("new").exists());
    }
}
