//! The program as an operator meets it: the real binary against a real control on loopback.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

/// Whatever is waited for in these tests comes within this time.
const DEADLINE: Duration = Duration::from_secs(60);
const DONE: i32 = 0;
const REFUSED: i32 = 1;
const USAGE: i32 = 2;
const UNREACHABLE: i32 = 3;
/// Digest of nothing that these tests make.
const OTHER_DIGEST: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000000";

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ironwright"))
}

/// A control of its own for each test, and an operator who has logged in.
struct Rig {
    dir: TempDir,
    serving: Child,
    url: String,
    ca_pin: String,
}

impl Rig {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("control");
        let made = program()
            .args(["control", "init", "--json", "--name", "127.0.0.1"])
            .args(["--api", "127.0.0.1:0", "--gateway", "127.0.0.1:0", "--dir"])
            .arg(&folder)
            .output()
            .unwrap();
        let made: Value = serde_json::from_slice(&made.stdout).unwrap();
        allow_file_urls(&folder, &dir.path().join("images"));
        fs::write(dir.path().join("token"), made["admin_token"].as_str().unwrap()).unwrap();
        let (serving, url) = serve(&folder);
        let ca_pin = made["ca_pin"].as_str().unwrap().to_owned();
        let rig = Self { dir, serving, url, ca_pin };
        let token = rig.path("token");
        let login = ["login", "--url", &rig.url, "--ca-pin", &rig.ca_pin, "--token-file", &token];
        assert_eq!(rig.json(DONE, &login)["ca_pin"], rig.ca_pin);
        rig
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    fn run(&self, args: &[&str]) -> Output {
        program().args(args).env("IRONWRIGHT_CONFIG", self.path("client.toml")).output().unwrap()
    }

    /// What a command says with `--json`, for an exit code.
    fn json(&self, code: i32, args: &[&str]) -> Value {
        let output = self.run(&[args, &["--json"]].concat());
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }

    /// What a failing command says to a person.
    fn fails(&self, code: i32, args: &[&str]) -> String {
        let output = self.run(args);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(output.stdout.is_empty(), "{args:?}: {}", text(&output.stdout));
        said
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = self.serving.kill();
        let _ = self.serving.wait();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// These bytes as a disk: with a DOS table that has one partition.
fn disk(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[446..510].fill(0);
    bytes[446..462].copy_from_slice(&[0, 0, 0, 0, 0x83, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0]);
    bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
    bytes
}

/// Makes a folder from which control adds images by file URL.
fn allow_file_urls(control: &Path, images: &Path) {
    fs::create_dir(images).unwrap();
    let config = control.join("control.toml");
    // Before the first table.
    let text = format!("image_folder = '{}'\n{}", images.display(), fs::read_to_string(&config).unwrap());
    fs::write(&config, text).unwrap();
}

/// Starts control and waits until it is ready; gives its URL.
fn serve(folder: &Path) -> (Child, String) {
    let mut serving = program()
        .args(["control", "serve", "--dir"])
        .arg(folder)
        .env_remove("RUST_LOG")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let log = BufReader::new(serving.stderr.take().unwrap());
    let (ready, told) = mpsc::channel();
    // Reads on to the end, so that control never waits for its log.
    thread::spawn(move || {
        for line in log.lines().map_while(Result::ok) {
            if let Some((_, rest)) = line.split_once("ready api=") {
                let _ = ready.send(rest.split(' ').next().unwrap_or_default().to_owned());
            }
        }
    });
    let address = told.recv_timeout(DEADLINE).expect("control says that it is ready");
    (serving, format!("https://{address}"))
}

/// Follows the chain as `proto::api::AuditEvent` and the audit module describe it.
fn check_chain(events: &[Value]) {
    let mut prev_hash = "0".repeat(64);
    for (event, seq) in events.iter().zip(1u64..) {
        assert_eq!(
            (event["seq"].as_u64(), event["prev_hash"].as_str()),
            (Some(seq), Some(prev_hash.as_str()))
        );
        let mut hasher = Sha256::new();
        hasher.update(seq.to_be_bytes());
        hasher.update(event["at_ms"].as_i64().unwrap().to_be_bytes());
        let detail = event["detail"].to_string();
        let words = ["actor", "action", "subject"].map(|key| event[key].as_str().unwrap());
        for part in [prev_hash.as_str(), words[0], words[1], words[2], &detail] {
            hasher.update((part.len() as u64).to_be_bytes());
            hasher.update(part.as_bytes());
        }
        prev_hash = hex::encode(hasher.finalize());
        assert_eq!(event["hash"], prev_hash, "entry {seq}");
    }
}

#[test]
fn an_operator_s_way_with_every_refusal_named() {
    let rig = Rig::start();
    assert_eq!(rig.json(DONE, &["status"])["active_runs"], 0);
    let token = rig.path("site.token");
    assert_eq!(rig.json(DONE, &["sites", "add", "lab", "--token-file", &token])["name"], "lab");
    assert!(fs::read_to_string(&token).unwrap().starts_with("iwj_"));
    assert!(rig.fails(REFUSED, &["sites", "add", "lab", "--token-file", &token]).contains("exists already"));

    let said = rig.fails(USAGE, &["machines", "add", "web-1", "--mac", "52:54:00"]);
    assert!(said.contains("`52:54:00` is not a MAC address"), "{said}");
    let added = rig.json(DONE, &["machines", "add", "web-1", "--mac", "52-54-00-12-34-56"]);
    assert_eq!(added["mac"], "52:54:00:12:34:56");
    let said = rig.fails(REFUSED, &["machines", "add", "web-2", "--mac", "52:54:00:12:34:56"]);
    assert!(said.contains("(mac_taken, field `mac`)"), "{said}");

    images(&rig);
    machines(&rig);

    for (args, code) in [
        (&["deploy", "web-1", "--image", "none"][..], "unknown_image"),
        (&["deploy", "web-9", "--image", "good"], "unknown_machine"),
        (&["deploy", "web-1", "--image", "from-file"], "image_not_ready"),
        (&["deploy", "web-1", "--image", "good", "--cmdline", "iw.ca=x"], "bad_request"),
        (&["runs", "show", "run-none"], "unknown_run"),
        (&["runs", "watch", "run-none"], "unknown_run"),
        (&["nodes", "show", "node-none"], "unknown_node"),
        (&["machines", "show", "web-9"], "unknown_machine"),
    ] {
        let said = rig.fails(REFUSED, args);
        assert!(said.contains(code), "{args:?}: {said}");
    }
    let run = rig.json(DONE, &["deploy", "web-1", "--image", "good"]);
    let id = run["id"].as_str().unwrap();
    assert!(rig.fails(REFUSED, &["deploy", "web-1", "--image", "good"]).contains("machine_busy"));
    assert!(rig.fails(REFUSED, &["machines", "remove", "web-1"]).contains("machine_busy"));
    assert_eq!(rig.json(DONE, &["runs", "cancel", id])["state"], "cancelled");
    let watched = rig.json(REFUSED, &["runs", "watch", id]);
    assert_eq!((&watched["id"], &watched["state"]), (&run["id"], &"cancelled".into()));

    let events = rig.json(DONE, &["events", "--limit", "1000"]);
    let events = events.as_array().unwrap();
    check_chain(events);
    let actions: Vec<_> = events.iter().map(|event| event["action"].as_str().unwrap()).collect();
    for action in ["site.added", "machine.added", "image.ready", "image.failed", "run.started"] {
        assert!(actions.contains(&action), "{action}: {actions:?}");
    }
}

/// Changes and removes a machine.
fn machines(rig: &Rig) {
    fn set<'a>(args: &[&'a str]) -> Vec<&'a str> {
        [&["machines", "set", "web-2"], args].concat()
    }
    rig.json(DONE, &["machines", "add", "web-2", "--mac", "52:54:00:12:34:58"]);
    let changed = rig.json(DONE, &set(&["--allow-no-tpm", "true", "--mac", "52:54:00:12:34:59"]));
    assert_eq!((&changed["allow_no_tpm"], &changed["mac"]), (&true.into(), &"52:54:00:12:34:59".into()));
    assert!(rig.json(DONE, &set(&["--forget-tpm"]))["allow_no_tpm"].as_bool().unwrap());
    assert_eq!(rig.json(DONE, &set(&["--allow-no-tpm", "false"]))["allow_no_tpm"], false);
    assert!(rig.fails(REFUSED, &set(&["--mac", "52:54:00:12:34:56"])).contains("(mac_taken, field `mac`)"));
    assert!(rig.fails(USAGE, &set(&[])).contains("--forget-tpm"));
    assert_eq!(rig.json(DONE, &["machines", "remove", "web-2"])["id"], "web-2");
    assert!(rig.fails(REFUSED, &["machines", "remove", "web-2"]).contains("unknown_machine"));
}

