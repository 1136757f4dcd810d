//! Making a control folder: the store, the CA, the server's identity, the configuration and the first admin token.

use std::{
    ffi::OsString,
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use ironwright_control_core::{admin, store::StoreError};
use ironwright_proto::ids::Digest;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use rand::rngs::OsRng;
use time::OffsetDateTime;
use zeroize::Zeroizing;

use crate::{
    ca::{Authority, CaError, ServerIdentity},
    clock::unix_ms,
    config::{self, CONFIG_FILE, ConfigError, EK_ROOTS_FILE, Raw, RawLimits, RawListener},
    files,
    store::RedbStore,
};

/// File of the store, in control's folder.
pub(crate) const STORE_FILE: &str = "control.redb";

/// Name of the person to whom the first token belongs.
const FIRST_ADMIN: &str = "admin";

/// What the operator chooses.
#[derive(Debug, Clone, Default)]
pub struct InitOptions {
    /// DNS names and addresses for the server certificate; the first one is what agents are told.
    pub names: Vec<String>,
    /// Where the API listens; `[::]:8443` where not given.
    pub api: Option<SocketAddr>,
    /// Where the gateway listens; `[::]:9443` where not given.
    pub gateway: Option<SocketAddr>,
    /// PEM file, or folder of them, with the CAs of TPM makers; copied into the folder.
    pub ek_roots: Option<PathBuf>,
}

/// What is told once.
pub struct Initialised {
    /// The admin token, which control itself keeps only as a hash.
    pub admin_token: Zeroizing<String>,
    /// SHA-256 of the CA certificate's DER.
    pub ca_pin: Digest,
    /// What agents are told as the API's URL.
    pub api_url: String,
}

/// Why there is no new control folder.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// Something stands there already.
    #[error("`{0}` exists already; a control is made in a folder that does not exist yet")]
    Exists(PathBuf),
    /// The folder's place cannot be written.
    #[error("making the folder `{dir}`")]
    Folder {
        /// The folder.
        dir: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A choice of the operator that cannot be worked with.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Keys and certificates.
    #[error(transparent)]
    Ca(#[from] CaError),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The first admin token.
    #[error(transparent)]
    AdminToken(#[from] ironwright_control_core::Error),
}

/// Makes a control folder, mode 0700. It appears whole or not at all: it is made under another name beside its
/// place and then moved there.
pub fn init(dir: &Path, options: InitOptions) -> Result<Initialised, InitError> {
    let folder = |source| InitError::Folder { dir: dir.to_owned(), source };
    if fs::symlink_metadata(dir).is_ok() {
        return Err(InitError::Exists(dir.to_owned()));
    }
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = dir.file_name().ok_or_else(|| folder(io::ErrorKind::InvalidInput.into()))?;
    let mut making = OsString::from(".");
    making.push(name);
    making.push(format!(".{:016x}", rand::random::<u64>()));
    let making = parent.join(making);

    files::make_private_dir(&making).map_err(folder)?;
    let initialised = fill(&making, options).and_then(|initialised| {
        files::sync_dir(&making).map_err(folder)?;
        match renameat2(AT_FDCWD, &making, AT_FDCWD, dir, RenameFlags::RENAME_NOREPLACE) {
            Err(nix::Error::EEXIST) => return Err(InitError::Exists(dir.to_owned())),
            other => other.map_err(|e| folder(e.into()))?,
        }
        files::sync_dir(parent).map_err(folder)?;
        Ok(initialised)
    });
    if initialised.is_err() {
        // What is left over would only confuse; the error that matters is the first one.
        let _ = fs::remove_dir_all(&making);
    }
    initialised
}

fn fill(dir: &Path, options: InitOptions) -> Result<Initialised, InitError> {
    let now = OffsetDateTime::now_utc();
    let names = config::check_names(&options.names)?;
    let write = |file: &str, bytes: &[u8]| {
        files::write_new(&dir.join(file), bytes)
            .map_err(|source| InitError::Folder { dir: dir.to_owned(), source })
    };
    let ek_roots = match &options.ek_roots {
        Some(from) => {
            write(EK_ROOTS_FILE, config::read_ek_roots(from)?.as_bytes())?;
            Some(PathBuf::from(EK_ROOTS_FILE))
        }
        None => None,
    };
    let raw = Raw {
        names: options.names,
        ek_roots,
        image_folder: None,
        api: RawListener { listen: options.api, url: None },
        gateway: RawListener { listen: options.gateway, url: None },
        limits: RawLimits::default(),
    };
    let text = toml::to_string(&raw)
        .map_err(|e| InitError::Folder { dir: dir.to_owned(), source: io::Error::other(e) })?;
    write(CONFIG_FILE, text.as_bytes())?;

    let ca = Authority::create(dir, now)?;
    ServerIdentity::create(dir, &ca, &names, now)?;
    let store = RedbStore::create(&dir.join(STORE_FILE))?;
    let admin_token = admin::add_token(&store, FIRST_ADMIN, unix_ms(), &mut OsRng)?;
    let port = options.api.map_or(config::DEFAULT_API_PORT, |address| address.port());
    Ok(Initialised { admin_token: admin_token.into(), ca_pin: ca.pin(), api_url: names[0].https(port) })
}
