use ironwright_proto::wire::CommandError;

use super::*;
use crate::{
    store::{MemStore, Store},
    tx::Seed,
};

const NODE: &str = "node-1";

/// Runs one transaction at a time; each has its own randomness, as ids need it.
struct Fixture {
    store: MemStore,
    now_ms: i64,
    seed: u64,
}

impl Fixture {
    fn new() -> Self {
        Self { store: MemStore::new(), now_ms: 1_000, seed: 0 }
    }

    fn tx<R>(&mut self, f: impl Fn(&mut Tx<'_>) -> Result<R, Error>) -> R {
        use rand::{SeedableRng, rngs::StdRng};
        self.seed += 1;
        let seed = Seed::draw(&mut StdRng::seed_from_u64(self.seed));
        self.store.write(|txn| f(&mut Tx::new(txn, self.now_ms, seed))).unwrap()
    }

    fn create(&mut self, kind: &'static str, role: Role) -> String {
        let not_after_ms = self.now_ms + 60_000;
        self.now_ms += 1;
        self.tx(|tx| {
            let args = b"secret".to_vec();
            let order = Order {
                kind,
                node: NODE,
                role,
                run: "run-1",
                lease_epoch: 0,
                args,
                not_after_ms,
                at_most_once: false,
                min_generation: 0,
            };
            create(tx, order)
        })
    }

    fn dispatch(&mut self, role: Role, boot: &str) -> Vec<String> {
        self.tx(|tx| dispatch(tx, NODE, role, boot)).into_iter().map(|command| command.id).collect()
    }

    fn hello(
        &mut self,
        same_journal: bool,
        boot_id: &str,
        listed: &[CommandUpdate],
    ) -> reconcile::Reconciled {
        self.tx(|tx| reconcile(tx, NODE, AgentSide { same_journal, boot_id }, listed))
    }

    fn update(&mut self, node: &str, update: &CommandUpdate) -> Ingested {
        self.tx(|tx| ingest(tx, node, update))
    }

    fn get(&self, id: &str) -> Command {
        self.store.read(|txn| get(txn, id)).unwrap().unwrap()
    }
}

fn update(id: &str, state: CommandState) -> CommandUpdate {
    CommandUpdate { id: id.into(), state: state.into(), ..CommandUpdate::default() }
}

fn run_1() -> String {
    "run-1".to_owned()
}

#[test]
fn each_lane_has_its_credits_and_the_oldest_goes_first() {
    let mut fixture = Fixture::new();
    let erase: Vec<_> = (0..3).map(|_| fixture.create(kinds::DISK_ERASE, Role::Ramdisk)).collect();
    let deploy: Vec<_> = (0..2).map(|_| fixture.create(kinds::IMAGE_DEPLOY, Role::Ramdisk)).collect();
    let inventory = fixture.create(kinds::INVENTORY_COLLECT, Role::Ramdisk);
    let sent = fixture.dispatch(Role::Ramdisk, "boot-1");
    let expected = [&erase[0], &erase[1], &deploy[0], &inventory].map(String::clone);
    assert_eq!(sent, expected, "2 of provision, 1 of bulk");
    assert!(fixture.dispatch(Role::Ramdisk, "boot-1").is_empty(), "sent once");
    fixture.update(NODE, &update(&erase[0], CommandState::Succeeded));
    assert_eq!(fixture.dispatch(Role::Ramdisk, "boot-1"), [erase[2].clone()]);
}

#[test]
fn an_order_for_the_ramdisk_is_not_sent_to_the_operating_system() {
    let mut fixture = Fixture::new();
    let id = fixture.create(kinds::DISK_ERASE, Role::Ramdisk);
    assert!(fixture.dispatch(Role::Node, "boot-2").is_empty());
    assert_eq!(fixture.dispatch(Role::Ramdisk, "boot-3"), [id]);
}

#[test]
fn a_final_state_stays_and_wipes_the_arguments() {
    let mut fixture = Fixture::new();
    let id = fixture.create(kinds::DISK_ERASE, Role::Ramdisk);
    fixture.dispatch(Role::Ramdisk, "boot-1");
    assert_eq!(fixture.update("node-2", &update(&id, CommandState::Failed)), Ingested::Nothing);
    assert_eq!(fixture.update(NODE, &update(&id, CommandState::Running)), Ingested::Moved { run: run_1() });
    let failed = CommandUpdate {
        error: Some(CommandError { code: "no_disk".into(), message: "x".repeat(10_000) }),
        ..update(&id, CommandState::Failed)
    };
    assert_eq!(fixture.update(NODE, &failed), Ingested::Ended { run: run_1() });
    assert_eq!(fixture.update(NODE, &update(&id, CommandState::Succeeded)), Ingested::Nothing);
    let command = fixture.get(&id);
    assert_eq!((command.state, command.args.len()), (State::Failed, 0));
    let error = command.error.unwrap();
    assert_eq!((error.code.as_str(), error.message.len()), ("no_disk", 4096));
}

#[test]
fn a_result_over_the_limit_is_a_failure() {
    let mut fixture = Fixture::new();
    let id = fixture.create(kinds::INVENTORY_COLLECT, Role::Ramdisk);
    let large = CommandUpdate { result: vec![0; (256 << 10) + 1], ..update(&id, CommandState::Succeeded) };
    fixture.update(NODE, &large);
    assert_eq!(fixture.get(&id).error.unwrap().code, "result_too_large");
}

/// What the Hello after a dispatch does to a command that it does not list.
fn after_hello(kind: &'static str, same_journal: bool, boot_id: &str) -> (State, String, Option<String>) {
    let mut fixture = Fixture::new();
    let id = fixture.create(kind, Role::Ramdisk);
    fixture.dispatch(Role::Ramdisk, "boot-1");
    let done = fixture.hello(same_journal, boot_id, &[]);
    assert_eq!(done.runs, [run_1()].into());
    let command = fixture.get(&id);
    (command.state, command.outcome, command.error.map(|error| error.code))
}

#[test]
fn a_lost_offer_is_sent_again() {
    assert_eq!(after_hello(kinds::IMAGE_DEPLOY, true, "boot-1").0, State::Queued);
    assert_eq!(after_hello(kinds::NODE_REBOOT, true, "boot-1").0, State::Queued);
    // The journal would know of it, had it begun: the machine has rebooted for another reason.
    assert_eq!(after_hello(kinds::NODE_REBOOT, true, "boot-2").0, State::Queued);
}

#[test]
fn a_lost_journal_sends_again_what_is_retry_safe_and_interrupts_the_rest() {
    assert_eq!(after_hello(kinds::IMAGE_DEPLOY, false, "boot-2").0, State::Queued);
    let (state, _, code) = after_hello(kinds::NODE_REBOOT, false, "boot-1");
    assert_eq!((state, code.as_deref()), (State::Failed, Some("interrupted")));
}

#[test]
fn a_refusal_after_a_lost_journal_is_a_failure() {
    for (same_journal, end) in [(true, State::Refused), (false, State::Failed)] {
        let mut fixture = Fixture::new();
        let id = fixture.create(kinds::IMAGE_DEPLOY, Role::Ramdisk);
        fixture.dispatch(Role::Ramdisk, "boot-1");
        fixture.hello(same_journal, "boot-1", &[]);
        fixture.dispatch(Role::Ramdisk, "boot-1");
        fixture.update(NODE, &update(&id, CommandState::Refused));
        assert_eq!(fixture.get(&id).state, end);
    }
}

#[test]
fn a_reboot_has_succeeded_where_boot_id_and_journal_are_new() {
    let (state, outcome, _) = after_hello(kinds::NODE_REBOOT, false, "boot-2");
    assert_eq!((state, outcome.as_str()), (State::Succeeded, "rebooted"));
}

#[test]
fn what_a_hello_lists_is_waited_for_or_taken() {
    let mut fixture = Fixture::new();
    let running = fixture.create(kinds::DISK_ERASE, Role::Ramdisk);
    let ended = fixture.create(kinds::DISK_ERASE, Role::Ramdisk);
    fixture.dispatch(Role::Ramdisk, "boot-1");
    let listed = [
        update(&running, CommandState::Running),
        update(&ended, CommandState::Succeeded),
        update("cmd-unknown", CommandState::Refused),
    ];
    let done = fixture.hello(true, "boot-1", &listed);
    assert_eq!(done.acks, [ended.clone(), "cmd-unknown".to_owned()]);
    assert_eq!(fixture.get(&running).state, State::Running);
    assert_eq!(fixture.get(&ended).state, State::Succeeded);
}

#[test]
fn what_control_gave_up_is_called_back_when_the_agent_still_has_it() {
    let mut fixture = Fixture::new();
    let id = fixture.create(kinds::IMAGE_DEPLOY, Role::Ramdisk);
    fixture.dispatch(Role::Ramdisk, "boot-1");
    fixture.now_ms += 200_000;
    assert_eq!(fixture.tx(sweep), [run_1()]);
    assert_eq!(fixture.get(&id).error.unwrap().code, "deadline_exceeded");
    assert_eq!(fixture.update(NODE, &update(&id, CommandState::Running)), Ingested::Unwanted);
    let called_back = fixture.tx(|tx| {
        let agent = AgentSide { same_journal: true, boot_id: "boot-1" };
        reconcile(tx, NODE, agent, &[update(&id, CommandState::Running)])?;
        Ok(tx.effects.cancel.contains(&(NODE.to_owned(), id.clone())))
    });
    assert!(called_back);
}

#[test]
fn the_sweep_waits_for_deadline_and_grace() {
    let mut fixture = Fixture::new();
    let id = fixture.create(kinds::DISK_ERASE, Role::Ramdisk);
    fixture.now_ms = 1_000 + 60_000 + DEADLINE_GRACE_MS;
    assert!(fixture.tx(sweep).is_empty());
    assert!(!fixture.store.read(|txn| sweep_is_due(txn, fixture.now_ms)).unwrap());
    fixture.now_ms += 1;
    assert!(fixture.store.read(|txn| sweep_is_due(txn, fixture.now_ms)).unwrap());
    assert_eq!(fixture.tx(sweep), [run_1()]);
    assert!(fixture.tx(sweep).is_empty());
    assert_eq!(fixture.get(&id).state, State::Failed);
}

#[test]
fn stopping_ends_the_queued_ones_and_calls_back_the_others_once() {
    let mut fixture = Fixture::new();
    let sent = fixture.create(kinds::IMAGE_DEPLOY, Role::Ramdisk);
    fixture.dispatch(Role::Ramdisk, "boot-1");
    let queued = fixture.create(kinds::IMAGE_DEPLOY, Role::Ramdisk);
    let ids = [sent.clone(), queued.clone()];
    let stop = |fixture: &mut Fixture| {
        fixture.tx(|tx| Ok((stop(tx, &ids, "the run has ended")?, tx.effects.cancel.len())))
    };
    assert_eq!(stop(&mut fixture), (false, 1));
    assert_eq!(stop(&mut fixture), (false, 0));
    assert_eq!(fixture.get(&queued).error.unwrap().code, "cancelled");
    fixture.update(NODE, &update(&sent, CommandState::Failed));
    assert_eq!(stop(&mut fixture), (true, 0));
}
