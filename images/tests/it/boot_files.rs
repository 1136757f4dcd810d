//! Initramfs, modules and bundles.

use std::{
    fs,
    path::{Path, PathBuf},
};

use ironwright_images::{
    bundle, elf,
    initramfs::{Builder, Content, newc},
    modules::{DriverSet, Index, closure},
    ramdisk::{self, RamdiskSpec},
};

use crate::tools::{run, text};

/// A program that every Debian has, with a library beyond libc.
const PROGRAM: &str = "/bin/ls";

/// An ELF64 object with nothing but a `.modinfo` section (System V gABI chapter 4).
fn module_file(modinfo: &[u8]) -> Vec<u8> {
    let names = b"\0.modinfo\0.shstrtab\0";
    let names_at = 64 + modinfo.len();
    let sections_at = (names_at + names.len()).next_multiple_of(8);
    let mut file = Vec::new();
    file.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    file.extend([1u16, 62].map(u16::to_le_bytes).concat()); // relocatable, x86-64
    file.extend(1u32.to_le_bytes());
    file.extend([0, 0, sections_at as u64].map(u64::to_le_bytes).concat());
    file.extend(0u32.to_le_bytes());
    file.extend([64u16, 0, 0, 64, 3, 2].map(u16::to_le_bytes).concat());
    file.extend(modinfo);
    file.extend(names);
    file.resize(sections_at + 64, 0);
    for (name, kind, at, len) in [(1u32, 1u32, 64, modinfo.len()), (10, 3, names_at, names.len())] {
        file.extend([name, kind].map(u32::to_le_bytes).concat());
        file.extend([0, 0, at as u64, len as u64].map(u64::to_le_bytes).concat());
        file.extend([0u32, 0].map(u32::to_le_bytes).concat());
        file.extend([1u64, 0].map(u64::to_le_bytes).concat());
    }
    file
}

/// A kernel's folder as a package brings it: no depmod has run.
fn kernel(dir: &Path) -> PathBuf {
    let root = dir.join("6.1.0-test");
    let modules: &[(&str, &[u8])] = &[
        ("kernel/drivers/virtio/virtio.ko", b"depends=\0"),
        ("kernel/drivers/virtio/virtio_ring.ko", b"depends=virtio\0"),
        (
            "kernel/drivers/net/virtio_net.ko",
            b"alias=virtio:d00000001v*\0depends=virtio-ring,virtio,net_failover\0",
        ),
        ("kernel/drivers/net/net_failover.ko", b"depends=failover\0softdep=pre: crc_none\0"),
        ("kernel/net/core/failover.ko", b"license=GPL\0"),
        ("kernel/drivers/net/ethernet/x/card.ko", b"alias=pci:v0000ABCDd*\0depends=\0"),
        ("kernel/drivers/net/wireless/y/wifi.ko", b"depends=\0"),
    ];
    for (path, modinfo) in modules {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, module_file(modinfo)).unwrap();
    }
    let packed = zstd::encode_all(&module_file(b"alias=pci:v0000DCBAd*\0")[..], 1).unwrap();
    fs::write(root.join("kernel/drivers/net/ethernet/x/packed.ko.zst"), packed).unwrap();
    fs::write(root.join("modules.builtin"), "kernel/drivers/nvme/host/nvme.ko\n").unwrap();
    root
}

#[test]
fn modules_come_with_their_needs_and_resolve_in_load_order() {
    let dir = tempfile::tempdir().unwrap();
    let root = kernel(dir.path());
    let vm = closure(&root, DriverSet::Vm, &[]).unwrap();
    let names: Vec<&str> = vm.modules.iter().map(|m| m.name.as_str()).collect();
    assert_eq!(names, ["virtio", "virtio_ring", "failover", "net_failover", "virtio_net"]);
    assert!(vm.missing.contains(&"e1000".to_owned()) && !vm.missing.contains(&"nvme".to_owned()));

    let full = closure(&root, DriverSet::Full, &["wifi".to_owned()]).unwrap();
    let names: Vec<&str> = full.modules.iter().map(|m| m.name.as_str()).collect();
    assert!(names.contains(&"card") && names.contains(&"packed") && names.contains(&"wifi"));
    let index = Index::parse(&root, &full.modules_dep(), &full.modules_alias());
    let files = index.resolve("virtio:d00000001v00001AF4");
    assert_eq!(files.last(), Some(&root.join("kernel/drivers/net/virtio_net.ko")));
    assert_eq!(files.len(), 5);
    assert_eq!(index.resolve("pci:v0000DCBAd01"), [root.join("kernel/drivers/net/ethernet/x/packed.ko")]);
}

