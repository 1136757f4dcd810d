//! The provisioning orders on a machine made of files: its disk is a file, its site is on loopback.

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use ironwright_agent::{CommandError, Ctx, Executor, Order};
use ironwright_proto::{
    Message, kinds,
    wire::{
        BootFinishArgs, DiskEraseArgs, DiskEraseResult, DiskHint, ImageDeployArgs, ImageDeployResult,
        Inventory,
    },
};
use ironwright_ramdisk::{
    boot::modules::Drivers,
    exec::{Machine, Provisioner, Waits, source::resume::Patience},
    machine::Roots,
};
use sha2::{Digest, Sha256};

use crate::server::{Act, Server};

const MIB: usize = 1 << 20;
const DISK: usize = 16 * MIB;

const WAITS: Waits = Waits {
    disks: Duration::from_millis(50),
    source: Patience {
        connect: Duration::from_secs(5),
        read: Duration::from_secs(5),
        absence: Duration::from_secs(10),
        breaks: 10,
        first_pause: Duration::from_millis(5),
        longest_pause: Duration::from_millis(20),
    },
};

/// A machine with the disk `vda`, full of an older system.
struct Rig {
    root: tempfile::TempDir,
    provisioner: Provisioner,
}

impl Rig {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let roots = Roots::under(root.path());
        fs::create_dir_all(&roots.dev).unwrap();
        let rig = |name: &str, bytes: usize| {
            let folder = roots.sys.join("block").join(name);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("size"), format!("{}\n", bytes / 512)).unwrap();
            fs::write(roots.dev.join(name), vec![0xee; bytes]).unwrap();
        };
        rig("vda", DISK);
        rig("vdb", 2 * MIB);
        let drivers = Drivers::new(root.path().join("bus"), Box::new(|_| vec![]), |_| Ok(()));
        let provisioner = Provisioner::new(Arc::new(Machine::new(roots, drivers, WAITS)));
        Self { root, provisioner }
    }

    fn disk(&self) -> PathBuf {
        self.root.path().join("dev/vda")
    }

    async fn run(&self, kind: &str, args: impl Message) -> Result<Vec<u8>, CommandError> {
        self.run_with(kind, args, Ctx::detached("c1").0).await
    }

    async fn run_with(&self, kind: &str, args: impl Message, ctx: Ctx) -> Result<Vec<u8>, CommandError> {
        let order = Order { id: "c1".into(), kind: kind.into(), args: args.encode_to_vec() };
        self.provisioner.run(order, ctx).await
    }

    async fn deploy(&self, args: ImageDeployArgs) -> Result<ImageDeployResult, CommandError> {
        let result = self.run(kinds::IMAGE_DEPLOY, args).await?;
        Ok(ImageDeployResult::decode(result.as_slice()).unwrap())
    }

    /// The disk does not boot: its first and last mebibyte are zero.
    fn assert_ends_zero(&self) {
        let disk = fs::read(self.disk()).unwrap();
        assert!(disk[..MIB].iter().chain(&disk[DISK - MIB..]).all(|&byte| byte == 0));
    }

    fn assert_untouched(&self) {
        assert!(fs::read(self.disk()).unwrap().iter().all(|&byte| byte == 0xee));
    }
}

/// A disk image with a DOS partition table and no two equal sectors.
fn image(length: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..length).map(|i| u8::try_from((i / 512 + i) % 251).unwrap() | 1).collect();
    bytes[440..510].fill(0);
    // One Linux partition, sector 2048 to the end of the image.
    bytes[450] = 0x83;
    bytes[454..458].copy_from_slice(&2048u32.to_le_bytes());
    bytes[458..462].copy_from_slice(&u32::try_from(length / 512 - 2048).unwrap().to_le_bytes());
    bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
    bytes
}

fn hint(name: &str) -> DiskHint {
    DiskHint { name: name.into(), ..DiskHint::default() }
}

fn order(url: String, image: &[u8]) -> ImageDeployArgs {
    ImageDeployArgs {
        url,
        digest: format!("sha256:{}", hex::encode(Sha256::digest(image))),
        size_bytes: image.len() as u64,
        raw_size_bytes: image.len() as u64,
        hint: Some(hint("vda")),
        seed: vec![],
    }
}

#[tokio::test]
async fn an_image_is_written_across_broken_connections_and_found_finished() {
    let rig = Rig::new();
    let image = image(5 * MIB);
    let server = Server::start(image.clone(), &[Act::Cut(2 * MIB), Act::Refuse, Act::Cut(MIB)]).await;
    let erase = DiskEraseArgs { hint: Some(hint("vda")), image_size_bytes: image.len() as u64 };
    let erased = rig.run(kinds::DISK_ERASE, erase).await.unwrap();
    let erased = DiskEraseResult::decode(erased.as_slice()).unwrap();
    assert_eq!(erased.size_bytes, DISK as u64);
    rig.assert_ends_zero();

    let done = rig.deploy(order(server.url(), &image)).await.unwrap();
    assert_eq!((done.format.as_str(), done.bytes_read), ("raw", image.len() as u64));
    assert_eq!(done.path, rig.disk().display().to_string());
    let disk = fs::read(rig.disk()).unwrap();
    assert!(disk[..image.len()] == image);
    assert!(disk[DISK - MIB..].iter().all(|&byte| byte == 0));
    rig.run(kinds::BOOT_FINISH, BootFinishArgs { path: done.path }).await.unwrap();
}

