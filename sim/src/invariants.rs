//! What has to hold, as pure functions over the facts. Each gives what does not.
//!
//! | | |
//! |---|---|
//! | at most once | An effect that must not be repeated begins at most once; a retry-safe one begins again only after its process ended. |
//! | one end | Control says exactly once how each command ended. |
//! | true end | A success has a complete effect behind it, and a refusal none that began. |
//! | interrupted | What must not be repeated and was under way when the journal was lost, fails. |
//! | reachable | No node is called unreachable within 20 s of a frame from it. |
//! | observed | A spec that was delivered is reported as observed within 60 s, while the link is well. |
//! | converged | In the end each machine is as its spec wants it, and control knows. |
//! | fenced | Frames of an older session are turned away and change nothing. |
//! | journal | What is on disk is what the agent goes by. |
//! | sound | The audit log verifies, and no core failed. |

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use ironwright_proto::wire::CommandState;

use crate::{calendar::At, facts::Fact};

/// A node that was heard so recently is not unreachable.
const HEARD: Duration = Duration::from_secs(20);

/// A spec is reported as observed within this time.
const OBSERVED: Duration = Duration::from_secs(60);

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The invariant.
    pub invariant: &'static str,
    /// When it was broken.
    pub at: At,
    /// How.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} s: {}", self.invariant, self.at, self.what)
    }
}

/// Checks all invariants.
pub fn check(facts: &[(At, Fact)]) -> Vec<Violation> {
    let checks = [at_most_once, one_end, true_end, interrupted, reachable, observed, reported_as_they_happen];
    let mut found: Vec<Violation> = checks.iter().flat_map(|check| check(facts)).collect();
    found.sort_by_key(|violation| violation.at);
    found
}

/// What was ordered, by command.
fn ordered(facts: &[(At, Fact)]) -> BTreeMap<&str, (At, bool)> {
    let mut all = BTreeMap::new();
    for (at, fact) in facts {
        if let Fact::Ordered { command, retry_safe, self_terminating, .. } = fact {
            all.insert(command.as_str(), (*at, *retry_safe && !*self_terminating));
        }
    }
    all
}

fn at_most_once(facts: &[(At, Fact)]) -> Vec<Violation> {
    let repeatable = ordered(facts);
    let mut begun: BTreeMap<&str, u64> = BTreeMap::new();
    let mut ended: BTreeSet<u64> = BTreeSet::new();
    let mut found = Vec::new();
    for (at, fact) in facts {
        match fact {
            Fact::ProcessEnded { process, .. } => {
                ended.insert(*process);
            }
            Fact::Started { command, process, node } => {
                let before = begun.insert(command, *process);
                let may_repeat = repeatable.get(command.as_str()).is_some_and(|(_, may)| *may);
                let again = before.is_some_and(|before| !may_repeat || !ended.contains(&before));
                if again {
                    let what = format!("the effect of {command} began again on machine {node}");
                    found.push(Violation { invariant: "at most once", at: *at, what });
                }
            }
            _ => {}
        }
    }
    found
}

fn one_end(facts: &[(At, Fact)]) -> Vec<Violation> {
    let mut open = ordered(facts);
    let mut found = Vec::new();
    for (at, fact) in facts {
        if let Fact::Ended { command, state, .. } = fact
            && open.remove(command.as_str()).is_none()
        {
            let what = format!("{command} ended a second time, as {state:?}");
            found.push(Violation { invariant: "one end", at: *at, what });
        }
    }
    for (command, (at, _)) in open {
        let what = format!("{command} was ordered and has not ended");
        found.push(Violation { invariant: "one end", at, what });
    }
    found
}

fn true_end(facts: &[(At, Fact)]) -> Vec<Violation> {
    let mut self_terminating: BTreeMap<&str, u32> = BTreeMap::new();
    let (mut begun, mut complete) = (BTreeSet::new(), BTreeSet::new());
    let mut boots: BTreeMap<u32, At> = BTreeMap::new();
    let mut since: BTreeMap<&str, At> = BTreeMap::new();
    let mut found = Vec::new();
    for (at, fact) in facts {
        match fact {
            Fact::Ordered { command, node, self_terminating: ends_agent, .. } => {
                since.insert(command, *at);
                if *ends_agent {
                    self_terminating.insert(command, *node);
                }
            }
            Fact::Booted { node } => {
                boots.insert(*node, *at);
            }
            Fact::Started { command, .. } => {
                begun.insert(command.as_str());
            }
            Fact::Completed { command } => {
                complete.insert(command.as_str());
            }
            Fact::Ended { command, state, .. } => {
                let id = command.as_str();
                let real = match state {
                    CommandState::Succeeded => match self_terminating.get(id) {
                        // Its effect is a boot after the order.
                        Some(node) => boots.get(node) > since.get(id),
                        None => complete.contains(id),
                    },
                    CommandState::Refused => !begun.contains(id),
                    _ => true,
                };
                if !real {
                    let what = format!("control says that {id} is {state:?}, which it is not");
                    found.push(Violation { invariant: "true end", at: *at, what });
                }
            }
            _ => {}
        }
    }
    found
}

