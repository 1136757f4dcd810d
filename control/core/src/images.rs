//! Images: names for the digests of disk images.
//!
//! ```text
//!   register ──▶ Fetching ──▶ Ready        the digest never changes
//!      ▲            └───────▶ Failed
//!      └── again ──────────────┘
//!
//!   remove, from Ready or Failed: the name is free again
//! ```

use ironwright_proto::{
    api::{ApiErrorBody, Image, ImageState, NewImage},
    ids::{Digest, Name},
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    audit,
    error::Error,
    runs,
    store::ReadTxn,
    table::Table,
    tx::{Tx, failure},
};

/// What [`Image::source`] says of an uploaded image.
pub const UPLOAD: &str = "upload";
/// Longest URL of an image, in bytes.
const MAX_URL: usize = 2048;

/// What control found out about an image's bytes when it stored them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageFacts {
    /// Digest of the bytes as they were given.
    pub digest: Digest,
    /// Size of the bytes as they were given.
    pub size_bytes: u64,
    /// Size after decoding.
    pub raw_size_bytes: u64,
    /// `raw`, `gzip` or `zstd`.
    pub format: String,
}

#[derive(Serialize, Deserialize)]
struct Record {
    image: Image,
    /// The digest that the operator asked for.
    expected: Option<Digest>,
}

const IMAGES: Table<Record> = Table::new("image");

/// Registers an image that is fetched from a URL.
pub(crate) fn register(tx: &mut Tx<'_>, actor: &str, new: &NewImage) -> Result<Image, Error> {
    let known_scheme = ["http://", "https://", "file:///"].iter().any(|scheme| new.url.starts_with(scheme));
    if !known_scheme || new.url.len() > MAX_URL || new.url.bytes().any(|b| !b.is_ascii_graphic()) {
        let why = format!("expected an http://, https:// or file:/// URL of at most {MAX_URL} bytes");
        return Err(Error::bad("url", why));
    }
    begin(tx, actor, &new.name, &new.url, new.digest)
}

/// Registers an image whose bytes come with the request.
pub(crate) fn register_upload(tx: &mut Tx<'_>, actor: &str, name: &Name) -> Result<Image, Error> {
    begin(tx, actor, name, UPLOAD, None)
}

fn begin(
    tx: &mut Tx<'_>,
    actor: &str,
    name: &Name,
    source: &str,
    expected: Option<Digest>,
) -> Result<Image, Error> {
    if IMAGES.get(tx.txn, name.as_str())?.is_some_and(|old| old.image.state != ImageState::Failed) {
        return Err(Error::ImageExists(name.clone()));
    }
    let image = Image {
        name: name.clone(),
        source: source.to_owned(),
        state: ImageState::Fetching,
        digest: None,
        size_bytes: 0,
        raw_size_bytes: 0,
        format: None,
        fetched_bytes: 0,
        error: None,
        created_ms: tx.now_ms,
    };
    IMAGES.put(tx.txn, name.as_str(), &Record { image: image.clone(), expected })?;
    // URLs may carry credentials in their query; the log keeps what is before it.
    let shown = source.split(['?', '#']).next().unwrap_or_default();
    let detail = json!({"source": audit::clip(shown), "expected": expected});
    audit::append(tx, actor, "image.registered", name.as_str(), detail)?;
    Ok(image)
}

/// The bytes are stored. `Ready`, or `Failed` where another digest was asked for.
pub(crate) fn fetched(tx: &mut Tx<'_>, name: &Name, facts: &ImageFacts) -> Result<Image, Error> {
    let record = fetching(tx.txn, name)?;
    if let Some(expected) = record.expected.filter(|expected| *expected != facts.digest) {
        let message = format!("the bytes of image `{name}` have digest {}, not {expected}", facts.digest);
        return fail(tx, name, failure("digest_mismatch", message));
    }
    let image = Image {
        state: ImageState::Ready,
        digest: Some(facts.digest),
        size_bytes: facts.size_bytes,
        raw_size_bytes: facts.raw_size_bytes,
        format: Some(facts.format.clone()),
        fetched_bytes: facts.size_bytes,
        ..record.image
    };
    IMAGES.put(tx.txn, name.as_str(), &Record { image: image.clone(), expected: record.expected })?;
    let detail = json!({"digest": facts.digest, "size": facts.size_bytes, "raw_size": facts.raw_size_bytes});
    audit::append(tx, "control", "image.ready", name.as_str(), detail)?;
    Ok(image)
}

