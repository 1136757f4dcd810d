//! `ironwright runs`, with the live view of a run.

use std::{collections::BTreeMap, process::ExitCode, time::Duration};

use indicatif::ProgressBar;
use ironwright_proto::api::{Run, RunState, Step};

use crate::{
    args::RunsCommand,
    client::{Client, ClientError},
    output,
};

/// How often a watch is opened again when control goes away, e.g. for a restart.
const MAX_REOPENS: u32 = 60;
const REOPEN_INTERVAL: Duration = Duration::from_secs(2);

pub(super) async fn run(client: &Client, command: RunsCommand, json: bool) -> anyhow::Result<ExitCode> {
    match command {
        RunsCommand::List => list(client, json).await?,
        RunsCommand::Show { run } => show(&client.get::<Run>(&format!("/v1/runs/{run}")).await?, json)?,
        RunsCommand::Cancel { run } => {
            let path = format!("/v1/runs/{run}/cancel");
            show(&client.post::<_, Run>(&path, &serde_json::json!({})).await?, json)?;
        }
        RunsCommand::Watch { run } => return watch(client, &run, json).await,
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(client: &Client, json: bool) -> anyhow::Result<()> {
    let runs: Vec<Run> = client.get("/v1/runs").await?;
    if json {
        return output::json(&runs);
    }
    let rows: Vec<_> = runs
        .into_iter()
        .map(|run| {
            let step = run.steps.iter().rfind(|step| step.state != RunState::Pending);
            vec![
                run.id.clone(),
                run.machine.to_string(),
                run.image.to_string(),
                state(run.state).to_owned(),
                output::or_dash(step.map(|step| step.name.clone())),
                output::time(run.created_ms),
            ]
        })
        .collect();
    output::text(&output::table(&["RUN", "MACHINE", "IMAGE", "STATE", "STEP", "STARTED"], &rows))?;
    Ok(())
}

fn show(run: &Run, json: bool) -> anyhow::Result<()> {
    if json {
        return output::json(run);
    }
    output::text(&output::fields(&[
        ("run", run.id.clone()),
        ("machine", run.machine.to_string()),
        ("image", format!("{} {}", run.image, run.image_digest)),
        ("state", state(run.state).to_owned()),
        ("asked for by", run.requested_by.clone()),
        ("started", output::time(run.created_ms)),
        ("ended", output::or_dash(run.ended_ms.map(output::time))),
        ("error", output::or_dash(run.error.as_ref().map(|e| format!("{} ({})", e.message, e.code)))),
    ]))?;
    let rows: Vec<_> = run
        .steps
        .iter()
        .map(|step| vec![step.name.clone(), state(step.state).to_owned(), duration(step), remark(step)])
        .collect();
    output::text("\n")?;
    output::text(&output::table(&["STEP", "STATE", "TOOK", ""], &rows))?;
    Ok(())
}

/// Shows every change of a run until it ends.
pub(super) async fn watch(client: &Client, id: &str, json: bool) -> anyhow::Result<ExitCode> {
    let mut view = View::new(json);
    let mut last = None;
    let mut reopens = 0;
    loop {
        let (mut got_any, mut shown) = (false, Ok(()));
        let outcome = client
            .lines(&format!("/v1/runs/{id}/watch"), |run: Run| {
                got_any = true;
                shown = view.show(&run);
                let go_on = shown.is_ok() && !run.state.is_final();
                last = Some(run);
                go_on
            })
            .await;
        shown?;
        if let Some(run) = last.take_if(|run| run.state.is_final()) {
            return Ok(if run.state == RunState::Succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        if let Err(error @ (ClientError::Refused(_) | ClientError::BadAnswer { .. })) = outcome {
            return Err(error.into());
        }
        reopens = if got_any { 0 } else { reopens + 1 };
        if reopens > MAX_REOPENS {
            outcome?;
            anyhow::bail!("control stopped answering while run {id} was going on");
        }
        tokio::time::sleep(REOPEN_INTERVAL).await;
    }
}

/// Prints a line for each step that begins or ends, and a bar below them for the one that makes progress.
struct View {
    json: bool,
    bar: ProgressBar,
    shown: BTreeMap<String, RunState>,
    waiting: Option<String>,
}

impl View {
    fn new(json: bool) -> Self {
        Self { json, bar: super::images::progress_bar(0, json), shown: BTreeMap::new(), waiting: None }
    }

    fn show(&mut self, run: &Run) -> anyhow::Result<()> {
        if self.json {
            return output::json_line(run);
        }
        for step in &run.steps {
            if step.state != RunState::Pending
                && self.shown.insert(step.name.clone(), step.state) != Some(step.state)
            {
                let line = format!(
                    "{:>10}  {:<18} {:<10} {:>12}  {}",
                    output::span(
                        step.ended_ms.or(step.started_ms).unwrap_or(run.created_ms) - run.created_ms
                    ),
                    step.name,
                    state(step.state),
                    duration(step),
                    remark(step)
                );
                self.print(line.trim_end())?;
            }
            if step.state == RunState::Running {
                self.progress(step)?;
            }
        }
        if run.state.is_final() {
            self.bar.finish_and_clear();
            output::line(&format!("run {} {}", run.id, state(run.state)))?;
            if let Some(error) = &run.error {
                output::line(&output::plain(&format!("{} ({})", error.message, error.code)))?;
            }
        }
        Ok(())
    }

    fn progress(&mut self, step: &Step) -> anyhow::Result<()> {
        if let Some(progress) = &step.progress {
            self.bar.set_length(progress.total);
            self.bar.set_position(progress.done);
            self.bar.set_message(format!("{} {}", step.name, progress.phase));
        } else if step.waiting_for != self.waiting {
            self.waiting.clone_from(&step.waiting_for);
            if let Some(waiting) = &self.waiting {
                self.print(&format!("{:>10}  {}", "", waiting))?;
            }
        }
        Ok(())
    }

    /// A line above the bar, also where standard error is no terminal and there is no bar.
    fn print(&self, line: &str) -> anyhow::Result<()> {
        self.bar.suspend(|| output::line(&output::plain(line)))
    }
}

fn duration(step: &Step) -> String {
    match (step.started_ms, step.ended_ms) {
        (Some(started), Some(ended)) => output::span(ended - started),
        _ => "-".to_owned(),
    }
}

fn remark(step: &Step) -> String {
    match (&step.error, &step.waiting_for, &step.progress) {
        (Some(error), _, _) => format!("{} ({})", error.message, error.code),
        (None, _, Some(progress)) if step.state == RunState::Running => {
            format!("{} {} of {}", progress.phase, output::size(progress.done), output::size(progress.total))
        }
        (None, Some(waiting), _) if step.state == RunState::Running => waiting.clone(),
        _ => String::new(),
    }
}

pub(super) const fn state(state: RunState) -> &'static str {
    match state {
        RunState::Pending => "pending",
        RunState::Running => "running",
        RunState::Succeeded => "succeeded",
        RunState::Failed => "failed",
        RunState::Cancelled => "cancelled",
        RunState::Unknown => "unknown",
    }
}
