//! Things that take long to build, kept by the digest of their recipe.

use std::{
    env,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use anyhow::{Context, Result};
use nix::fcntl::{Flock, FlockArg};
use sha2::{Digest, Sha256};

use crate::process;

/// How many builds of one kind are kept; the ones used longest ago go first.
const KEEP: usize = 3;

/// The digest of everything that a build depends on.
#[derive(Debug, Clone, Default)]
pub struct Recipe(Sha256);

impl Recipe {
    /// Adds a text: package names, options, file contents.
    #[must_use]
    pub fn text(mut self, text: &str) -> Self {
        self.0.update((text.len() as u64).to_le_bytes());
        self.0.update(text);
        self
    }

    /// Adds the bytes of a file.
    pub fn file(mut self, path: &Path) -> Result<Self> {
        let mut file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
        let mut digest = Sha256::new();
        io::copy(&mut file, &mut digest).with_context(|| format!("reading {}", path.display()))?;
        self.0.update(digest.finalize());
        Ok(self)
    }

    /// Enough hexadecimal digits of the digest for a file name.
    fn name(&self) -> String {
        hex::encode(&self.0.clone().finalize()[..10])
    }
}

/// The cache's folder: `$XDG_CACHE_HOME/ironwright`, or `rig-cache` in cargo's target folder.
pub fn folder() -> Result<PathBuf> {
    match env::var_os("XDG_CACHE_HOME") {
        Some(home) => Ok(PathBuf::from(home).join("ironwright")),
        None => Ok(crate::artifacts::target_folder()?.join("rig-cache")),
    }
}

/// The folder with what `recipe` makes. Builds it first where it is not there; `build` fills the folder that
/// it gets. Others who want the same wait.
pub fn get(kind: &str, recipe: &Recipe, build: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    get_in(&folder()?, kind, recipe, build)
}

fn get_in(
    cache: &Path,
    kind: &str,
    recipe: &Recipe,
    build: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let folder = cache.join(kind);
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let lock = File::create(cache.join(format!("{kind}.lock"))).context("making the cache's lock")?;
    let _lock = Flock::lock(lock, FlockArg::LockExclusive)
        .map_err(|(_, errno)| errno)
        .context("locking the cache")?;
    let ready = folder.join(recipe.name());
    if !ready.exists() {
        let partial = folder.join("partial");
        remove(&partial)?;
        fs::create_dir(&partial).with_context(|| format!("making {}", partial.display()))?;
        build(&partial).with_context(|| format!("building {kind}"))?;
        fs::rename(&partial, &ready).with_context(|| format!("keeping {}", ready.display()))?;
    }
    File::open(&ready)
        .and_then(|file| file.set_modified(SystemTime::now()))
        .with_context(|| format!("marking {} as used", ready.display()))?;
    remove_oldest(&folder)?;
    Ok(ready)
}

fn remove_oldest(folder: &Path) -> Result<()> {
    let mut builds = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let entry = entry?;
        builds.push((entry.metadata()?.modified()?, entry.path()));
    }
    builds.sort();
    let surplus = builds.len().saturating_sub(KEEP);
    builds[..surplus].iter().try_for_each(|(_, path)| remove(path))
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        // What an interrupted build of a root left belongs to that root's users.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            process::run(process::as_root("rm").args(["--recursive", "--force"]).arg(path)).map(drop)
        }
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(e).with_context(|| format!("removing {}", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(cache: &Path, recipe: &str) -> (PathBuf, bool) {
        let mut built = false;
        let path = get_in(cache, "thing", &Recipe::default().text(recipe), |dir| {
            built = true;
            Ok(fs::write(dir.join("what"), recipe)?)
        });
        (path.unwrap(), built)
    }

    #[test]
    fn the_same_recipe_is_built_once_and_another_one_anew() {
        let cache = tempfile::tempdir().unwrap();
        let (first, built) = build(cache.path(), "a");
        assert!(built);
        assert_eq!(fs::read_to_string(first.join("what")).unwrap(), "a");
        assert_eq!(build(cache.path(), "a"), (first.clone(), false));
        assert_ne!(build(cache.path(), "b").0, first);
    }

    #[test]
    fn the_one_used_longest_ago_goes_first() {
        let cache = tempfile::tempdir().unwrap();
        let (a, _) = build(cache.path(), "a");
        let (b, _) = build(cache.path(), "b");
        build(cache.path(), "c");
        build(cache.path(), "a");
        build(cache.path(), "d");
        assert!(a.exists());
        assert!(!b.exists());
    }

    #[test]
    fn a_failed_build_leaves_nothing() {
        let cache = tempfile::tempdir().unwrap();
        let recipe = Recipe::default().text("a");
        let err = get_in(cache.path(), "thing", &recipe, |_| anyhow::bail!("no")).unwrap_err();
        assert_eq!(err.to_string(), "building thing");
        assert!(build(cache.path(), "a").1);
    }

    #[test]
    fn texts_do_not_run_together() {
        assert_ne!(
            Recipe::default().text("ab").text("c").name(),
            Recipe::default().text("a").text("bc").name()
        );
    }
}
