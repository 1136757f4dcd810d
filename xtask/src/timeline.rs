//! A run as it goes by: one line for each stage that begins or ends, and some while an image is written.

use std::{collections::BTreeMap, time::Duration};

use ironwright_qemu_tests::cluster::{Run, Step};

/// Progress is told each time so many percent are done.
const PERCENT_STEP: u64 = 20;

/// What has been told of a run.
#[derive(Default)]
pub(crate) struct Timeline {
    told: BTreeMap<String, Told>,
}

#[derive(Default, PartialEq, Eq, Clone)]
struct Told {
    state: String,
    waiting_for: Option<String>,
    percent: u64,
}

impl Timeline {
    /// What is new since the last time, as lines. `now` is the time since the demo began.
    pub(crate) fn news(&mut self, run: &Run, now: Duration) -> Vec<String> {
        run.steps.iter().filter_map(|step| self.step(step)).map(|news| line(now, &news)).collect()
    }

    fn step(&mut self, step: &Step) -> Option<String> {
        let percent = step.percent() / PERCENT_STEP * PERCENT_STEP;
        let now = Told { state: step.state.clone(), waiting_for: step.waiting_for.clone(), percent };
        let before = self.told.insert(step.name.clone(), now.clone()).unwrap_or_default();
        if now == before || now.state == "pending" {
            return None;
        }
        Some(format!("{:<18} {}", step.name, describe(step, percent)))
    }
}

fn describe(step: &Step, percent: u64) -> String {
    match (step.state.as_str(), &step.error, &step.waiting_for) {
        ("succeeded", ..) => match took(step) {
            Some(took) => format!("done in {:.1} s", took.as_secs_f64()),
            None => "done".to_owned(),
        },
        ("running", _, _) if percent > 0 => format!("{percent} %"),
        ("running", _, Some(waiting_for)) => waiting_for.clone(),
        ("running", ..) => "…".to_owned(),
        (state, Some(error), _) => format!("{state}: {}: {}", error.code, error.message),
        (state, ..) => state.to_owned(),
    }
}

fn took(step: &Step) -> Option<Duration> {
    let ms = step.ended_ms? - step.started_ms?;
    Some(Duration::from_millis(u64::try_from(ms).ok()?))
}

/// A line of the timeline.
pub(crate) fn line(now: Duration, news: &str) -> String {
    format!("{:>7.1} s  {news}", now.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(json: &str) -> Run {
        let steps: serde_json::Value = serde_json::from_str(json).unwrap();
        serde_json::from_value(serde_json::json!({
            "id": "r", "state": "running", "steps": steps, "error": null, "evidence": {},
        }))
        .unwrap()
    }

    #[test]
    fn each_change_is_told_once() {
        let mut timeline = Timeline::default();
        let mut news = |json: &str| timeline.news(&run(json), Duration::from_millis(1500));
        let waiting = r#"[{"name": "ramdisk.join", "state": "running", "waiting_for": "waiting for the machine"},
                          {"name": "image.deploy", "state": "pending"}]"#;
        assert_eq!(news(waiting), ["    1.5 s  ramdisk.join       waiting for the machine"]);
        assert_eq!(news(waiting), [""; 0]);
        let writing = |done| {
            format!(
                r#"[{{"name": "ramdisk.join", "state": "succeeded", "started_ms": 1000, "ended_ms": 3500}},
                    {{"name": "image.deploy", "state": "running",
                      "progress": {{"phase": "write", "done": {done}, "total": 100}}}}]"#
            )
        };
        assert_eq!(
            news(&writing(41)),
            ["    1.5 s  ramdisk.join       done in 2.5 s", "    1.5 s  image.deploy       40 %"]
        );
        assert_eq!(news(&writing(59)), [""; 0]);
        assert_eq!(news(&writing(60)), ["    1.5 s  image.deploy       60 %"]);
    }
}
