//! A program with everything it needs to run on any Linux, as a tar.gz:
//!
//! ```text
//! ironwright                       the program
//! lib/ld-linux-x86-64.so.2         its loader
//! lib/libc.so.6 …                  its shared objects
//! ```
//!
//! Unpacked to `DIR` it is started as `DIR/lib/<loader> --library-path DIR/lib DIR/ironwright ARGS…`, which uses
//! nothing of the system's C library. The same files give the same bytes.

use std::{
    io::{self, Write},
    path::Path,
};

use flate2::{Compression, GzBuilder};

use crate::{
    elf::{self, ElfError},
    initramfs::{BuildError, read_source},
};

/// Why there is no bundle.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// The program's shared objects.
    #[error("listing the shared objects of the program")]
    Elf(#[from] ElfError),
    /// A file of the bundle.
    #[error(transparent)]
    Source(#[from] BuildError),
    /// The program brings no loader.
    #[error("the program is statically linked and needs no bundle")]
    Static,
    /// The output.
    #[error("writing the bundle")]
    Write(#[source] io::Error),
}

/// What a bundle consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bundled {
    /// Files in it.
    pub files: usize,
    /// Size of all files in bytes, before compression.
    pub bytes: u64,
}

/// Writes the bundle of `program` to `out`, under the name `name`. `extra` are shared objects that it opens at
/// run time without saying so in its headers.
pub fn build(program: &Path, name: &str, extra: &[&str], out: impl Write) -> Result<Bundled, BundleError> {
    let closure = elf::closure(&[program], extra)?;
    let loader = closure.loader.as_deref().ok_or(BundleError::Static)?;
    let loader_name = loader.file_name().unwrap_or_default().to_string_lossy();
    let mut tar = tar::Builder::new(GzBuilder::new().write(out, Compression::best()));
    let mut bundled = Bundled { files: 0, bytes: 0 };
    let mut add = |path: String, source: &Path| {
        let bytes = read_source(source)?;
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o755);
        header.set_mtime(0);
        tar.append_data(&mut header, &path, &bytes[..]).map_err(BundleError::Write)?;
        bundled.files += 1;
        bundled.bytes += bytes.len() as u64;
        Ok::<_, BundleError>(())
    };
    add(name.to_owned(), program)?;
    add(format!("lib/{loader_name}"), loader)?;
    for (library, path) in &closure.libraries {
        add(format!("lib/{library}"), path)?;
    }
    let finish = || tar.into_inner()?.finish()?.flush();
    finish().map_err(BundleError::Write)?;
    Ok(bundled)
}
