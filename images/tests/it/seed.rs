//! Seeds as cloud-init's helpers and a file system checker see them.

use std::fs;

use ironwright_images::seed::cidata;

use crate::tools::{run, text};

/// Field report I15: the label must be seen by whoever looks, wherever they look.
#[test]
fn i15_blkid_sees_the_label_and_the_file_system_is_clean() {
    let dir = tempfile::tempdir().unwrap();
    let files = ["user-data", "meta-data", "vendor-data", "agent.toml"]
        .map(|name| (name.to_owned(), format!("content of {name}\n").repeat(700).into_bytes()));
    for sector_size in [512, 4096] {
        let path = dir.path().join(format!("seed-{sector_size}"));
        fs::write(&path, cidata(&files, sector_size).unwrap()).unwrap();

        let found = run("blkid", ["-p", "-o", "export", text(&path)]);
        let has = |line: &str| found.lines().any(|l| l == line);
        assert!(has("LABEL=CIDATA") && has("LABEL_FATBOOT=CIDATA") && has("TYPE=vfat"), "{found}");

        run("fsck.vfat", ["-n", text(&path)]);
        if sector_size == 512 {
            let listing = run("mdir", ["-b", "-i", text(&path), "::/"]);
            let mut names: Vec<&str> = listing.lines().map(|line| line.trim_start_matches("::/")).collect();
            names.sort_unstable();
            assert_eq!(names, ["agent.toml", "meta-data", "user-data", "vendor-data"]);
            for (name, content) in &files {
                let read = run("mtype", ["-i", text(&path), &format!("::/{name}")]);
                assert_eq!(read.as_bytes(), content);
            }
        }
    }
}
