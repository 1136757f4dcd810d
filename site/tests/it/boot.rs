//! What machines are served, as decision 0001 has it.

use std::{
    net::UdpSocket,
    time::{Duration, Instant},
};

use ironwright_proto::{
    boot_params::BootParams,
    envelope,
    kinds::Role,
    wire::{BootPrepareArgs, SiteAssertion},
};
use serde_json::json;

use crate::rig::*;

/// `printf kernel | sha256sum`
const KERNEL: &str = "6923dd1bc0460082c5d55a831908c24a282860b7f1cd6c2b79cf1bc8857c639c";
const LONG: Duration = Duration::from_secs(600);

/// The kernel's command line of a script.
fn command_line(script: &str) -> &str {
    let line = script.lines().find(|line| line.starts_with("kernel ")).unwrap();
    line.split_once("initrd=ramdisk ").unwrap().1.trim_end_matches(" || goto again")
}

#[tokio::test]
async fn an_unknown_machine_gets_404_and_one_event() {
    let rig = Rig::start().await;
    rig.give_lease(LONG);
    for _ in 0..3 {
        assert_eq!(rig.script().await.0, 404);
    }
    let expected = json!({ "mac": MAC, "via": "http", "client": null });
    assert_eq!(rig.control.events("boot.discovered"), [expected]);
    rig.stop().await;
}

#[tokio::test]
async fn without_lease_503_and_with_it_the_token_once() {
    let rig = Rig::start().await;
    let result = rig.prepare(prepare_args()).await.unwrap();
    assert_eq!(result.base_url, format!("http://{}", rig.http));
    assert_eq!(rig.script().await.0, 503);
    assert_eq!(rig.control.events("boot.fetched").len(), 0);

    rig.give_lease(LONG);
    let script = rig.script_until(200).await;
    let params = BootParams::parse(command_line(&script)).unwrap();
    assert_eq!(params.token.as_deref(), Some("t0ken"));
    assert_eq!((params.machine_id.as_str(), params.mac, params.role), ("web-1", MAC, Role::Ramdisk));
    assert_eq!(params.control_url, "https://10.0.0.1:8443");
    let words = "quiet panic=10 softlockup_panic=1 TSS2_LOG=all+NONE console=ttyS0 loglevel=5 iw.control=";
    assert!(command_line(&script).starts_with(words), "{script}");
    assert!(script.contains(&format!("{}/blobs/sha256/{}", result.base_url, &result.kernel[7..])));

    let assertion = params.assertion.unwrap();
    assert_eq!(assertion.key_id, "node-of-site");
    let said: SiteAssertion =
        envelope::open(&assertion, envelope::SITE_ASSERTION, rig.control.key.verifying_key()).unwrap();
    assert_eq!((said.site.as_str(), said.lease_epoch, said.machine_id.as_str()), ("lab", EPOCH, "web-1"));
    assert_eq!(said.mac, MAC.to_string());
    assert!(said.issued_unix_ms < said.expires_unix_ms);
    assert_eq!(rig.control.events("boot.fetched"), [json!({ "mac": MAC, "machine": "web-1" })]);

    let (status, again) = rig.script().await;
    assert_eq!(status, 200);
    assert_eq!(BootParams::parse(command_line(&again)).unwrap().token, None);
    assert_eq!(rig.control.events("boot.fetched").len(), 1);

    let fresh = BootPrepareArgs { join_token: "fresh".into(), ..prepare_args() };
    rig.prepare(fresh).await.unwrap();
    let refilled = rig.script().await.1;
    assert_eq!(BootParams::parse(command_line(&refilled)).unwrap().token.as_deref(), Some("fresh"));
    rig.stop().await;
}

#[tokio::test]
async fn a_lease_ends_by_time() {
    let rig = Rig::start().await;
    rig.prepare(prepare_args()).await.unwrap();
    rig.give_lease(LONG);
    rig.script_until(200).await;
    let given = Instant::now();
    rig.give_lease(Duration::from_millis(300));
    rig.script_until(503).await;
    assert!(given.elapsed() >= Duration::from_millis(300));
    assert_eq!(rig.control.events("boot.discovered").len(), 0, "it is known all the same");
    rig.stop().await;
}

