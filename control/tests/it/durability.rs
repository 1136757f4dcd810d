//! What control has answered is there after SIGKILL.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
};

use ironwright_control::{Config, Server, init};
use ironwright_proto::api::{AuditEvent, Machine};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    client::Client,
    rig::{options, read_ca},
};

/// Names the folder of the control that [`control_process`] shall be.
const FOLDER: &str = "IRONWRIGHT_TEST_CONTROL_FOLDER";
const ADDRESS: &str = "api address: ";

/// Not a test of its own: the process that [`acknowledged_changes_survive_sigkill`] starts from this binary.
#[tokio::test(flavor = "multi_thread")]
async fn control_process() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let server = Server::bind(&Config::load(Path::new(&folder)).unwrap()).await.unwrap();
    println!("\n{ADDRESS}{}", server.api_address());
    server.run(CancellationToken::new()).await.unwrap();
}

fn start(folder: &Path) -> (Child, SocketAddr) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "durability::control_process", "--nocapture"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let address = lines
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix(ADDRESS).map(|address| address.parse().unwrap()))
        .expect("control starts");
    (child, address)
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_changes_survive_sigkill() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("control");
    let token = init(&folder, options()).unwrap().admin_token;
    let mut acknowledged: u8 = 0;
    for round in 0..3u8 {
        let (mut child, address) = start(&folder);
        let api = Client::new(address, read_ca(&folder), token.to_string());
        let machines: Vec<Machine> = api.read("/v1/machines").await;
        assert_eq!(machines.len(), usize::from(acknowledged), "round {round}");
        for _ in 0..10 {
            let body =
                json!({"id": format!("m-{acknowledged}"), "mac": format!("5254000000{acknowledged:02x}")});
            let _: Machine = api.create("/v1/machines", &body).await;
            acknowledged += 1;
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let (mut child, address) = start(&folder);
    let api = Client::new(address, read_ca(&folder), token.to_string());
    let events: Vec<AuditEvent> = api.read("/v1/events?limit=1000").await;
    assert_eq!(events.iter().filter(|event| event.action == "machine.added").count(), 30);
    assert!(events.windows(2).all(|pair| pair[0].hash == pair[1].prev_hash), "the chain is whole");
    child.kill().unwrap();
    child.wait().unwrap();
}
