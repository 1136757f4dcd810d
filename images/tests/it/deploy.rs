//! Whole deploys to a file in place of a disk.

use std::{fs, fs::File, path::Path};

use ironwright_images::{
    deploy::{DeployPlan, Deployed, deploy},
    digest::measure,
    erase::{Method, erase},
    target::{DiskFile, Target},
};

use crate::tools::{run, sparse, text};

const GIB: u64 = 1 << 30;

/// Deploys the image file with a seed onto the disk file.
fn deploy_file(image: &Path, disk: &Path) -> Deployed {
    let measured = measure(File::open(image).unwrap()).unwrap();
    let plan = DeployPlan {
        digest: measured.digest,
        size: measured.size,
        raw_size: Some(measured.raw_size),
        target_is_zero: false,
        seed: vec![
            ("meta-data".into(), b"instance-id: run-1\n".to_vec()),
            ("user-data".into(), b"#cloud-config\n".to_vec()),
        ],
    };
    let mut target = DiskFile::open(disk).unwrap();
    deploy(File::open(image).unwrap(), &mut target, &plan, &mut |_| {}).unwrap()
}

fn blkid_at(disk: &Path, offset: u64) -> String {
    run("blkid", ["-p", "-O", &offset.to_string(), "-o", "export", text(disk)])
}

/// Field report I4: a 1 GiB image on a 10 GiB disk.
#[test]
fn i4_gpt_image_on_a_larger_disk_is_whole_and_can_grow() {
    let dir = tempfile::tempdir().unwrap();
    let raw = sparse(dir.path(), "raw", GIB);
    run("sgdisk", ["-n", "1:2048:+64M", "-t", "1:ef00", "-n", "2:0:0", "-c", "2:root", text(&raw)]);
    let image = dir.path().join("image");
    run("zstd", ["-q", "-1", text(&raw), "-o", text(&image)]);
    let disk = sparse(dir.path(), "disk", 10 * GIB);

    let deployed = deploy_file(&image, &disk);

    let verdict = run("sgdisk", ["-v", text(&disk)]);
    assert!(verdict.contains("No problems found"), "{verdict}");
    let table = run("sgdisk", ["-p", text(&disk)]);
    assert!(table.contains("root") && table.contains("cidata"), "{table}");
    let last_usable = 10 * GIB / 512 - 34;
    assert!(table.contains(&format!("last usable sector is {last_usable}")), "{table}");

    let seed = deployed.seed.unwrap();
    assert!(blkid_at(&disk, seed.offset).contains("LABEL=CIDATA"));
    let root_end = (seed.offset / 512 - 1).to_string();
    assert_eq!(run("sgdisk", ["-E", text(&disk)]).lines().last(), Some(root_end.as_str()));
    let start = run("sgdisk", ["-i", "2", text(&disk)]);
    let start = start.lines().find_map(|l| l.strip_prefix("First sector: ")?.split(' ').next()).unwrap();
    run("sgdisk", ["-d", "2", "-n", &format!("2:{start}:{root_end}"), text(&disk)]);
    let verdict = run("sgdisk", ["-v", text(&disk)]);
    assert!(verdict.contains("No problems found"), "after growing: {verdict}");
}

#[test]
fn dos_image_gets_its_seed_in_a_free_slot() {
    let dir = tempfile::tempdir().unwrap();
    let image = sparse(dir.path(), "image", 64 << 20);
    let label = ["-s", text(&image), "mklabel", "msdos", "mkpart", "primary", "ext4", "1MiB", "100%"];
    run("parted", label);
    let disk = sparse(dir.path(), "disk", GIB);

    let deployed = deploy_file(&image, &disk);

    let table = run("parted", ["-s", "-m", text(&disk), "unit", "B", "print"]);
    let offset = deployed.seed.unwrap().offset;
    assert!(table.contains(&format!("\n2:{offset}B:")), "{table}");
    assert!(blkid_at(&disk, offset).contains("LABEL=CIDATA"));
    assert_eq!(offset, GIB - (2 << 20), "two mebibytes before the end");
}

#[test]
fn an_erased_file_reads_zero_and_takes_no_space() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let path = sparse(dir.path(), "disk", 8 << 20);
    fs::write(&path, vec![0xaa; 8 << 20]).unwrap();
    let mut disk = DiskFile::open(&path).unwrap();
    let erased = erase(&mut disk).unwrap();
    let mut bytes = vec![1; 8 << 20];
    disk.read_at(0, &mut bytes).unwrap();
    // Not every file system can punch holes; those that can must have freed the blocks.
    if erased.method == Method::Discard {
        assert!(erased.target_is_zero && bytes.iter().all(|&b| b == 0));
        assert!(path.metadata().unwrap().blocks() * 512 < 1 << 20);
    } else {
        assert!(bytes[..1 << 20].iter().chain(&bytes[7 << 20..]).all(|&b| b == 0));
    }
}