fn interrupted(facts: &[(At, Fact)]) -> Vec<Violation> {
    let repeatable = ordered(facts);
    // Effects that must not be repeated and are neither complete nor ended, by command: the machine.
    let mut under_way: BTreeMap<&str, u32> = BTreeMap::new();
    let mut lost: BTreeSet<&str> = BTreeSet::new();
    let mut found = Vec::new();
    for (at, fact) in facts {
        match fact {
            Fact::Started { command, node, .. }
                if repeatable.get(command.as_str()).is_some_and(|(_, may)| !*may) =>
            {
                under_way.insert(command, *node);
            }
            Fact::Completed { command } => {
                under_way.remove(command.as_str());
            }
            Fact::JournalLost { node } => {
                lost.extend(under_way.iter().filter(|(_, on)| *on == node).map(|(command, _)| *command));
            }
            Fact::Ended { command, state, code } => {
                under_way.remove(command.as_str());
                // A reboot that the power failure brought about is one.
                let done = *state == CommandState::Failed || code == "rebooted";
                if lost.remove(command.as_str()) && !done {
                    let what = format!("{command} was under way when the journal was lost, and is {state:?}");
                    found.push(Violation { invariant: "interrupted", at: *at, what });
                }
            }
            _ => {}
        }
    }
    found
}

fn reachable(facts: &[(At, Fact)]) -> Vec<Violation> {
    let mut found = Vec::new();
    for (at, fact) in facts {
        if let Fact::Unreachable { node, last_frame: Some(last) } = fact
            && *at - *last < HEARD
        {
            let what = format!("machine {node} is called unreachable {:?} after a frame", *at - *last);
            found.push(Violation { invariant: "reachable", at: *at, what });
        }
    }
    found
}

fn observed(facts: &[(At, Fact)]) -> Vec<Violation> {
    // What was delivered and is not reported yet, by machine: since when, and the generation.
    let mut waiting: BTreeMap<u32, (At, u64)> = BTreeMap::new();
    let mut found = Vec::new();
    let late = |waiting: &BTreeMap<u32, (At, u64)>, node: &u32, now: At| {
        let (since, generation) = *waiting.get(node)?;
        let what = format!("machine {node} had spec {generation} at {since} s and has not reported it");
        (now - since > OBSERVED).then_some(Violation { invariant: "observed", at: now, what })
    };
    for (at, fact) in facts {
        match fact {
            Fact::SpecDelivered { node, generation } => {
                found.extend(late(&waiting, node, *at));
                waiting.entry(*node).or_insert((*at, *generation)).1 = *generation;
            }
            Fact::SpecObserved { node, generation } => {
                found.extend(late(&waiting, node, *at));
                if waiting.get(node).is_some_and(|(_, wanted)| generation >= wanted) {
                    waiting.remove(node);
                }
            }
            Fact::LinkTroubled { node } | Fact::ProcessEnded { node, .. } => {
                found.extend(late(&waiting, node, *at));
                waiting.remove(node);
            }
            _ => {}
        }
    }
    let end = facts.last().map_or(At::default(), |(at, _)| *at);
    found.extend(waiting.keys().filter_map(|node| late(&waiting, node, end)));
    found
}

