//! A folder of files known by the SHA-256 of their bytes.
//!
//! ```text
//! root/sha256/<64 hex digits>   whole, verified objects; never changed
//! root/tmp/…                    being written; emptied when the store is opened
//! ```
//!
//! One process owns a store. Objects appear by rename after their bytes are on stable storage.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom, Take, Write},
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};
use tempfile::{Builder, NamedTempFile, TempPath};

/// Why the store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file system failed.
    #[error("{doing} {path}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The bytes are not those that were expected.
    #[error("the object's SHA-256 is {actual}, expected {expected}")]
    Digest {
        /// Hexadecimal.
        expected: String,
        /// Hexadecimal.
        actual: String,
    },
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Io { doing, path, source }
}

/// The folder.
#[derive(Debug, Clone)]
pub struct Store {
    objects: PathBuf,
    tmp: PathBuf,
}

/// An object in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// SHA-256 of its bytes.
    pub digest: [u8; 32],
    /// In bytes.
    pub size: u64,
}

impl Store {
    /// Takes over the folder, making it where it does not exist, and removes what an earlier process left
    /// half-written.
    pub fn at(root: &Path) -> Result<Self, StoreError> {
        let store = Self { objects: root.join("sha256"), tmp: root.join("tmp") };
        for dir in [&store.objects, &store.tmp] {
            fs::create_dir_all(dir).map_err(failed("making the folder", dir))?;
        }
        for entry in fs::read_dir(&store.tmp).map_err(failed("reading the folder", &store.tmp))? {
            let path = entry.map_err(failed("reading the folder", &store.tmp))?.path();
            fs::remove_file(&path).map_err(failed("removing the leftover", &path))?;
        }
        Ok(store)
    }

    /// Begins an object of at most `limit` bytes.
    pub fn begin(&self, limit: u64) -> Result<Writer, StoreError> {
        let file = NamedTempFile::new_in(&self.tmp).map_err(failed("making a file in", &self.tmp))?;
        Ok(Writer { file, hash: Sha256::new(), size: 0, limit, objects: self.objects.clone() })
    }

    /// Copies a whole stream of at most `limit` bytes into the store.
    pub fn ingest(
        &self,
        source: &mut impl Read,
        limit: u64,
        expected: Option<[u8; 32]>,
    ) -> Result<Stored, StoreError> {
        let mut writer = self.begin(limit)?;
        io::copy(source, &mut writer).map_err(failed("copying an object into", &self.tmp))?;
        writer.commit(expected)
    }

