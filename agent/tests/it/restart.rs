//! An agent that is killed, or whose certificate runs out, and that is started again on the same state.

use std::{sync::atomic::Ordering, time::Duration};

use ironwright_agent::{
    Identity, KeySource,
    link::{JournalPlace, LinkError},
};
use ironwright_proto::{
    kinds::Role,
    wire::{Command, CommandState},
};

use crate::{
    authority::CURRENT,
    control::{Control, JoinAnswer},
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

#[tokio::test]
async fn an_expired_certificate_leads_to_a_new_join() {
    let mut control = Control::start().await;
    let dir = tempfile::tempdir().unwrap();
    let config = join_config(&control, KeySource::Dir(dir.path().to_owned()));
    *control.shared.join.lock().unwrap() = JoinAnswer::Brief(Duration::from_secs(4));
    let identity = Identity::join(&config).await.unwrap();
    let start = |identity| Agent::start_as(identity, Role::Ramdisk, JournalPlace::Memory, Held::new(0));

    let mut agent = start(identity);
    control.session().await.welcome().await;
    // The gateway keeps no session, so that the agent comes again and again until its time is over.
    let ended = loop {
        tokio::select! {
            peer = control.session() => drop(peer),
            ended = agent.ended() => break ended,
        }
    };
    assert!(matches!(ended, Err(LinkError::Expired)), "{ended:?}");

    *control.shared.join.lock().unwrap() = JoinAnswer::Grant(CURRENT);
    let _agent = start(Identity::join(&config).await.unwrap());
    assert_eq!(control.shared.joins.load(Ordering::SeqCst), 2, "the stored certificate was passed over");
    control.session().await.welcome().await;
}
