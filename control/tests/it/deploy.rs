//! The beginning of a deploy run: API, store, session and watch together.

use http::{Method, StatusCode};
use ironwright_proto::{
    Message,
    api::{Machine, Run, RunState},
    kinds,
    wire::{
        BootPrepareArgs, BootPrepareResult, Command, CommandState, CommandUpdate, Progress, agent_frame,
        gateway_frame::Frame,
    },
};
use serde_json::json;
use tokio::{sync::mpsc, time::timeout};

use crate::{
    agent::Agent,
    client::Identity,
    join::joined_site,
    rig::{DEADLINE, Rig, disk},
};

/// A control with a site agent, a machine, and a run whose first command has reached the agent.
pub(crate) struct Deploy {
    pub(crate) site_node: String,
    pub(crate) site_identity: Identity,
    pub(crate) agent: Agent,
    pub(crate) run: Run,
    pub(crate) prepare: Command,
}

impl Deploy {
    pub(crate) async fn begin(rig: &Rig) -> Self {
        let (site_node, site_identity) = joined_site(rig, "lab").await;
        let mut agent = Agent::open(rig, &site_identity, "lab").await;
        let _: Machine = rig.api.create("/v1/machines", &json!({"id": "web-1", "mac": "525400123456"})).await;
        let (status, _) = rig.api.bytes(Method::PUT, "/v1/images/tiny/bytes", disk(vec![1; 4096])).await;
        assert_eq!(status, StatusCode::OK);
        let run: Run = rig.api.create("/v1/deploys", &json!({"machine": "web-1", "image": "tiny"})).await;
        let prepare =
            agent.until(|frame| if let Frame::Command(command) = frame { Some(command) } else { None }).await;
        assert_eq!(prepare.kind, kinds::BOOT_PREPARE);
        Self { site_node, site_identity, agent, run, prepare }
    }

    pub(crate) fn args(&self) -> BootPrepareArgs {
        BootPrepareArgs::decode(self.prepare.args.as_slice()).unwrap()
    }
}

/// Reads on until a run is as wanted.
async fn until(lines: &mut mpsc::Receiver<Run>, wanted: impl Fn(&Run) -> bool) -> Run {
    loop {
        let run = timeout(DEADLINE, lines.recv()).await.expect("a line in time").expect("the watch goes on");
        if wanted(&run) {
            return run;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_watched_while_its_commands_go_to_agents() {
    let rig = Rig::start().await;
    let deploy = Deploy::begin(&rig).await;
    let args = deploy.args();
    assert_eq!(args.control_url, format!("https://localhost:{}", rig.api.address.port()));
    assert_eq!((args.mac.as_str(), args.machine_id.as_str()), ("52:54:00:12:34:56", "web-1"));
    let mut lines = rig.api.lines::<Run>(&format!("/v1/runs/{}/watch", deploy.run.id)).await;
    until(&mut lines, |run| run.steps[0].state == RunState::Running).await;
    let (status, answer) = rig.api.bytes(Method::DELETE, "/v1/images/tiny", "").await;
    assert_eq!(
        (status, &answer["error"]["code"]),
        (StatusCode::CONFLICT, &json!("image_in_use")),
        "{answer}"
    );

    let Deploy { mut agent, prepare, .. } = deploy;
    let (command_id, phase) = (prepare.id.clone(), "fetch".to_owned());
    let progress = Progress { command_id, phase, done: 1, total: 2, unit: "bytes".into() };
    agent.send(agent_frame::Frame::Progress(progress)).await;
    until(&mut lines, |run| run.steps[0].progress.as_ref().is_some_and(|p| (p.done, p.total) == (1, 2)))
        .await;

    let result =
        BootPrepareResult { base_url: "http://10.0.0.2:8080".into(), ..BootPrepareResult::default() };
    let update = CommandUpdate {
        id: prepare.id.clone(),
        state: CommandState::Succeeded.into(),
        result: result.encode_to_vec(),
        ..CommandUpdate::default()
    };
    agent.send(agent_frame::Frame::Command(update)).await;
    let acked =
        agent.until(|frame| if let Frame::CommandAck(ack) = frame { Some(ack.id) } else { None }).await;
    assert_eq!(acked, prepare.id);
    let run = until(&mut lines, |run| run.steps[1].state == RunState::Running).await;
    assert_eq!((run.steps[0].state, run.steps[1].name.as_str()), (RunState::Succeeded, "ramdisk.join"));

    let cancelled: Run = rig.api.create(&format!("/v1/runs/{}/cancel", run.id), &json!({})).await;
    assert_eq!(cancelled.state, RunState::Cancelled);
    until(&mut lines, |run| run.state == RunState::Cancelled).await;
    assert!(timeout(DEADLINE, lines.recv()).await.unwrap().is_none(), "the watch ends with the run");
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_and_its_command_go_on_after_a_restart() {
    let rig = Rig::start().await;
    let Deploy { site_identity, agent, run, prepare, .. } = Deploy::begin(&rig).await;
    drop(agent);
    let rig = rig.restart().await;
    let mut agent = Agent::open(&rig, &site_identity, "lab").await;
    let again =
        agent.until(|frame| if let Frame::Command(command) = frame { Some(command) } else { None }).await;
    assert_eq!((again.id, again.args), (prepare.id, prepare.args), "the offer was lost: the same one again");
    let now: Run = rig.api.read(&format!("/v1/runs/{}", run.id)).await;
    assert_eq!(now.steps[0].command_id, run.steps[0].command_id);
    rig.stop().await;
}
