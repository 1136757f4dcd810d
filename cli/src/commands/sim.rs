//! `ironwright sim`.

use std::{
    fs::File,
    io::{BufWriter, Write},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Context;
use ironwright_sim::{Plan, Report};
use serde_json::json;

use crate::{args::SimArgs, output};

/// Violations and faults that are shown at most.
const MAX_SHOWN: usize = 20;

pub(crate) fn run(args: SimArgs, json: bool) -> anyhow::Result<ExitCode> {
    if args.cold_start {
        return cold_start(&args, json);
    }
    let plan = Plan { gateways: args.gateways, ..Plan::new(args.seed, args.nodes, args.minutes, args.chaos) };
    let log = args.log.map(|path| {
        let file = File::create(&path).with_context(|| format!("creating the log {}", path.display()))?;
        anyhow::Ok(Box::new(BufWriter::new(file)) as Box<dyn Write>)
    });
    let report = ironwright_sim::run(&plan, log.transpose()?);
    let smallest = report.violations.first().map(|violation| {
        eprintln!("ironwright: it fails; looking for the fewest faults with which it does");
        ironwright_sim::shrink(&plan, report.schedule.clone(), violation.invariant)
    });
    let faults: Vec<String> = smallest.iter().flatten().map(ToString::to_string).collect();
    if json {
        output::json(&as_json(&plan, &report, &faults))?;
    } else {
        output::text(&as_text(&plan, &report, &faults))?;
    }
    Ok(if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn cold_start(args: &SimArgs, json: bool) -> anyhow::Result<ExitCode> {
    let begun = Instant::now();
    let start = ironwright_sim::cold_start(args.seed, args.nodes, args.gateways);
    let took = begun.elapsed();
    let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
    let (all_up, all_back) = (seconds(start.all_up), seconds(start.all_back));
    let well = start.report.violations.is_empty() && all_up.is_some() && all_back.is_some();
    if json {
        output::json(&json!({
            "nodes": args.nodes,
            "gateways": args.gateways,
            "all_up_s": all_up,
            "all_back_s": all_back,
            "unreachable": start.unreachable,
            "violations": start.report.violations.len(),
            "digest": start.report.digest,
            "wall_s": took.as_secs_f64(),
            "peak_memory_bytes": peak_memory(),
        }))?;
    } else {
        let shown = |time: Option<f64>| time.map_or("not all".to_owned(), |time| format!("{time:.3} s"));
        output::text(&output::fields(&[
            ("all up after the first power on", shown(all_up)),
            ("all back after the gateways", shown(all_back)),
            ("marked unreachable", start.unreachable.to_string()),
            ("violations", start.report.violations.len().to_string()),
            ("log digest", start.report.digest.clone()),
            ("this took", format!("{:.1} s", took.as_secs_f64())),
            ("peak memory", output::or_dash(peak_memory().map(output::size))),
        ]))?;
    }
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The most memory that this process has had.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib * 1024)
}

fn as_json(plan: &Plan, report: &Report, faults: &[String]) -> serde_json::Value {
    let violations: Vec<_> = (report.violations.iter())
        .map(|found| json!({"invariant": found.invariant, "at_s": found.at.to_string(), "what": found.what}))
        .collect();
    json!({
        "command": plan.command(),
        "digest": report.digest,
        "log_lines": report.log_lines,
        "counts": report.counts,
        "violations": violations,
        "smallest_schedule": faults,
    })
}

fn as_text(plan: &Plan, report: &Report, faults: &[String]) -> String {
    let mut rows = vec![("log digest", report.digest.clone()), ("log lines", report.log_lines.to_string())];
    rows.extend(report.counts.iter().map(|(what, count)| (*what, count.to_string())));
    rows.push(("violations", report.violations.len().to_string()));
    let mut text = output::fields(&rows);
    if report.violations.is_empty() {
        return text;
    }
    let mut some = |title: &str, lines: &mut dyn Iterator<Item = String>| {
        text += title;
        for line in lines.take(MAX_SHOWN) {
            text += "\n  ";
            text += &line;
        }
    };
    some("\nWhat does not hold:", &mut report.violations.iter().map(ToString::to_string));
    some("\n\nThe fewest faults found with which it does not:", &mut faults.iter().cloned());
    some("\n\nAgain:", &mut std::iter::once(plan.command()));
    text + "\n"
}