/// Leaves the images `good` (ready) and `from-file` (failed).
fn images(rig: &Rig) {
    let file = rig.path("images/disk.raw");
    fs::write(&file, disk(vec![0x5a; 1 << 20])).unwrap();
    let file_url = format!("file://{file}");
    // A port that was free a moment ago: nobody listens there.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nobody = format!("http://{free}/disk.raw");
    for (args, code) in [
        (["from-file", "--file", &file, "--digest", OTHER_DIGEST], "digest_mismatch"),
        (["from-url", "--url", &file_url, "--digest", OTHER_DIGEST], "digest_mismatch"),
        (["nobody", "--url", &nobody, "--digest", OTHER_DIGEST], "source_unreachable"),
    ] {
        let said = rig.fails(REFUSED, &[&["images", "add"][..], &args, &["--json"]].concat());
        assert!(said.contains(code), "{said}");
        let image = rig.json(DONE, &["images", "show", args[0]]);
        assert_eq!((&image["state"], &image["error"]["code"]), (&"failed".into(), &code.into()));
    }
    assert!(
        rig.fails(USAGE, &["images", "add", "x", "--url", &nobody, "--digest", "md5:0"]).contains("digest")
    );
    let good = rig.json(DONE, &["images", "add", "good", "--file", &file]);
    let digest = format!("sha256:{}", hex::encode(Sha256::digest(fs::read(&file).unwrap())));
    assert_eq!((&good["state"], &good["digest"]), (&"ready".into(), &digest.into()));
    assert!(rig.fails(REFUSED, &["images", "add", "good", "--file", &file]).contains("image_exists"));
    let text = rig.path("text");
    fs::write(&text, "hello world\n").unwrap();
    let bad = rig.fails(REFUSED, &["images", "add", "text", "--file", &text]);
    assert!(bad.contains("no partition table") && bad.contains("(bad_partition_table)"), "{bad}");
    let bad = rig.fails(REFUSED, &["images", "add", "gone", "--file", &rig.path("none")]);
    assert!(bad.contains("none"), "{bad}");
}

#[test]
fn who_is_not_let_in_is_told_why() {
    let mut rig = Rig::start();
    let bad_token = rig.path("bad-token");
    fs::write(&bad_token, "iwa_wrong").unwrap();
    let login = ["login", "--url", &rig.url, "--ca-pin", &rig.ca_pin, "--token-file", &bad_token];
    assert!(rig.fails(REFUSED, &login).contains("unauthorized"));
    let token = rig.path("token");
    let login = ["login", "--url", &rig.url, "--ca-pin", OTHER_DIGEST, "--token-file", &token];
    rig.fails(UNREACHABLE, &login);
    rig.json(DONE, &["status"]);

    let folder = rig.dir.path().join("control");
    let second = program().args(["control", "serve", "--dir"]).arg(&folder).output().unwrap();
    assert_eq!(second.status.code(), Some(REFUSED));
    assert!(text(&second.stderr).contains("only one control can run on a folder"));

    rig.serving.kill().unwrap();
    rig.serving.wait().unwrap();
    assert!(rig.fails(UNREACHABLE, &["status"]).contains("cannot reach control"));

    fs::write(folder.join("control.redb"), b"").unwrap();
    let damaged = program().args(["control", "serve", "--dir"]).arg(&folder).output().unwrap();
    assert_eq!(damaged.status.code(), Some(REFUSED));
    assert!(text(&damaged.stderr).contains("opening the store control.redb"), "{}", text(&damaged.stderr));
    fs::write(folder.join("control.toml"), "names = ['a']\nnmaes = 1\n").unwrap();
    let unknown_key = program().args(["control", "serve", "--dir"]).arg(&folder).output().unwrap();
    assert_eq!(unknown_key.status.code(), Some(REFUSED));
    assert!(text(&unknown_key.stderr).contains("nmaes"));
}

