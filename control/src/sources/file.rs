//! `file:///` images, from the one folder of control's own disk that the config names for them.
//!
//! Whoever may add images could otherwise read every file that control can read, such as its CA's key.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use futures::StreamExt;
use nix::{
    errno::Errno,
    fcntl::{OFlag, OpenHow, ResolveFlag, openat2},
};
use tokio_util::io::ReaderStream;

use super::{Source, SourceError};

const READ_BYTES: usize = 256 << 10;

/// The folder below which images may be named by a file URL; `None` allows no file URL.
#[derive(Debug, Clone, Default)]
pub(crate) struct ImageFolder(pub(crate) Option<PathBuf>);

impl ImageFolder {
    /// Where a file is in the folder; the error says how files can be had.
    pub(super) fn place(&self, path: &Path) -> Result<(&Path, PathBuf), SourceError> {
        let Some(folder) = &self.0 else {
            return Err(SourceError::FileRefused(
                "control.toml names no image_folder; name one and start control again, or upload the file with \
                 `ironwright images add NAME --file FILE`"
                    .to_owned(),
            ));
        };
        match path.strip_prefix(folder) {
            Ok(rest) if !rest.as_os_str().is_empty() => Ok((folder, rest.to_owned())),
            _ => {
                let (path, folder) = (path.display(), folder.display());
                Err(SourceError::FileRefused(format!("`{path}` is not below image_folder `{folder}`")))
            }
        }
    }

    /// Opens a regular file below the folder; devices and pipes have no end that could be waited for.
    pub(super) async fn open(&self, path: &Path) -> Result<Source, SourceError> {
        let (folder, rest) = self.place(path)?;
        let (folder, shown) = (folder.to_owned(), path.display().to_string());
        let opened = tokio::task::spawn_blocking(move || open_below(&folder, &rest)).await;
        match opened.unwrap_or_else(|e| Err(io::Error::other(e))) {
            Ok((file, len)) => {
                let file = tokio::fs::File::from_std(file);
                let bytes = ReaderStream::with_capacity(file, READ_BYTES).boxed();
                Ok(Source { bytes, len: Some(len) })
            }
            Err(e) if e.raw_os_error() == Some(Errno::EXDEV as i32) => {
                Err(SourceError::FileRefused(format!("`{shown}` leads out of image_folder")))
            }
            Err(e) => Err(SourceError::Unreachable { url: format!("file://{shown}"), why: e.to_string() }),
        }
    }
}

/// The kernel resolves the path and opens the file in one step, so that no link changed in between leads elsewhere.
fn open_below(folder: &Path, rest: &Path) -> io::Result<(File, u64)> {
    let folder = OpenOptions::new()
        .read(true)
        .custom_flags((OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW).bits())
        .open(folder)?;
    let how = OpenHow::new()
        // Opening a pipe would wait for its writer.
        .flags(OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY)
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    let file = File::from(openat2(&folder, rest, how)?);
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    Ok((file, about.len()))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use nix::{sys::stat::Mode, unistd::mkfifo};

    use super::*;

    async fn code(folder: &ImageFolder, path: &Path) -> Result<Option<u64>, &'static str> {
        folder.open(path).await.map(|source| source.len).map_err(|e| e.code())
    }

    #[tokio::test]
    async fn without_a_folder_every_file_is_refused_with_what_to_do() {
        let error = ImageFolder(None).open(Path::new("/etc/hostname")).await.err().unwrap();
        assert_eq!(error.code(), "file_refused");
        assert!(error.to_string().contains("image_folder"), "{error}");
    }

    #[tokio::test]
    async fn only_regular_files_that_are_really_below_the_folder_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let images = root.join("images");
        fs::create_dir_all(images.join("sub")).unwrap();
        fs::write(root.join("ca.key"), b"secret").unwrap();
        fs::write(images.join("sub/x.raw"), b"abc").unwrap();
        symlink("sub/x.raw", images.join("newest.raw")).unwrap();
        symlink("../ca.key", images.join("key")).unwrap();
        symlink(root.join("ca.key"), images.join("absolute")).unwrap();
        symlink(&root, images.join("up")).unwrap();
        mkfifo(&images.join("pipe"), Mode::S_IRWXU).unwrap();
        let folder = ImageFolder(Some(images.clone()));

        assert_eq!(code(&folder, &images.join("sub/x.raw")).await, Ok(Some(3)));
        assert_eq!(code(&folder, &images.join("newest.raw")).await, Ok(Some(3)), "a link that stays inside");
        for refused in ["key", "absolute", "up/ca.key", "../ca.key", "sub/../../ca.key"] {
            assert_eq!(code(&folder, &images.join(refused)).await, Err("file_refused"), "{refused}");
        }
        for outside in [root.join("ca.key"), images.clone(), "/etc/hostname".into()] {
            assert_eq!(code(&folder, &outside).await, Err("file_refused"), "{outside:?}");
        }
        for unusable in ["none", "sub", "pipe"] {
            assert_eq!(code(&folder, &images.join(unusable)).await, Err("source_unreachable"), "{unusable}");
        }
    }
}
