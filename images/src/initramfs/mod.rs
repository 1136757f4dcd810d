//! Builds an initramfs: a cpio archive of the "newc" kind (kernel documentation, early userspace: initramfs
//! buffer format), compressed with zstd. The same content gives the same bytes.

pub mod newc;

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use newc::{Header, S_IFCHR, S_IFDIR, S_IFLNK, S_IFREG};

/// Why the archive could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// Not absolute, or with `.`, `..` or odd characters in it.
    #[error("`{0}` is not a plain absolute path for an initramfs")]
    Path(String),
    /// Two different things at one path.
    #[error("the initramfs path {0} is given twice")]
    Duplicate(String),
    /// A source file.
    #[error("reading {path} for the initramfs")]
    Source {
        /// The file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// Files in a newc archive are smaller than 4 GiB.
    #[error("{0} is too large for an initramfs")]
    TooLarge(String),
    /// The output.
    #[error("writing the initramfs")]
    Write(#[source] io::Error),
}

/// What a file contains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// These bytes.
    Bytes(Vec<u8>),
    /// The bytes of a file, read when the archive is written.
    File(PathBuf),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    Dir,
    File(Content),
    Symlink(String),
    CharDevice(u32, u32),
}

/// Collects the content. Paths are absolute; missing parent directories are made with mode 755.
#[derive(Debug, Clone, Default)]
pub struct Builder {
    nodes: BTreeMap<String, (u32, Node)>,
}

impl Builder {
    /// An empty archive.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a directory; one that is there already is left as it is.
    pub fn add_dir(&mut self, path: &str, mode: u32) -> Result<(), BuildError> {
        self.add(path, mode, Node::Dir)
    }

    /// Adds a file.
    pub fn add_file(&mut self, path: &str, mode: u32, content: Content) -> Result<(), BuildError> {
        self.add(path, mode, Node::File(content))
    }

    /// Adds a symbolic link.
    pub fn add_symlink(&mut self, path: &str, to: &str) -> Result<(), BuildError> {
        self.add(path, 0o777, Node::Symlink(to.to_owned()))
    }

    /// Adds a character device.
    pub fn add_char_device(
        &mut self,
        path: &str,
        mode: u32,
        major: u32,
        minor: u32,
    ) -> Result<(), BuildError> {
        self.add(path, mode, Node::CharDevice(major, minor))
    }

    fn add(&mut self, path: &str, mode: u32, node: Node) -> Result<(), BuildError> {
        let bad = || BuildError::Path(path.to_owned());
        let relative = path.strip_prefix('/').ok_or_else(bad)?;
        let plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains(['\0', '\n']);
        if !relative.split('/').all(plain) || path.len() > newc::MAX_NAME {
            return Err(bad());
        }
        for (end, _) in relative.match_indices('/') {
            self.put(&relative[..end], 0o755, Node::Dir)?;
        }
        self.put(relative, mode, node)
    }

    fn put(&mut self, path: &str, mode: u32, node: Node) -> Result<(), BuildError> {
        match self.nodes.get(path) {
            Some((_, there)) if *there == node => Ok(()),
            Some(_) => Err(BuildError::Duplicate(path.to_owned())),
            None => {
                self.nodes.insert(path.to_owned(), (mode, node));
                Ok(())
            }
        }
    }

    /// Writes the archive without compression; returns its size in bytes.
    pub fn write(&self, out: impl Write) -> Result<u64, BuildError> {
        let mut out = newc::Writer::new(out);
        for (inode, (path, (mode, node))) in (1..).zip(&self.nodes) {
            let header = |kind| Header { inode, mode: kind | mode, links: 1, ..Header::default() };
            let (header, data) = match node {
                Node::Dir => (Header { links: 2, ..header(S_IFDIR) }, Vec::new()),
                Node::File(content) => (header(S_IFREG), read(content)?),
                Node::Symlink(to) => (header(S_IFLNK), to.clone().into_bytes()),
                Node::CharDevice(major, minor) => {
                    (Header { rdev_major: *major, rdev_minor: *minor, ..header(S_IFCHR) }, Vec::new())
                }
            };
            out.entry(path, header, &data).map_err(|e| match e.kind() {
                io::ErrorKind::FileTooLarge => BuildError::TooLarge(path.clone()),
                _ => BuildError::Write(e),
            })?;
        }
        out.finish().map_err(BuildError::Write)
    }

    /// Writes the archive as one zstd frame, which Linux unpacks when built with `CONFIG_RD_ZSTD`; returns the
    /// size before compression in bytes.
    pub fn write_zstd(&self, out: impl Write, level: i32) -> Result<u64, BuildError> {
        let mut encoder = zstd::Encoder::new(out, level).map_err(BuildError::Write)?;
        encoder.include_checksum(true).map_err(BuildError::Write)?;
        let size = self.write(&mut encoder)?;
        encoder.finish().and_then(|mut out| out.flush()).map_err(BuildError::Write)?;
        Ok(size)
    }
}

fn read(content: &Content) -> Result<Vec<u8>, BuildError> {
    match content {
        Content::Bytes(bytes) => Ok(bytes.clone()),
        Content::File(path) => read_source(path),
    }
}

/// Reads a file that goes into an archive.
pub(crate) fn read_source(path: &Path) -> Result<Vec<u8>, BuildError> {
    fs::read(path).map_err(|source| BuildError::Source { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Content {
        Content::Bytes(text.as_bytes().to_vec())
    }

    #[test]
    fn parents_come_first_and_order_of_adding_does_not_matter() {
        let mut a = Builder::new();
        a.add_file("/usr/lib/x", 0o644, bytes("x")).unwrap();
        a.add_file("/init", 0o755, bytes("init")).unwrap();
        a.add_char_device("/dev/console", 0o600, 5, 1).unwrap();
        let mut b = Builder::new();
        b.add_char_device("/dev/console", 0o600, 5, 1).unwrap();
        b.add_file("/init", 0o755, bytes("init")).unwrap();
        b.add_dir("/usr", 0o755).unwrap();
        b.add_file("/usr/lib/x", 0o644, bytes("x")).unwrap();
        let (mut first, mut second) = (Vec::new(), Vec::new());
        assert_eq!(a.write(&mut first).unwrap(), first.len() as u64);
        b.write(&mut second).unwrap();
        assert!(first == second);
        let names: Vec<String> = newc::parse(&first).unwrap().into_iter().map(|e| e.name).collect();
        assert_eq!(names, ["dev", "dev/console", "init", "usr", "usr/lib", "usr/lib/x"]);
    }

    #[test]
    fn bad_paths_and_duplicates_are_named() {
        let mut builder = Builder::new();
        for path in ["init", "/", "/a//b", "/a/../b", "/a/", "/./a", "/a\nb"] {
            let result = builder.add_file(path, 0o644, bytes(""));
            assert!(matches!(result, Err(BuildError::Path(_))), "{path}");
        }
        builder.add_file("/a", 0o644, bytes("1")).unwrap();
        assert!(matches!(builder.add_file("/a", 0o644, bytes("2")), Err(BuildError::Duplicate(_))));
        assert!(matches!(builder.add_file("/a/b", 0o644, bytes("2")), Err(BuildError::Duplicate(_))));
        builder.add_file("/c", 0o644, Content::File("/nonexistent".into())).unwrap();
        assert!(matches!(builder.write(Vec::new()), Err(BuildError::Source { .. })));
    }
}