#[test]
fn control_ends_cleanly_on_sigterm() {
    let mut rig = Rig::start();
    let pid = i32::try_from(rig.serving.id()).unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGTERM).unwrap();
    let end = Instant::now() + DEADLINE;
    let status = loop {
        if let Some(status) = rig.serving.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < end, "control ends");
        thread::yield_now();
    };
    assert_eq!(status.code(), Some(DONE));
}

/// The head of a bzImage (Linux `Documentation/arch/x86/boot.rst`): `HdrS` at 0x202, and at 0x20e the offset of the
/// version's text less 0x200.
fn kernel(version: &str) -> Vec<u8> {
    let mut image = vec![0; 0x1000];
    image[0x1fe..0x200].copy_from_slice(&[0x55, 0xaa]);
    image[0x202..0x206].copy_from_slice(b"HdrS");
    image[0x206..0x208].copy_from_slice(&[0x0f, 0x02]);
    image[0x20e..0x210].copy_from_slice(&0x100u16.to_le_bytes());
    image[0x300..0x300 + version.len()].copy_from_slice(version.as_bytes());
    image
}

#[test]
fn modules_of_another_kernel_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| -> PathBuf { dir.path().join(name) };
    fs::write(path("vmlinuz"), kernel("6.1.0-13-amd64 (debian) #1 SMP")).unwrap();
    fs::create_dir(path("6.1.0-12-amd64")).unwrap();
    let build = |kernel: &str| {
        let mut command = program();
        command.args(["ramdisk", "build", "--kernel"]).arg(path(kernel));
        command.arg("--modules").arg(path("6.1.0-12-amd64")).arg("--output").arg(path("out"));
        command.output().unwrap()
    };
    let refused = build("vmlinuz");
    assert_eq!(refused.status.code(), Some(REFUSED));
    let said = text(&refused.stderr);
    assert!(
        said.contains("is for another kernel than") && said.contains("which is 6.1.0-13-amd64"),
        "{said}"
    );
    fs::write(path("page"), "<html>").unwrap();
    assert!(text(&build("page").stderr).contains("not an x86 Linux kernel"));
    assert!(!path("out").exists());
}

#[test]
fn wrong_command_lines_exit_with_2_and_say_nothing_on_standard_output() {
    for args in [&["deploy"][..], &["no-such-command"], &["login", "--url", "https://a", "--token", "x"]] {
        let output = program().args(args).output().unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(USAGE), 0), "{args:?}");
    }
    let mut help = String::new();
    let output = program().args(["deploy", "--help"]).output().unwrap();
    output.stdout.as_slice().read_to_string(&mut help).unwrap();
    assert_eq!(output.status.code(), Some(DONE));
    assert!(help.contains("Example:"), "{help}");
}

#[test]
fn output_that_nobody_takes_ends_the_program_in_its_way() {
    let run = |stdout: Stdio| {
        let out = program().args(["site", "example-config"]).stdout(stdout).output().unwrap();
        (out.status.code(), text(&out.stderr))
    };
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    // As if SIGPIPE had ended it: 128 + 13.
    assert_eq!(run(writer.into()), (Some(141), String::new()));
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let (code, said) = run(full.into());
    assert_eq!(code, Some(REFUSED));
    assert!(said.contains("No space left on device") && !said.contains("panicked"), "{said}");
}

#[test]
fn what_is_no_token_and_what_is_no_file_is_said_before_control_is_asked() {
    let rig = Rig::start();
    let folder = rig.path("");
    let login = ["login", "--url", &rig.url, "--ca-pin", &rig.ca_pin, "--token-file", "/dev/zero"];
    assert!(rig.fails(REFUSED, &login).contains("no admin token"));
    assert!(rig.fails(REFUSED, &["images", "add", "x", "--file", &folder]).contains("no file"));
}
