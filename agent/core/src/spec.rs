//! Desired state: each section of the spec is applied, watched and reported by itself.
//!
//! ```text
//!            new body                    done
//!  (none) ─────────────▶ PROGRESSING ──────────▶ APPLIED ◀──┐
//!                          ▲   │                    │       │ a pass every 5 min, which repairs drift
//!                          │   │ failed             └───────┘
//!                 10 s × 2ⁿ, │   ▼                    │ failed
//!                 ≤ 5 min  └─ FAILED{reason} ◀────────┘
//!  a name that this agent does not know, or too much of it: FAILED{unknown_section, too_large}, for good
//! ```
//! One run at a time for each section: a newer body waits for the run of the older one to end. The spec is in the
//! journal before anything of it is applied, and is reported as observed from then on.

use std::{collections::BTreeMap, time::Duration};

use ironwright_proto::wire::{SectionState, SectionStatus, Spec, SpecSection, StatusReport};

use crate::{
    Effect,
    journal::{Journal, Record},
    work::{cut, persist},
};

/// How often what is applied is looked at again.
pub const PASS_EVERY: Duration = Duration::from_secs(300);
const RETRY_FIRST: Duration = Duration::from_secs(10);
const RETRY_CAP: Duration = Duration::from_secs(300);
/// Sections that are looked at; further ones are left out.
pub const MAX_SECTIONS: usize = 64;
/// Largest body of a section, in bytes.
pub const MAX_BODY: usize = 256 << 10;
const MAX_NAME: usize = 64;
const MAX_REASON: usize = 1024;

/// A section, and where it stands.
#[derive(Debug)]
struct Section {
    body: Vec<u8>,
    /// Which body this is: the generation in which it came.
    since: u64,
    phase: Phase,
    /// The body of this generation is being applied.
    running: Option<u64>,
    failures: u32,
}

#[derive(Debug, PartialEq, Eq)]
enum Phase {
    Progressing,
    Applied { next_pass: Duration },
    Failed { reason: String, again: Option<Duration> },
}

/// How far the machine is with its spec.
#[derive(Debug, Default)]
pub(crate) struct Convergence {
    generation: u64,
    sections: BTreeMap<String, Section>,
    /// Something is different from the last report.
    changed: bool,
}

