//! An agent that is killed and started again on the same journal.

use ironwright_agent::{Identity, KeySource, link::JournalPlace};
use ironwright_proto::{
    kinds::Role,
    wire::{Command, CommandState},
};

use crate::{
    control::Control,
    rig::{Agent, Held, join_config, order},
};

#[tokio::test]
async fn what_was_accepted_is_settled_after_a_crash() {
    let mut control = Control::start().await;
    let dir = tempfile::tempdir().unwrap();
    let identity = Identity::join(&join_config(&control, KeySource::Memory)).await.unwrap();
    let held = Held::new(0);
    let start = |identity: &Identity| {
        let journal = JournalPlace::Dir(dir.path().to_owned());
        Agent::start_as(identity.clone(), Role::Ramdisk, journal, held.clone())
    };

    let agent = start(&identity);
    let mut peer = control.session().await;
    let journal_id = peer.welcome().await.journal_id;
    peer.order(order("safe")).await;
    peer.update().await;
    peer.order(Command { retry_safe: false, ..order("unsafe") }).await;
    peer.update().await;
    agent.kill().await;
    assert_eq!(held.runs(), 2);

    let _agent = start(&identity);
    let mut peer = control.session().await;
    let hello = peer.welcome().await;
    assert_eq!(hello.journal_id, journal_id, "the journal was not lost");
    let mut listed: Vec<_> =
        hello.commands.iter().map(|update| (update.id.as_str(), update.state())).collect();
    listed.sort_unstable();
    assert_eq!(listed, [("safe", CommandState::Running), ("unsafe", CommandState::Failed)]);
    let interrupted = peer.update().await;
    assert_eq!(interrupted.error.unwrap().code, "interrupted");
    held.permits.add_permits(1);
    let done = peer.update().await;
    assert_eq!((done.id.as_str(), done.state()), ("safe", CommandState::Succeeded));
    assert_eq!(held.runs(), 3, "only the one that is retry safe ran again");
}