#[tokio::test]
async fn a_local_boot_needs_neither_lease_nor_control() {
    let rig = Rig::start().await;
    rig.prepare(prepare_args()).await.unwrap();
    rig.local().await;
    for _ in 0..2 {
        let (status, script) = rig.script().await;
        assert_eq!(status, 200);
        assert!(script.contains("sanboot") && script.contains("exit 1") && !script.contains("kernel"));
    }
    rig.stop().await;
}

#[tokio::test]
async fn a_restart_keeps_entries_and_tells_again_of_spent_tokens() {
    let rig = Rig::start().await;
    rig.prepare(prepare_args()).await.unwrap();
    let rig = rig.restart().await;
    assert_eq!(rig.script().await.0, 503, "the lease is never kept");
    rig.give_lease(LONG);
    let script = rig.script_until(200).await;
    assert_eq!(BootParams::parse(command_line(&script)).unwrap().token.as_deref(), Some("t0ken"));

    let rig = rig.restart().await;
    rig.give_lease(LONG);
    let script = rig.script_until(200).await;
    assert_eq!(BootParams::parse(command_line(&script)).unwrap().token, None);
    assert_eq!(rig.control.events("boot.fetched").len(), 1, "control refills the entry");

    rig.local().await;
    let rig = rig.restart().await;
    assert_eq!(rig.script().await.0, 200);
    let dir = rig.stop().await;
    let stored = std::fs::read_to_string(dir.path().join("state/boot-table.json")).unwrap();
    assert!(!stored.contains("t0ken"));
}

#[tokio::test]
async fn kernel_and_boot_files_are_served() {
    let rig = Rig::start().await;
    let result = rig.prepare(prepare_args()).await.unwrap();
    assert_eq!(result.kernel, format!("sha256:{KERNEL}"));
    assert_eq!(rig.get(&format!("/blobs/sha256/{KERNEL}")).await, (200, "kernel".into()));
    assert_eq!(rig.get("//ipxe.efi").await, (200, "MZ".into()));
    assert_eq!(rig.get("/boot-table.json").await.0, 404);

    let tftp = rig.tftp;
    let packet = tokio::task::spawn_blocking(move || {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        socket.send_to(b"\0\x01ipxe.efi\0octet\0", tftp).unwrap();
        let mut buf = [0; 64];
        let (len, _) = socket.recv_from(&mut buf).unwrap();
        buf[..len].to_vec()
    });
    assert_eq!(packet.await.unwrap(), b"\0\x03\0\x01MZ");
    rig.stop().await;
}

#[tokio::test]
async fn arguments_that_cannot_be_are_named() {
    let rig = Rig::start().await;
    let good = prepare_args();
    let cases = [
        ("machine_id", BootPrepareArgs { machine_id: "a b".into(), ..good.clone() }),
        ("mac", BootPrepareArgs { mac: "x".into(), ..good.clone() }),
        ("join_token", BootPrepareArgs { join_token: "a b".into(), ..good.clone() }),
        ("expires_unix_ms", BootPrepareArgs { expires_unix_ms: 1, ..good.clone() }),
        ("artifacts", BootPrepareArgs { artifacts: vec!["sha256:0".into()], ..good.clone() }),
        ("control_url", BootPrepareArgs { control_url: "http://c".into(), ..good.clone() }),
        ("ca_pin", BootPrepareArgs { ca_pin: "none".into(), ..good.clone() }),
        ("extra_cmdline", BootPrepareArgs { extra_cmdline: "a\nreboot".into(), ..good.clone() }),
        ("extra_cmdline", BootPrepareArgs { extra_cmdline: "x".repeat(513), ..good.clone() }),
    ];
    for (field, args) in cases {
        let error = rig.prepare(args).await.unwrap_err();
        assert_eq!(error.code, "malformed_args", "{field}");
        assert!(error.message.contains(&format!("`{field}`")), "{}", error.message);
    }
    assert_eq!(rig.script().await.0, 404, "nothing was changed");
    rig.stop().await;
}