/// The bytes could not be had.
pub(crate) fn fail(tx: &mut Tx<'_>, name: &Name, error: ApiErrorBody) -> Result<Image, Error> {
    let record = fetching(tx.txn, name)?;
    let detail = json!({"code": error.code, "message": audit::clip(&error.message)});
    let image = Image { state: ImageState::Failed, error: Some(error), ..record.image };
    IMAGES.put(tx.txn, name.as_str(), &Record { image: image.clone(), expected: record.expected })?;
    audit::append(tx, "control", "image.failed", name.as_str(), detail)?;
    Ok(image)
}

fn fetching(txn: &dyn ReadTxn, name: &Name) -> Result<Record, Error> {
    let record = IMAGES.get(txn, name.as_str())?.ok_or_else(|| Error::UnknownImage(name.to_string()))?;
    if record.image.state != ImageState::Fetching {
        return Err(Error::ImageNotFetching(name.clone()));
    }
    Ok(record)
}

/// Forgets an image that no run puts on a disk. Gives what it was.
pub(crate) fn remove(tx: &mut Tx<'_>, actor: &str, name: &str) -> Result<Image, Error> {
    let image = need(tx.txn, name)?;
    if image.state == ImageState::Fetching {
        return Err(Error::ImageFetching(image.name));
    }
    if let Some(run) = runs::open_of_image(tx.txn, &image.name)? {
        return Err(Error::ImageInUse { image: image.name, run });
    }
    IMAGES.delete(tx.txn, name)?;
    audit::append(tx, actor, "image.removed", name, json!({"digest": image.digest}))?;
    Ok(image)
}

/// Whether an image has these bytes.
pub(crate) fn has_bytes(txn: &dyn ReadTxn, digest: &Digest) -> Result<bool, Error> {
    Ok(all(txn)?.iter().any(|image| image.digest.as_ref() == Some(digest)))
}

/// After a start: gives what has to be fetched again, and fails uploads, whose bytes nobody will send again.
pub(crate) fn resume(tx: &mut Tx<'_>) -> Result<Vec<Image>, Error> {
    let (mut again, mut cut_off) = (Vec::new(), Vec::new());
    for image in all(tx.txn)?.into_iter().filter(|image| image.state == ImageState::Fetching) {
        if image.source == UPLOAD { cut_off.push(image) } else { again.push(image) }
    }
    for image in cut_off {
        let message =
            format!("control was restarted while image `{}` was uploaded; upload it again", image.name);
        fail(tx, &image.name, failure("interrupted", message))?;
    }
    Ok(again)
}

pub(crate) fn all(txn: &dyn ReadTxn) -> Result<Vec<Image>, Error> {
    Ok(IMAGES.all(txn)?.into_iter().map(|record| record.image).collect())
}