impl Convergence {
    /// Takes a spec that the gateway sent; an older one is ignored.
    pub(crate) fn take(
        &mut self,
        known: &[&'static str],
        journal: &mut Journal,
        mut spec: Spec,
        now: Duration,
        out: &mut Vec<Effect>,
    ) {
        // Said again even where it is not news: control may not have heard it.
        self.report_again();
        if spec.generation <= self.generation {
            return;
        }
        spec.sections.truncate(MAX_SECTIONS);
        persist(journal, Record::Spec(spec.clone()), out);
        self.begin(known, &spec, now, out);
    }

    /// Turns to a spec that is in the journal.
    pub(crate) fn begin(
        &mut self,
        known: &[&'static str],
        spec: &Spec,
        now: Duration,
        out: &mut Vec<Effect>,
    ) {
        self.generation = spec.generation;
        let mut before = std::mem::take(&mut self.sections);
        for SpecSection { name, body } in &spec.sections {
            let old = before.remove(name);
            let section = match old {
                Some(section) if section.body == *body => section,
                old => Section {
                    body: body.clone(),
                    since: spec.generation,
                    phase: Phase::Progressing,
                    running: old.and_then(|old| old.running),
                    failures: 0,
                },
            };
            self.sections.insert(name.clone(), section);
        }
        for (name, section) in &mut self.sections {
            let reason = if known.contains(&name.as_str()) { "too_large" } else { "unknown_section" };
            if reason == "unknown_section" || name.len() > MAX_NAME || section.body.len() > MAX_BODY {
                section.phase = Phase::Failed { reason: reason.to_owned(), again: None };
            } else if section.phase == Phase::Progressing {
                section.apply(name, out);
            }
        }
        self.report_again();
        self.tick(now, out);
    }

    /// The run for a section has ended.
    pub(crate) fn applied(
        &mut self,
        name: &str,
        result: Result<(), String>,
        now: Duration,
        out: &mut Vec<Effect>,
    ) {
        let Some(section) = self.sections.get_mut(name) else { return };
        let Some(of) = section.running.take() else { return };
        if of != section.since {
            // The body has changed meanwhile.
            return section.apply(name, out);
        }
        let phase = match result {
            Ok(()) => {
                section.failures = 0;
                Phase::Applied { next_pass: now + PASS_EVERY }
            }
            Err(reason) => {
                let wait = RETRY_FIRST.saturating_mul(1 << section.failures.min(8)).min(RETRY_CAP);
                section.failures += 1;
                Phase::Failed { reason: cut(reason, MAX_REASON), again: Some(now + wait) }
            }
        };
        self.changed |= std::mem::discriminant(&section.phase) != std::mem::discriminant(&phase);
        section.phase = phase;
    }

    /// Passes over what is applied, and tries what failed, where it is time.
    pub(crate) fn tick(&mut self, now: Duration, out: &mut Vec<Effect>) {
        for (name, section) in &mut self.sections {
            if section.running.is_none() && section.due().is_some_and(|due| now >= due) {
                section.apply(name, out);
            }
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        let idle = self.sections.values().filter(|section| section.running.is_none());
        idle.filter_map(Section::due).min()
    }

    /// The generation that the machine has come to, as well as it can: nothing of it is under way any more.
    pub(crate) fn applied_generation(&self) -> u64 {
        let settled = self.sections.values().all(|section| section.phase != Phase::Progressing);
        if settled { self.generation } else { 0 }
    }

    /// The newest report, if there is something new in it.
    pub(crate) fn report(&mut self) -> Option<StatusReport> {
        std::mem::take(&mut self.changed).then(|| StatusReport {
            observed_generation: self.generation,
            sections: self.sections.iter().map(|(name, section)| section.status(name)).collect(),
        })
    }

    /// The gateway is to be told, whatever it was told before. Without a spec there is nothing to tell.
    pub(crate) fn report_again(&mut self) {
        self.changed = self.generation > 0;
    }
}

impl Section {
    fn apply(&mut self, name: &str, out: &mut Vec<Effect>) {
        if self.running.is_none() {
            self.running = Some(self.since);
            out.push(Effect::Apply(SpecSection { name: name.to_owned(), body: self.body.clone() }));
        }
    }

    fn due(&self) -> Option<Duration> {
        match &self.phase {
            Phase::Progressing => None,
            Phase::Applied { next_pass } => Some(*next_pass),
            Phase::Failed { again, .. } => *again,
        }
    }

    fn status(&self, name: &str) -> SectionStatus {
        let (state, reason) = match &self.phase {
            Phase::Progressing => (SectionState::Progressing, ""),
            Phase::Applied { .. } => (SectionState::Applied, ""),
            Phase::Failed { reason, .. } => (SectionState::Failed, reason.as_str()),
        };
        let name = cut(name.to_owned(), MAX_NAME);
        SectionStatus { name, state: state.into(), reason: reason.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 2] = ["a", "b"];

    fn spec(generation: u64, sections: &[(&str, &[u8])]) -> Spec {
        let section =
            |(name, body): &(&str, &[u8])| SpecSection { name: (*name).into(), body: body.to_vec() };
        Spec { generation, sections: sections.iter().map(section).collect() }
    }

    struct Fixture {
        convergence: Convergence,
        journal: Journal,
    }

    impl Fixture {
        fn new() -> Self {
            Self { convergence: Convergence::default(), journal: Journal::new("j".into()) }
        }

        /// What is applied when a spec comes.
        fn take(&mut self, spec: Spec, at: u64) -> Vec<String> {
            let mut out = Vec::new();
            self.convergence.take(&KNOWN, &mut self.journal, spec, Duration::from_secs(at), &mut out);
            applies(&out)
        }

        fn applied(&mut self, name: &str, result: Result<(), &str>, at: u64) -> Vec<String> {
            let mut out = Vec::new();
            let result = result.map_err(ToOwned::to_owned);
            self.convergence.applied(name, result, Duration::from_secs(at), &mut out);
            applies(&out)
        }

        fn tick(&mut self, at: u64) -> Vec<String> {
            let mut out = Vec::new();
            self.convergence.tick(Duration::from_secs(at), &mut out);
            applies(&out)
        }

        fn states(&mut self) -> Vec<(String, SectionState, String)> {
            self.convergence.report_again();
            let report = self.convergence.report().unwrap();
            report.sections.into_iter().map(|s| (s.name.clone(), s.state(), s.reason)).collect()
        }
    }

    fn applies(out: &[Effect]) -> Vec<String> {
        let name = |effect: &Effect| match effect {
            Effect::Apply(section) => Some(format!("{} {:?}", section.name, section.body)),
            _ => None,
        };
        out.iter().filter_map(name).collect()
    }

    #[test]
    fn a_spec_is_journaled_applied_and_settled() {
        let mut fixture = Fixture::new();
        assert_eq!(fixture.take(spec(3, &[("a", b"1"), ("b", b"2")]), 0), ["a [49]", "b [50]"]);
        assert_eq!((fixture.journal.spec().generation, fixture.convergence.applied_generation()), (3, 0));
        fixture.applied("a", Ok(()), 1);
        assert_eq!(fixture.convergence.applied_generation(), 0);
        fixture.applied("b", Err("no such device"), 1);
        assert_eq!(fixture.convergence.applied_generation(), 3, "it has come as far as it can");
        let states = fixture.states();
        assert_eq!(states[0], ("a".into(), SectionState::Applied, String::new()));
        assert_eq!(states[1], ("b".into(), SectionState::Failed, "no such device".into()));
    }

    #[test]
    fn only_what_changed_is_applied_again() {
        let mut fixture = Fixture::new();
        fixture.take(spec(1, &[("a", b"1"), ("b", b"2")]), 0);
        fixture.applied("a", Ok(()), 0);
        fixture.applied("b", Ok(()), 0);
        assert_eq!(fixture.take(spec(2, &[("a", b"1"), ("b", b"3")]), 1), ["b [51]"]);
        assert_eq!(fixture.take(spec(1, &[("a", b"9")]), 2), [""; 0], "an older one is ignored");
        assert_eq!(fixture.journal.spec().generation, 2);
    }

    #[test]
    fn a_newer_body_waits_for_the_run_of_the_older_one() {
        let mut fixture = Fixture::new();
        fixture.take(spec(1, &[("a", b"1")]), 0);
        assert_eq!(fixture.take(spec(2, &[("a", b"2")]), 1), [""; 0]);
        assert_eq!(fixture.applied("a", Ok(()), 2), ["a [50]"]);
        assert_eq!(fixture.convergence.applied_generation(), 0);
        fixture.applied("a", Ok(()), 3);
        assert_eq!(fixture.convergence.applied_generation(), 2);
    }

    #[test]
    fn an_unknown_or_too_large_section_is_reported_and_the_others_applied() {
        let mut fixture = Fixture::new();
        let large = vec![0; MAX_BODY + 1];
        assert_eq!(fixture.take(spec(1, &[("a", b"1"), ("b", &large), ("zz", b"")]), 0), ["a [49]"]);
        fixture.applied("a", Ok(()), 0);
        let reasons: Vec<_> = fixture.states().into_iter().map(|(_, _, reason)| reason).collect();
        assert_eq!(reasons, ["", "too_large", "unknown_section"]);
        assert_eq!(fixture.tick(1_000_000), ["a [49]"], "the others are not tried again");
    }

    #[test]
    fn failures_are_tried_again_ever_less_often_and_passes_repair_drift() {
        let mut fixture = Fixture::new();
        fixture.take(spec(1, &[("a", b"1")]), 0);
        let mut now = 0;
        for wait in [10, 20, 40, 80, 160, 300, 300] {
            fixture.applied("a", Err("x"), now);
            assert_eq!(fixture.convergence.next_deadline(), Some(Duration::from_secs(now + wait)));
            assert_eq!(fixture.tick(now + wait - 1), [""; 0]);
            now += wait;
            assert_eq!(fixture.tick(now), ["a [49]"]);
        }
        fixture.applied("a", Ok(()), now);
        assert_eq!(fixture.tick(now + 299), [""; 0]);
        assert_eq!(fixture.tick(now + 300), ["a [49]"]);
        assert_eq!(fixture.states()[0].1, SectionState::Applied, "a pass that is under way changes nothing");
    }
}