    /// Opens an object; `None` where there is none.
    pub fn open(&self, digest: &[u8; 32]) -> Result<Option<Object>, StoreError> {
        let path = self.path(digest);
        match File::open(&path) {
            Ok(file) => {
                let size = file.metadata().map_err(failed("looking at", &path))?.len();
                Ok(Some(Object { file, size, path }))
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(failed("opening", &path)(e)),
        }
    }

    /// Whether the object is there.
    pub fn contains(&self, digest: &[u8; 32]) -> bool {
        self.path(digest).is_file()
    }

    /// Where the object is, or would be.
    pub fn path(&self, digest: &[u8; 32]) -> PathBuf {
        self.objects.join(hex::encode(digest))
    }

    /// Takes an object out at once; its space is free when the result is dropped and nobody reads it any more. `None`
    /// where there is none.
    pub fn take_out(&self, digest: &[u8; 32]) -> Result<Option<TempPath>, StoreError> {
        let path = self.path(digest);
        let out = Builder::new().make_in(&self.tmp, |out| fs::rename(&path, out));
        match out {
            Ok(out) => Ok(Some(out.into_temp_path())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(failed("taking out", &path)(e)),
        }
    }

    /// Removes all objects that are not in `keep`; returns the bytes that became free. Objects being read
    /// stay readable until they are closed.
    pub fn gc(&self, keep: &BTreeSet<[u8; 32]>) -> Result<u64, StoreError> {
        let mut freed = 0;
        for entry in fs::read_dir(&self.objects).map_err(failed("reading the folder", &self.objects))? {
            let entry = entry.map_err(failed("reading the folder", &self.objects))?;
            let name = entry.file_name();
            let mut digest = [0; 32];
            let ours = name.to_str().is_some_and(|name| hex::decode_to_slice(name, &mut digest).is_ok());
            if ours && !keep.contains(&digest) {
                let path = entry.path();
                freed += entry.metadata().map_err(failed("looking at", &path))?.len();
                fs::remove_file(&path).map_err(failed("removing", &path))?;
            }
        }
        Ok(freed)
    }
}

/// An object being written. Dropped without [`Writer::commit`] it leaves nothing.
#[derive(Debug)]
pub struct Writer {
    file: NamedTempFile,
    hash: Sha256,
    size: u64,
    limit: u64,
    objects: PathBuf,
}

impl Writer {
    /// Bytes written so far.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Puts the object into the store, if its digest is the expected one. Returns after everything is on stable
    /// storage. An equal object that is already there is as good.
    pub fn commit(self, expected: Option<[u8; 32]>) -> Result<Stored, StoreError> {
        let digest: [u8; 32] = self.hash.finalize().into();
        let actual = hex::encode(digest);
        if let Some(expected) = expected.filter(|expected| *expected != digest) {
            return Err(StoreError::Digest { expected: hex::encode(expected), actual });
        }
        let path = self.objects.join(actual);
        self.file.as_file().sync_all().map_err(failed("syncing", &path))?;
        self.file.persist(&path).map_err(|e| failed("renaming into place", &path)(e.error))?;
        let sync_folder = File::open(&self.objects).and_then(|dir| dir.sync_all());
        sync_folder.map_err(failed("syncing the folder", &self.objects))?;
        Ok(Stored { digest, size: self.size })
    }
}

impl Write for Writer {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if self.size.saturating_add(buf.len() as u64) > self.limit {
            let limit = self.limit;
            let message = format!("the object is larger than the limit of {limit} bytes");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
        }
        let n = self.file.write(buf)?;
        self.hash.update(&buf[..n]);
        self.size += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// An open object.
#[derive(Debug)]
pub struct Object {
    file: File,
    size: u64,
    path: PathBuf,
}

impl Object {
    /// In bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The file, at its beginning.
    pub fn into_file(self) -> File {
        self.file
    }

    /// A reader of `len` bytes from `start` on; less where the object ends before.
    pub fn range(mut self, start: u64, len: u64) -> Result<Take<File>, StoreError> {
        self.file.seek(SeekFrom::Start(start)).map_err(failed("seeking in", &self.path))?;
        Ok(self.file.take(len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(dir: &Path) -> usize {
        fs::read_dir(dir).unwrap().count()
    }

    #[test]
    fn an_object_is_there_whole_or_not_at_all() {
        let root = tempfile::tempdir().unwrap();
        let store = Store::at(root.path()).unwrap();
        let mut writer = store.begin(100).unwrap();
        writer.write_all(b"ab").unwrap();
        let digest: [u8; 32] = Sha256::digest(b"abc").into();
        assert!(!store.contains(&digest) && store.open(&digest).unwrap().is_none());
        writer.write_all(b"c").unwrap();
        assert_eq!(writer.commit(Some(digest)).unwrap(), Stored { digest, size: 3 });
        assert_eq!(fs::read(store.path(&digest)).unwrap(), b"abc");
        let mut part = String::new();
        store.open(&digest).unwrap().unwrap().range(1, 1).unwrap().read_to_string(&mut part).unwrap();
        assert_eq!(part, "b");
        assert_eq!(store.ingest(&mut &b"abc"[..], 3, None).unwrap().digest, digest, "again is as good");
        assert_eq!(count(&root.path().join("tmp")), 0);
    }

    #[test]
    fn wrong_or_too_many_bytes_leave_nothing() {
        let root = tempfile::tempdir().unwrap();
        let store = Store::at(root.path()).unwrap();
        let error = store.ingest(&mut &b"abc"[..], 3, Some([0; 32])).unwrap_err();
        assert!(matches!(error, StoreError::Digest { .. }));
        let error = store.ingest(&mut &b"abcd"[..], 3, None).unwrap_err();
        assert!(
            matches!(&error, StoreError::Io { source, .. } if source.kind() == io::ErrorKind::FileTooLarge)
        );
        assert_eq!(count(&root.path().join("tmp")) + count(&root.path().join("sha256")), 0);
    }

    #[test]
    fn an_object_that_is_taken_out_is_gone_and_stays_readable_where_it_is_open() {
        let root = tempfile::tempdir().unwrap();
        let store = Store::at(root.path()).unwrap();
        let stored = store.ingest(&mut &b"abc"[..], 3, None).unwrap();
        let open = store.open(&stored.digest).unwrap().unwrap();
        let out = store.take_out(&stored.digest).unwrap().unwrap();
        assert!(!store.contains(&stored.digest));
        assert!(store.take_out(&stored.digest).unwrap().is_none(), "once");
        drop(out);
        assert_eq!(count(&root.path().join("tmp")), 0);
        let mut bytes = String::new();
        open.range(0, 3).unwrap().read_to_string(&mut bytes).unwrap();
        assert_eq!(bytes, "abc");
    }

    #[test]
    fn leftovers_are_removed_and_objects_stay() {
        let root = tempfile::tempdir().unwrap();
        let store = Store::at(root.path()).unwrap();
        let kept = store.ingest(&mut &b"kept"[..], 9, None).unwrap();
        let loose = store.ingest(&mut &b"loose"[..], 9, None).unwrap();
        fs::write(root.path().join("tmp/half"), b"x").unwrap();
        fs::write(root.path().join("sha256/README"), b"not ours").unwrap();
        let store = Store::at(root.path()).unwrap();
        assert_eq!(count(&root.path().join("tmp")), 0);
        assert_eq!(store.gc(&BTreeSet::from([kept.digest])).unwrap(), 5);
        assert!(store.contains(&kept.digest) && !store.contains(&loose.digest));
        assert!(root.path().join("sha256/README").exists());
    }
}