/// Facts that are violations by themselves.
fn reported_as_they_happen(facts: &[(At, Fact)]) -> Vec<Violation> {
    let mut found = Vec::new();
    for (at, fact) in facts {
        let (invariant, what) = match fact {
            Fact::OldSessionHeard { node } => {
                ("fenced", format!("a frame of an older session of machine {node} was not turned away"))
            }
            Fact::JournalDiffers { node } => {
                ("journal", format!("the journal on machine {node}'s disk is not the one in memory"))
            }
            Fact::NotConverged { node, why } => ("converged", format!("machine {node}: {why}")),
            Fact::AuditBroken { why } => ("sound", why.clone()),
            Fact::Failed { what } => ("sound", what.clone()),
            _ => continue,
        };
        found.push(Violation { invariant, at: *at, what });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(command: &str, retry_safe: bool, self_terminating: bool) -> Fact {
        Fact::Ordered { command: command.into(), node: 1, retry_safe, self_terminating }
    }

    fn started(command: &str, process: u64) -> Fact {
        Fact::Started { command: command.into(), node: 1, process }
    }

    fn completed(command: &str) -> Fact {
        Fact::Completed { command: command.into() }
    }

    fn ended(command: &str, state: CommandState, code: &str) -> Fact {
        Fact::Ended { command: command.into(), state, code: code.into() }
    }

    /// The invariants that facts, one a second, break.
    fn broken(facts: &[Fact]) -> Vec<&'static str> {
        let facts: Vec<(At, Fact)> = (0..).map(At::seconds).zip(facts.iter().cloned()).collect();
        check(&facts).into_iter().map(|violation| violation.invariant).collect()
    }

    const PROCESS_1_ENDED: Fact = Fact::ProcessEnded { node: 1, process: 1 };
    const DONE: CommandState = CommandState::Succeeded;
    const FAILED: CommandState = CommandState::Failed;

    #[test]
    fn effects_begin_as_often_as_they_may() {
        let twice = |retry_safe, between: &[Fact]| {
            let mut facts = vec![ordered("c", retry_safe, false), started("c", 1)];
            facts.extend_from_slice(between);
            facts.extend([started("c", 2), completed("c"), ended("c", DONE, "")]);
            broken(&facts)
        };
        assert_eq!(twice(true, &[PROCESS_1_ENDED]), [""; 0]);
        assert_eq!(twice(true, &[]), ["at most once"]);
        assert_eq!(twice(false, &[PROCESS_1_ENDED]), ["at most once"]);
    }

    #[test]
    fn every_command_ends_once_and_as_it_did() {
        let order = ordered("c", true, false);
        assert_eq!(broken(std::slice::from_ref(&order)), ["one end"]);
        let failed = ended("c", FAILED, "expired");
        assert_eq!(broken(&[order.clone(), failed.clone()]), [""; 0]);
        assert_eq!(broken(&[order.clone(), failed.clone(), failed]), ["one end"]);
        assert_eq!(broken(&[order.clone(), started("c", 1), ended("c", DONE, "")]), ["true end"]);
        let refused = ended("c", CommandState::Refused, "busy");
        assert_eq!(broken(&[order.clone(), refused.clone()]), [""; 0]);
        assert_eq!(broken(&[order, started("c", 1), refused]), ["true end"]);
    }

    #[test]
    fn a_reboot_is_a_boot_after_its_order() {
        let (order, boot) = (ordered("c", false, true), Fact::Booted { node: 1 });
        let done = ended("c", DONE, "rebooted");
        assert_eq!(broken(&[order.clone(), boot.clone(), done.clone()]), [""; 0]);
        assert_eq!(broken(&[boot, order, done]), ["true end"]);
    }

    #[test]
    fn what_a_lost_journal_interrupts_fails() {
        let lost = Fact::JournalLost { node: 1 };
        let story = |end| {
            vec![
                ordered("c", false, false),
                started("c", 1),
                lost.clone(),
                PROCESS_1_ENDED,
                completed("c"),
                end,
            ]
        };
        assert_eq!(broken(&story(ended("c", FAILED, "interrupted"))), [""; 0]);
        assert_eq!(broken(&story(ended("c", DONE, ""))), ["interrupted"]);
    }

    #[test]
    fn a_node_is_missed_after_twenty_seconds_at_least() {
        let missed = |last| [(At::seconds(100), Fact::Unreachable { node: 1, last_frame: last })];
        assert!(check(&missed(Some(At::seconds(80)))).is_empty());
        assert!(check(&missed(None)).is_empty());
        assert_eq!(check(&missed(Some(At::seconds(81))))[0].invariant, "reachable");
    }

    #[test]
    fn a_spec_is_reported_in_a_minute_while_the_link_is_well() {
        let delivered = |at, generation| (At::seconds(at), Fact::SpecDelivered { node: 1, generation });
        let reported = |at, generation| (At::seconds(at), Fact::SpecObserved { node: 1, generation });
        let troubled = |at| (At::seconds(at), Fact::LinkTroubled { node: 1 });
        let late = |facts: &[(At, Fact)]| check(facts).len();
        assert_eq!(late(&[delivered(0, 1), reported(60, 1)]), 0);
        assert_eq!(late(&[delivered(0, 1), reported(61, 1)]), 1);
        assert_eq!(late(&[delivered(0, 2), reported(5, 1), troubled(70)]), 1, "an older one is no answer");
        assert_eq!(late(&[delivered(0, 1), troubled(30), reported(90, 1)]), 0);
        let other = (At::seconds(100), Fact::Booted { node: 2 });
        assert_eq!(late(&[delivered(0, 1), other]), 1, "none at all");
    }

    #[test]
    fn some_facts_must_not_be() {
        let why = || "x".to_owned();
        for (fact, invariant) in [
            (Fact::OldSessionHeard { node: 1 }, "fenced"),
            (Fact::JournalDiffers { node: 1 }, "journal"),
            (Fact::NotConverged { node: 1, why: why() }, "converged"),
            (Fact::AuditBroken { why: why() }, "sound"),
            (Fact::Failed { what: why() }, "sound"),
        ] {
            assert_eq!(broken(&[fact]), [invariant]);
        }
    }
}
