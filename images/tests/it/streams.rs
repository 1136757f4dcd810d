//! Streams made by the usual compressors, and digests by sha256sum.

use std::{fs, fs::File, path::Path};

use ironwright_images::{
    digest::{Measured, measure},
    probe::Format,
};

use crate::tools::{run, text};

fn measured(path: &Path) -> Measured {
    let measured = measure(File::open(path).unwrap()).unwrap();
    let sum = run("sha256sum", [path]);
    assert_eq!(hex::encode(measured.digest), sum[..64]);
    assert_eq!(measured.size, path.metadata().unwrap().len());
    measured
}

/// Field report I1: what the name says does not count.
#[test]
fn i1_streams_of_the_usual_tools_whatever_their_name() {
    let dir = tempfile::tempdir().unwrap();
    let raw = dir.path().join("disk.qcow2");
    let mut disk = b"0123456789abcdef".repeat(10_000);
    // A DOS table with one partition.
    disk[446..510].fill(0);
    disk[446..462].copy_from_slice(&[0, 0, 0, 0, 0x83, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0]);
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    fs::write(&raw, disk).unwrap();
    assert_eq!((measured(&raw).format, measured(&raw).raw_size), (Format::Raw, 160_000));

    let zstd = dir.path().join("disk.gz");
    run("zstd", ["-q", "-f", text(&raw), "-o", text(&zstd)]);
    assert_eq!((measured(&zstd).format, measured(&zstd).raw_size), (Format::Zstd, 160_000));

    run("gzip", ["--keep", "--suffix", ".zst", text(&raw)]);
    let gzip = dir.path().join("disk.qcow2.zst");
    assert_eq!((measured(&gzip).format, measured(&gzip).raw_size), (Format::Gzip, 160_000));

    for (path, format) in [(zstd, Format::Zstd), (gzip, Format::Gzip)] {
        let twice = dir.path().join("twice.img");
        fs::write(&twice, fs::read(path).unwrap().repeat(2)).unwrap();
        assert_eq!((measured(&twice).format, measured(&twice).raw_size), (format, 320_000));
    }
}

#[test]
fn an_xz_file_is_refused_by_its_name_and_not_taken_for_raw() {
    // The header and empty index that `xz < /dev/null` writes (The .xz File Format, section 2).
    let empty_xz =
        *b"\xfd7zXZ\0\0\x04\xe6\xd6\xb4\x46\0\0\0\0\x1c\xdf\x44\x21\x1f\xb6\xf3\x7d\x01\0\0\0\0\x04YZ";
    let error = measure(&empty_xz[..]).unwrap_err();
    assert!(error.to_string().contains("xz"), "{error}");
}
