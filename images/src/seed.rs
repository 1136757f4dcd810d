//! The NoCloud seed: a small FAT file system with the label that cloud-init looks for.

use std::io::{Cursor, Write};

use fatfs::{FileSystem, FormatVolumeOptions, FsOptions};

use crate::MIB;

/// cloud-init takes the label in lower or upper case only, and FAT labels are upper case. Eleven bytes, padded.
const LABEL: [u8; 11] = *b"CIDATA     ";

/// Most files in a seed.
pub const MAX_FILES: usize = 16;

/// Most bytes of all files together.
pub const MAX_BYTES: u64 = 16 * MIB;

/// Longest file name.
const MAX_NAME: usize = 64;

/// Room for both FATs, the root directory and the rounding of files to clusters.
const OVERHEAD: u64 = MIB;

/// Why there is no seed.
#[derive(Debug, thiserror::Error)]
pub enum SeedError {
    /// A name that is not plain.
    #[error(
        "`{0}` cannot be a seed file name (1 to 64 of A-Z, a-z, 0-9, `-`, `_` and `.`, not beginning with `.`)"
    )]
    Name(String),
    /// The same name twice, as FAT sees it.
    #[error("the seed has two files called `{0}` (FAT does not tell upper from lower case)")]
    Duplicate(String),
    /// Too many files.
    #[error("the seed has {0} files, at most {MAX_FILES} are possible")]
    TooManyFiles(usize),
    /// Too many bytes.
    #[error("the seed has {0} bytes, at most {MAX_BYTES} are possible")]
    TooLarge(u64),
    /// The file system could not be made.
    #[error("building the seed's file system")]
    Build(#[source] std::io::Error),
}

/// Makes a FAT image with the given files, for a disk with sectors of `sector_size` bytes (a FAT of smaller
/// sectors cannot be mounted there). The label is in the boot sector and a real entry of the root directory
/// (field report I15). The same files give the same bytes.
pub fn cidata(files: &[(String, Vec<u8>)], sector_size: u32) -> Result<Vec<u8>, SeedError> {
    check(files)?;
    let content: u64 = files.iter().map(|(_, bytes)| bytes.len() as u64).sum();
    let len = (content + OVERHEAD).next_multiple_of(MIB);
    let mut image = Cursor::new(vec![0; usize::try_from(len).map_err(|_| SeedError::TooLarge(content))?]);
    fill(&mut image, files, sector_size).map_err(SeedError::Build)?;
    Ok(image.into_inner())
}

fn check(files: &[(String, Vec<u8>)]) -> Result<(), SeedError> {
    if files.len() > MAX_FILES {
        return Err(SeedError::TooManyFiles(files.len()));
    }
    let content: u64 = files.iter().map(|(_, bytes)| bytes.len() as u64).sum();
    if content > MAX_BYTES {
        return Err(SeedError::TooLarge(content));
    }
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    for (index, (name, _)) in files.iter().enumerate() {
        let ok = (1..=MAX_NAME).contains(&name.len()) && !name.starts_with('.') && !name.ends_with('.');
        if !ok || !name.bytes().all(plain) {
            return Err(SeedError::Name(name.chars().take(MAX_NAME).collect()));
        }
        if files[..index].iter().any(|(other, _)| other.eq_ignore_ascii_case(name)) {
            return Err(SeedError::Duplicate(name.clone()));
        }
    }
    Ok(())
}

fn fill(image: &mut Cursor<Vec<u8>>, files: &[(String, Vec<u8>)], sector_size: u32) -> std::io::Result<()> {
    let sector = u16::try_from(sector_size).map_err(std::io::Error::other)?;
    let options = FormatVolumeOptions::new().bytes_per_sector(sector).volume_label(LABEL);
    fatfs::format_volume(&mut *image, options.bytes_per_cluster(sector_size.max(4096)))?;
    let volume = FileSystem::new(image, FsOptions::new())?;
    for (name, bytes) in files {
        volume.root_dir().create_file(name)?.write_all(bytes)?;
    }
    volume.unmount()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, content: &[u8]) -> (String, Vec<u8>) {
        (name.to_owned(), content.to_vec())
    }

    #[test]
    fn i15_the_label_is_in_the_boot_sector_and_in_the_root_directory() {
        for sector_size in [512, 4096] {
            let image = cidata(&[file("user-data", b"#cloud-config\n")], sector_size).unwrap();
            let volume = FileSystem::new(Cursor::new(image), FsOptions::new()).unwrap();
            assert_eq!(volume.volume_label(), "CIDATA");
            assert_eq!(volume.read_volume_label_from_root_dir().unwrap().as_deref(), Some("CIDATA"));
        }
    }

    #[test]
    fn the_largest_seed_fits() {
        let half = vec![0xa5; usize::try_from(MAX_BYTES / 2).unwrap()];
        for sector_size in [512, 4096] {
            cidata(&[file("user-data", &half), file("vendor-data", &half)], sector_size).unwrap();
        }
    }

    #[test]
    fn limits_are_named() {
        let name = |text: &str| cidata(&[file(text, b"")], 512).unwrap_err();
        for bad in ["", "a/b", "..", "x.", "ä", &"x".repeat(65)] {
            assert!(matches!(name(bad), SeedError::Name(_)), "{bad}");
        }
        let twice = cidata(&[file("meta-data", b""), file("Meta-Data", b"")], 512);
        assert!(matches!(twice, Err(SeedError::Duplicate(_))));
        let many: Vec<_> = (0..17).map(|i| file(&format!("f{i}"), b"")).collect();
        assert!(matches!(cidata(&many, 512), Err(SeedError::TooManyFiles(17))));
        let large = file("user-data", &vec![0; usize::try_from(MAX_BYTES + 1).unwrap()]);
        assert!(matches!(cidata(&[large], 512), Err(SeedError::TooLarge(_))));
    }
}