#[test]
fn cpio_lists_what_the_builder_added() {
    let dir = tempfile::tempdir().unwrap();
    let mut builder = Builder::new();
    builder.add_file("/init", 0o755, Content::File(PROGRAM.into())).unwrap();
    builder.add_char_device("/dev/console", 0o600, 5, 1).unwrap();
    builder.add_symlink("/usr/bin/tool", "../lib/tool").unwrap();
    let archive = dir.path().join("archive");
    builder.write(fs::File::create(&archive).unwrap()).unwrap();
    let listing = run("cpio", ["-t", "-v", "-n", "--quiet", "-F", text(&archive)]);
    let lines: Vec<Vec<&str>> = listing.lines().map(|line| line.split_whitespace().collect()).collect();
    let of =
        |name: &str| lines.iter().find(|words| words.contains(&name)).unwrap_or_else(|| panic!("{listing}"));
    let size = fs::metadata(PROGRAM).unwrap().len().to_string();
    assert_eq!(of("init")[..5], ["-rwxr-xr-x", "1", "0", "0", &size]);
    assert_eq!(of("dev/console")[..6], ["crw-------", "1", "0", "0", "5,", "1"]);
    assert_eq!(of("usr/bin")[0], "drwxr-xr-x");
    assert_eq!(of("usr/bin/tool")[0], "lrwxrwxrwx");
    assert!(listing.contains("usr/bin/tool -> ../lib/tool"));
}

/// ldd asks the loader itself.
#[test]
fn shared_objects_are_those_that_ldd_names() {
    let found = elf::closure(&[Path::new(PROGRAM)], &[]).unwrap();
    let listing = run("ldd", [PROGRAM]);
    let expected: Vec<&str> =
        listing.lines().filter_map(|line| line.split_once(" => ")).map(|(name, _)| name.trim()).collect();
    let mut names: Vec<&str> = found.libraries.keys().map(String::as_str).collect();
    names.sort_by_key(|name| expected.iter().position(|e| e == name));
    assert_eq!(names, expected);
    assert!(listing.contains(text(&found.loader.unwrap())));
}

#[test]
fn a_bundle_unpacks_with_tar_and_runs_with_its_own_loader() {
    let dir = tempfile::tempdir().unwrap();
    let build = || {
        let mut bytes = Vec::new();
        bundle::build(Path::new(PROGRAM), "ironwright", &[], &mut bytes).unwrap();
        bytes
    };
    let bytes = build();
    assert!(bytes == build(), "the same files give the same bytes");
    let file = dir.path().join("bundle.tar.gz");
    fs::write(&file, bytes).unwrap();
    run("tar", ["-xzf", text(&file), "-C", text(dir.path())]);
    let loader = elf::closure(&[Path::new(PROGRAM)], &[]).unwrap().loader.unwrap();
    let loader = dir.path().join("lib").join(loader.file_name().unwrap());
    let library_path = dir.path().join("lib");
    let program = dir.path().join("ironwright");
    let out =
        run(text(&loader), ["--library-path", text(&library_path), text(&program), text(&library_path)]);
    assert!(out.contains("libc.so.6"), "{out}");
}

#[test]
fn a_ramdisk_is_complete_and_the_same_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let spec = RamdiskSpec {
        init: PROGRAM.into(),
        modules_dir: kernel(dir.path()),
        drivers: DriverSet::Vm,
        extra_modules: Vec::new(),
        extra_libraries: Vec::new(),
        level: 1,
    };
    let mut bytes = Vec::new();
    let report = ramdisk::build(&spec, &mut bytes).unwrap();
    let mut again = Vec::new();
    ramdisk::build(&spec, &mut again).unwrap();
    assert!(bytes == again);
    assert_eq!((report.modules, report.compressed), (5, bytes.len() as u64));
    assert_eq!(report.kernel, "6.1.0-test");

    let file = dir.path().join("ramdisk.zst");
    fs::write(&file, bytes).unwrap();
    let archive = dir.path().join("ramdisk");
    run("zstd", ["-q", "-d", text(&file), "-o", text(&archive)]);
    let archive = fs::read(archive).unwrap();
    assert_eq!(report.unpacked, archive.len() as u64);
    let entries = newc::parse(&archive).unwrap();
    let entry = |name: &str| entries.iter().find(|e| e.name == name).unwrap_or_else(|| panic!("{name}"));
    assert_eq!(entry("init").data, fs::read(PROGRAM).unwrap());
    assert_eq!(entry("dev/console").header.rdev_major, 5);
    for folder in ["proc", "sys", "run", "tmp", "etc"] {
        assert_eq!(entry(folder).header.mode, newc::S_IFDIR | 0o755);
    }
    for line in run("ldd", [PROGRAM]).lines() {
        let name = line.split_whitespace().next().unwrap().rsplit('/').next().unwrap();
        let there = entries.iter().any(|e| e.name.rsplit('/').next() == Some(name));
        assert!(there || name.starts_with("linux-vdso"), "{name}");
    }
    let dep = &entry("lib/modules/6.1.0-test/modules.dep").data;
    assert!(str::from_utf8(dep).unwrap().contains("kernel/drivers/net/virtio_net.ko: "));
}