#[tokio::test]
async fn i2_one_wrong_byte_fails_and_the_disk_does_not_boot() {
    let rig = Rig::new();
    let good = image(5 * MIB);
    let mut wrong = good.clone();
    wrong[3 * MIB] ^= 1;
    let server = Server::start(wrong, &[]).await;
    let error = rig.deploy(order(server.url(), &good)).await.unwrap_err();
    assert_eq!(error.code, "digest_mismatch");
    assert!(error.message.contains("both ends of the disk were zeroed"), "{}", error.message);
    rig.assert_ends_zero();
    let path = rig.disk().display().to_string();
    let error = rig.run(kinds::BOOT_FINISH, BootFinishArgs { path }).await.unwrap_err();
    assert_eq!(error.code, "no_partition_table");
}

#[tokio::test]
async fn a_source_that_goes_away_in_the_middle_leaves_a_disk_that_does_not_boot() {
    let rig = Rig::new();
    let image = image(5 * MIB);
    let server = Server::start(image.clone(), &[Act::Cut(3 * MIB), Act::Status(404)]).await;
    let error = rig.deploy(order(server.url(), &image)).await.unwrap_err();
    assert_eq!(error.code, "source_unreachable");
    assert!(error.message.contains("404"), "{}", error.message);
    rig.assert_ends_zero();
}

#[tokio::test]
async fn a_cancelled_deploy_leaves_a_disk_that_does_not_boot() {
    let rig = Rig::new();
    let image = image(5 * MIB);
    let server = Server::start(image.clone(), &[Act::Stall(3 * MIB)]).await;
    let (ctx, mut progress) = Ctx::detached("c1");
    let cancel = ctx.clone();
    let args = order(server.url(), &image);
    let (result, ()) = tokio::join!(rig.run_with(kinds::IMAGE_DEPLOY, args, ctx), async move {
        progress.wait_for(|progress| progress.done > 0).await.unwrap();
        cancel.cancel();
    });
    assert_eq!(result.unwrap_err().code, "cancelled");
    rig.assert_ends_zero();
}

#[tokio::test]
async fn what_can_be_known_before_the_first_write_leaves_the_disk_alone() {
    let rig = Rig::new();
    let large = image(DISK + 512);
    let server = Server::start(large.clone(), &[]).await;
    let good = order(server.url(), &large);
    let unknown_size = ImageDeployArgs { raw_size_bytes: 0, ..good.clone() };
    let other_size = ImageDeployArgs { size_bytes: MIB as u64, raw_size_bytes: 0, ..good.clone() };
    let other_disk = ImageDeployArgs { hint: Some(hint("vdz")), ..good.clone() };
    let no_hint = ImageDeployArgs { hint: None, size_bytes: 1, raw_size_bytes: 0, ..good.clone() };
    let bad_url = ImageDeployArgs { url: "ftp://x/y".into(), ..good.clone() };
    let bad_digest = ImageDeployArgs { digest: "sha256:00".into(), ..good.clone() };
    let empty = ImageDeployArgs { size_bytes: 0, ..good.clone() };
    for (args, code) in [
        (good, "image_too_large"),
        (unknown_size, "image_too_large"),
        (other_size, "image_size_mismatch"),
        (other_disk, "no_disk"),
        (no_hint, "no_disk"),
        (bad_url, "malformed_args"),
        (bad_digest, "malformed_args"),
        (empty, "malformed_args"),
    ] {
        let error = rig.deploy(args).await.unwrap_err();
        assert_eq!(error.code, code, "{}", error.message);
        rig.assert_untouched();
    }
}

#[tokio::test]
async fn an_image_of_unknown_format_is_refused_before_the_first_write() {
    let rig = Rig::new();
    let qcow = [b"QFI\xfb".as_slice(), &[0; 4096]].concat();
    let server = Server::start(qcow.clone(), &[]).await;
    let error = rig.deploy(order(server.url(), &qcow)).await.unwrap_err();
    assert_eq!(error.code, "unknown_format");
    rig.assert_untouched();
}

#[tokio::test]
async fn the_inventory_lists_the_disks() {
    let rig = Rig::new();
    let found = rig.run(kinds::INVENTORY_COLLECT, ()).await.unwrap();
    let found = Inventory::decode(found.as_slice()).unwrap();
    let disks: Vec<(&str, u64)> = found.disks.iter().map(|d| (d.name.as_str(), d.size_bytes)).collect();
    assert_eq!(disks, [("vda", DISK as u64), ("vdb", 2 * MIB as u64)]);
}

#[tokio::test]
async fn orders_for_other_things_are_refused() {
    let rig = Rig::new();
    let path = "/etc/passwd".to_owned();
    let error = rig.run(kinds::BOOT_FINISH, BootFinishArgs { path }).await.unwrap_err();
    assert_eq!(error.code, "no_disk");
    assert_eq!(rig.run("vm.create", ()).await.unwrap_err().code, "unsupported");
}
