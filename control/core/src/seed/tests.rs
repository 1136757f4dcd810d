use std::{
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use super::*;

const PIN: Digest = Digest([0xab; 32]);

fn seed<'a>(
    user_data: Option<&'a str>,
    site_url: &'a str,
    bundle: Option<Digest>,
) -> Vec<(&'static str, Vec<u8>)> {
    files(&Seed {
        run_id: "run-1",
        machine_id: &"web-1".parse().unwrap(),
        mac: Mac([0x52, 0x54, 0, 0x12, 0x34, 0x56]),
        control_url: "https://10.0.0.1:8443",
        ca_pin: PIN,
        join_token: Some("iwj_s3cret"),
        user_data,
        site_url,
        agent_bundle: bundle,
    })
}

fn file(files: &[(&'static str, Vec<u8>)], name: &str) -> String {
    let (_, content) = files.iter().find(|(known, _)| *known == name).unwrap();
    String::from_utf8(content.clone()).unwrap()
}

fn python(script: &str, arguments: &[&Path], input: &[u8], path: Option<&Path>) -> Output {
    let mut command = Command::new("python3");
    if let Some(path) = path {
        command.env("PATH", format!("{}:/usr/bin:/bin", path.display()));
    }
    command.arg("-c").arg(script).args(arguments);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

/// A folder that goes away with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ironwright-seed-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_operators_user_data_is_passed_on_untouched() {
    let text = "#cloud-config\nruncmd:\n- [ echo, \"ä\" ]\n";
    assert_eq!(file(&seed(Some(text), "http://s", None), "user-data"), text);
    assert!(file(&seed(None, "http://s", None), "user-data").starts_with("#cloud-config\n"));
}

#[test]
fn meta_data_and_empty_configs_are_yaml() {
    let files = seed(None, "http://s", None);
    let read = "import sys, yaml, json; print(json.dumps(yaml.safe_load(sys.stdin), sort_keys=True))";
    let yaml = |name: &str| {
        let output = python(read, &[], file(&files, name).as_bytes(), None);
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(yaml("meta-data"), r#"{"instance-id": "run-1", "local-hostname": "web-1"}"#);
    assert_eq!(yaml("user-data"), "{}");
    assert_eq!(yaml("vendor-data"), "{}", "a site without a bundle installs nothing");
}

#[test]
fn agent_toml_says_who_and_where() {
    let text = file(&seed(None, "http://s", None), "agent.toml");
    let expected = format!(
        "control_url = \"https://10.0.0.1:8443\"\nca_pin = \"sha256:{}\"\nmachine_id = \"web-1\"\n\
         mac = \"52:54:00:12:34:56\"\nrole = \"node\"\njoin_token = \"iwj_s3cret\"\n",
        "ab".repeat(32)
    );
    assert_eq!(text, expected);
}

#[test]
fn text_of_any_kind_is_quoted_for_toml() {
    let read = "import sys, tomllib, json; print(json.dumps(tomllib.load(sys.stdin.buffer)['x']))";
    for text in ["a\"b\\c", "line\nbreak\ttab", "\u{7f}\u{1}", "ä€😀"] {
        let output = python(read, &[], format!("x = {}\n", quoted(text)).as_bytes(), None);
        let back: String = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(back, text);
    }
}

/// Builds a bundle with Python's tarfile, runs vendor-data as cloud-init would, but in a folder.
fn install(folder: &Folder, members: &[&str], digest: Option<Digest>) -> (Output, PathBuf) {
    use sha2::{Digest as _, Sha256};
    let build = "
import io, sys, tarfile
with tarfile.open(sys.argv[1], 'w:gz') as tar:
    for name in sys.stdin.read().split():
        info = tarfile.TarInfo(name)
        info.size = 4
        tar.addfile(info, io.BytesIO(b'data'))
";
    let bundle = folder.0.join("bundle");
    assert!(python(build, &[&bundle], members.join("\n").as_bytes(), None).status.success());
    let bytes = fs::read(&bundle).unwrap();
    let digest = digest.unwrap_or_else(|| Digest(Sha256::digest(&bytes).into()));
    let blobs = folder.0.join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    fs::rename(&bundle, blobs.join(digest.hex())).unwrap();

    let bin = folder.0.join("bin");
    fs::create_dir_all(&bin).unwrap();
    let log = folder.0.join("systemctl.log");
    let fake = format!("#!/bin/sh\necho \"$@\" >> {}\n", log.display());
    fs::write(bin.join("systemctl"), fake).unwrap();
    fs::set_permissions(bin.join("systemctl"), fs::Permissions::from_mode(0o755)).unwrap();

    let site_url = format!("file://{}", folder.0.display());
    let script = file(&seed(None, &site_url, Some(digest)), "vendor-data");
    assert!(script.starts_with("#!/usr/bin/env python3\n"), "what tells cloud-init that it is a script");
    // One attempt is enough for a file that is wrong.
    let script = script.replace("ATTEMPTS = 30", "ATTEMPTS = 1");
    let root = folder.0.join("root");
    (python(&script, &[&root], b"", Some(&bin)), root)
}

fn mode(path: PathBuf) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn vendor_data_installs_the_agent() {
    let folder = Folder::new("installs");
    let members = ["ironwright", "lib/ld-linux-x86-64.so.2", "lib/libc.so.6"];
    let (output, root) = install(&folder, &members, None);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let program = root.join("usr/lib/ironwright");
    assert_eq!(fs::read(program.join("lib/libc.so.6")).unwrap(), b"data");
    assert_eq!(fs::read_link(program.join("loader")).unwrap(), Path::new("lib/ld-linux-x86-64.so.2"));
    assert_eq!(mode(program.join("ironwright")), 0o755);
    let config = root.join("etc/ironwright/agent.toml");
    assert!(fs::read_to_string(&config).unwrap().contains("iwj_s3cret"));
    assert_eq!(mode(config), 0o600);
    assert_eq!(fs::read_to_string(root.join("etc/systemd/system/ironwright-agent.service")).unwrap(), UNIT);
    let calls = fs::read_to_string(folder.0.join("systemctl.log")).unwrap();
    assert_eq!(calls, "daemon-reload\nenable --now ironwright-agent.service\n");
}

#[test]
fn i2_a_bundle_with_one_wrong_byte_is_not_installed() {
    let folder = Folder::new("wrong");
    let (output, root) = install(&folder, &["ironwright", "lib/ld-linux-x86-64.so.2"], Some(Digest([1; 32])));
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("has digest"));
    assert!(!root.join("usr/lib/ironwright").exists());
    assert!(!folder.0.join("systemctl.log").exists());
}

#[test]
fn a_bundle_that_reaches_out_of_its_folder_is_not_installed() {
    for (name, members) in [
        ("up", ["ironwright", "../evil"]),
        ("absolute", ["ironwright", "/etc/evil"]),
        ("no-loader", ["ironwright", "lib/libc.so.6"]),
    ] {
        let folder = Folder::new(name);
        let (output, root) = install(&folder, &members, None);
        assert!(!output.status.success(), "{name}");
        assert!(!root.join("usr/lib/ironwright").exists(), "{name}");
    }
}

#[test]
fn systemd_finds_no_fault_with_the_unit() {
    let folder = Folder::new("unit");
    let path = folder.0.join("ironwright-agent.service");
    // The program is not installed here, so another one stands in its place.
    fs::write(&path, UNIT.replace("/usr/lib/ironwright/loader", "/bin/true")).unwrap();
    match Command::new("systemd-analyze").arg("verify").arg(&path).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(!said.contains("ironwright-agent.service"), "{said}");
        }
        // A machine without systemd has nothing to say about units.
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound),
    }
}
