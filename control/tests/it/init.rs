//! Making a control folder, and refusing to.

use std::{fs, os::unix::fs::PermissionsExt};

use ironwright_control::{Config, ConfigError, InitError, init};
use sha2::{Digest, Sha256};

use crate::rig::{options, read_ca};

#[test]
fn a_folder_is_made_that_only_its_owner_reads() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("control");
    let made = init(&dir, options()).unwrap();

    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    let files: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 6, "{files:?}");
    for file in &files {
        assert_eq!(mode(file), 0o600, "{}", file.display());
    }
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 1, "nothing is left over");

    // 256 bits in base64url without padding are 43 characters.
    let secret = made.admin_token.strip_prefix("iwa_").unwrap();
    assert_eq!(secret.len(), 43);
    for file in &files {
        let bytes = fs::read(file).unwrap();
        assert!(!bytes.windows(secret.len()).any(|part| part == secret.as_bytes()), "{}", file.display());
    }
    assert_eq!(made.ca_pin.0, <[u8; 32]>::from(Sha256::digest(read_ca(&dir))));
    Config::load(&dir).unwrap();
}

#[test]
fn what_exists_is_left_alone() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("control");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("precious"), "x").unwrap();
    assert!(matches!(init(&dir, options()), Err(InitError::Exists(path)) if path == dir));
    std::os::unix::fs::symlink(parent.path().join("nowhere"), parent.path().join("link")).unwrap();
    assert!(matches!(init(&parent.path().join("link"), options()), Err(InitError::Exists(_))));
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
}

#[test]
fn a_failed_init_leaves_nothing() {
    let parent = tempfile::tempdir().unwrap();
    let mut bad = options();
    bad.ek_roots = Some(parent.path().join("none.pem"));
    let error = init(&parent.path().join("control"), bad).err().unwrap();
    assert!(matches!(error, InitError::Config(ConfigError::Read { .. })), "{error}");
    let mut bad = options();
    bad.names = vec!["not a name".into()];
    assert!(matches!(init(&parent.path().join("control"), bad), Err(InitError::Config(_))));
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
}