pub(crate) fn need(txn: &dyn ReadTxn, name: &str) -> Result<Image, Error> {
    let record = IMAGES.get(txn, name)?.ok_or_else(|| Error::UnknownImage(audit::clip(name)))?;
    Ok(record.image)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        store::{MemStore, Store},
        tx::Seed,
    };

    fn run<R>(store: &MemStore, f: impl Fn(&mut Tx<'_>) -> Result<R, Error>) -> Result<R, Error> {
        store.write(|txn| f(&mut Tx::new(txn, 7, Seed::NONE)))
    }

    fn new(digest: Option<Digest>) -> NewImage {
        NewImage { name: "debian-12".parse().unwrap(), url: "https://x.example/d.raw".into(), digest }
    }

    fn facts(byte: u8) -> ImageFacts {
        ImageFacts { digest: Digest([byte; 32]), size_bytes: 3, raw_size_bytes: 9, format: "gzip".into() }
    }

    #[test]
    fn an_image_becomes_ready_once_and_its_digest_stays() {
        let store = MemStore::new();
        let name = "debian-12".parse().unwrap();
        run(&store, |tx| register(tx, "admin", &new(None))).unwrap();
        assert!(matches!(run(&store, |tx| register(tx, "admin", &new(None))), Err(Error::ImageExists(_))));
        let image = run(&store, |tx| fetched(tx, &name, &facts(1))).unwrap();
        assert_eq!((image.state, image.digest), (ImageState::Ready, Some(Digest([1; 32]))));
        assert!(matches!(run(&store, |tx| fetched(tx, &name, &facts(2))), Err(Error::ImageNotFetching(_))));
        assert!(matches!(run(&store, |tx| register_upload(tx, "admin", &name)), Err(Error::ImageExists(_))));
    }

    #[test]
    fn a_digest_mismatch_fails_the_image_by_name_and_it_can_be_registered_again() {
        let store = MemStore::new();
        let name = "debian-12".parse().unwrap();
        run(&store, |tx| register(tx, "admin", &new(Some(Digest([1; 32]))))).unwrap();
        let image = run(&store, |tx| fetched(tx, &name, &facts(2))).unwrap();
        assert_eq!(image.state, ImageState::Failed);
        assert_eq!(image.error.unwrap().code, "digest_mismatch");
        assert_eq!(image.digest, None);
        run(&store, |tx| register(tx, "admin", &new(Some(Digest([2; 32]))))).unwrap();
        assert_eq!(run(&store, |tx| fetched(tx, &name, &facts(2))).unwrap().state, ImageState::Ready);
    }

    #[test]
    fn a_removed_image_frees_its_name_and_a_fetch_is_left_alone() {
        let store = MemStore::new();
        let name = "debian-12".parse().unwrap();
        assert!(matches!(run(&store, |tx| remove(tx, "admin", "debian-12")), Err(Error::UnknownImage(_))));
        run(&store, |tx| register(tx, "admin", &new(None))).unwrap();
        assert!(matches!(run(&store, |tx| remove(tx, "admin", "debian-12")), Err(Error::ImageFetching(_))));
        run(&store, |tx| fetched(tx, &name, &facts(1))).unwrap();
        assert!(store.read(|txn| has_bytes(txn, &Digest([1; 32]))).unwrap());
        run(&store, |tx| remove(tx, "admin", "debian-12")).unwrap();
        assert!(!store.read(|txn| has_bytes(txn, &Digest([1; 32]))).unwrap());
        let log = store.read(|txn| audit::after(txn, 0, 10)).unwrap();
        assert_eq!(log.last().map(|event| (&*event.actor, &*event.action)), Some(("admin", "image.removed")));
        run(&store, |tx| register(tx, "admin", &new(None))).unwrap();
        assert_eq!(run(&store, |tx| fetched(tx, &name, &facts(2))).unwrap().digest, Some(Digest([2; 32])));
    }

    #[test]
    fn a_restart_fetches_urls_again_and_fails_uploads() {
        let store = MemStore::new();
        run(&store, |tx| register(tx, "admin", &new(None))).unwrap();
        run(&store, |tx| register_upload(tx, "admin", &"up".parse().unwrap())).unwrap();
        let again = run(&store, resume).unwrap();
        assert_eq!(again.iter().map(|image| image.name.as_str()).collect::<Vec<_>>(), ["debian-12"]);
        let upload = store.read(|txn| need(txn, "up")).unwrap();
        assert_eq!(upload.error.unwrap().code, "interrupted");
    }

    #[test]
    fn other_urls_are_refused_and_secrets_in_them_are_not_logged() {
        let store = MemStore::new();
        for url in ["ftp://x/y", "file://host/x", "https://x/ y", ""] {
            let bad = NewImage { url: url.into(), ..new(None) };
            let refused = run(&store, |tx| register(tx, "admin", &bad)).unwrap_err();
            assert_eq!(refused.field(), Some("url"), "{url}");
        }
        let signed = NewImage { url: "https://x.example/d?sig=s3cret".into(), ..new(None) };
        run(&store, |tx| register(tx, "admin", &signed)).unwrap();
        let log = store.read(|txn| audit::after(txn, 0, 10)).unwrap();
        assert!(!serde_json::to_string(&log).unwrap().contains("s3cret"));
    }
}
