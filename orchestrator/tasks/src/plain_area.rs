//! Work areas in the plain format that the layout is based on: a history without checksums, and
//! `task.json`, `agent-state.json` and `tokens.json` with data that the history lacks.
//!
//! Such a work area is imported by writing an equivalent history in our format. Agent properties
//! that the plain format does not record, such as the session, are unknown then: the next run
//! starts over.

use std::collections::BTreeMap;
use std::path::Path;

use goondan_durable::IoContext as _;
use goondan_durable::disk::{Disk, read_all};
use goondan_durable::journal::Journal;
use goondan_durable::sealed_log::SealedLog;
use goondan_protocol::ids::AgentName;
use goondan_protocol::task::{PlanStep, PlanStepState, TaskChecks, TaskRunKind, TaskSource};
use goondan_protocol::time::Timestamp;
use goondan_protocol::usage::{MicroUsd, Usage};
use serde::Deserialize;
use serde_json::Value;

use crate::fact::{
    Budget, HistoryEntry, NewTask, PauseReason, RunOutcome, Runtime, TaskEvent, TaskId,
};
use crate::work_area::{HISTORY, WorkAreaError};

/// Maximum bytes read of one of its files.
const FILE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Name of the imported history after it was replaced.
const CAME: &str = ".metadata/history.jsonl.imported";

/// The agent that works on the task from now on.
#[derive(Debug, Clone)]
pub struct PlainWorker {
    pub agent: AgentName,
    pub runtime: Runtime,
    /// True if its output has a result.
    pub tells_result: bool,
}

/// A work area in the plain format.
#[derive(Debug)]
pub struct PlainArea {
    task: TaskFile,
    agent: AgentFile,
    tokens: TokensFile,
    history: Vec<PlainHistoryLine>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TaskFile {
    id: TaskId,
    title: String,
    #[serde(rename = "type", default)]
    kind: String,
    status: String,
    #[serde(default)]
    description: String,
    created_at: Timestamp,
    started_at: Option<Timestamp>,
    updated_at: Option<Timestamp>,
    completed_at: Option<Timestamp>,
    failed_at: Option<Timestamp>,
    current_phase: Option<u32>,
    total_phases: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AgentFile {
    current_step: Option<String>,
    progress: u8,
    last_update: Option<Timestamp>,
    checkpoint_id: Option<String>,
    metadata: AgentMetadata,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AgentMetadata {
    model: Option<String>,
    completed_steps: Vec<String>,
    pending_steps: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TokensFile {
    total: PlainTokenCounts,
    by_phase: BTreeMap<u32, PlainTokenCounts>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PlainTokenCounts {
    input: u64,
    output: u64,
    cost: f64,
    cache_read: u64,
    cache_write: u64,
}

impl PlainTokenCounts {
    fn usage(&self) -> Usage {
        Usage {
            input_tokens: self.input,
            output_tokens: self.output,
            cache_read_tokens: self.cache_read,
            cache_write_tokens: self.cache_write,
            ..Usage::default()
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a cost is a small number of dollars; a cast saturates"
    )]
    fn cost(&self) -> MicroUsd {
        MicroUsd((self.cost * MicroUsd::USD.0 as f64).round() as u64)
    }

    /// Usage that exceeds the sum of the others.
    fn beyond(&self, others: &BTreeMap<u32, Self>) -> Self {
        others.values().fold(*self, |rest, other| Self {
            input: rest.input.saturating_sub(other.input),
            output: rest.output.saturating_sub(other.output),
            cost: (rest.cost - other.cost).max(0.0),
            cache_read: rest.cache_read.saturating_sub(other.cache_read),
            cache_write: rest.cache_write.saturating_sub(other.cache_write),
        })
    }

    fn is_nothing(&self) -> bool {
        self.usage().total() == 0 && self.cost() == MicroUsd::default()
    }
}

#[derive(Debug, Deserialize)]
struct PlainHistoryLine {
    timestamp: Timestamp,
    event: String,
    #[serde(default)]
    data: Value,
}

/// A history in our format, translated from a plain work area.
#[derive(Debug)]
pub struct TranslatedHistory {
    pub entries: Vec<HistoryEntry>,
    /// Events that were not imported, verbatim.
    pub left_out: Vec<String>,
}

fn damaged(path: &Path, problem: &dyn std::fmt::Display) -> WorkAreaError {
    WorkAreaError::Damaged {
        path: path.to_owned(),
        problem: problem.to_string(),
    }
}

impl PlainArea {
    /// Reads a work area; none if it is not in the plain format, or has no history.
    ///
    /// # Errors
    ///
    /// [`WorkAreaError`] if it is in the plain format but unreadable.
    pub fn read(disk: &dyn Disk, root: &Path) -> Result<Option<Self>, WorkAreaError> {
        let path = root.join(HISTORY);
        if disk.stat(&path).during("inspect", &path)?.is_none() {
            return Ok(None);
        }
        let mut lines: Vec<serde_json::Result<PlainHistoryLine>> = Vec::new();
        let mut is_ours = false;
        Journal::open_read(disk, &path)?.scan(|offset, line| {
            is_ours |= offset == 0 && HistoryEntry::from_record(line).is_ok();
            lines.push(serde_json::from_slice(line));
        })?;
        let is_plain = matches!(lines.first(), Some(Ok(line)) if line.event == "task_created");
        if is_ours || !is_plain {
            return Ok(None);
        }
        let history: serde_json::Result<Vec<PlainHistoryLine>> = lines.into_iter().collect();
        let task = read_file(disk, &root.join(".metadata/task.json"))?;
        let agent = read_file(disk, &root.join(".metadata/agent-state.json"))?;
        let tokens = read_file(disk, &root.join(".metadata/tokens.json"))?;
        Ok(Some(Self {
            task: task.ok_or_else(|| damaged(root, &"`.metadata/task.json` is missing"))?,
            agent: agent.unwrap_or_default(),
            tokens: tokens.unwrap_or_default(),
            history: history.map_err(|error| damaged(&path, &error))?,
        }))
    }

    #[must_use]
    pub fn translated(self, worker: PlainWorker) -> TranslatedHistory {
        let phases = self.task.total_phases.unwrap_or_default();
        let description = match self.task.description.trim() {
            "" => self.task.title.clone(),
            _ => self.task.description.clone(),
        };
        let created = NewTask {
            task_id: self.task.id.clone(),
            agent: worker.agent,
            runtime: worker.runtime,
            title: self.task.title.clone(),
            kind: self.task.kind.clone(),
            description,
            total_phases: phases,
            budget: Budget::default(),
            tells_result: worker.tells_result,
            created_by: None,
            source: TaskSource::None,
            checks: TaskChecks::default(),
            fallbacks: Vec::new(),
            model: self.agent.metadata.model.clone(),
        };
        let mut to = Translation {
            entries: Vec::new(),
            left_out: Vec::new(),
            run: 0,
            asks: 0,
            is_running: false,
        };
        to.push(self.task.created_at, TaskEvent::TaskCreated(created));
        for line in &self.history {
            to.line(line);
        }
        let at = [self.task.updated_at, self.agent.last_update];
        let at = at.into_iter().flatten().max();
        let at = at.unwrap_or(self.task.created_at);
        self.add_what_files_say(&mut to, at);
        TranslatedHistory {
            entries: to.entries,
            left_out: to.left_out,
        }
    }

    /// Adds data that only the other files contain.
    fn add_what_files_say(&self, to: &mut Translation, at: Timestamp) {
        let task = &self.task;
        if task.status != "idle" && !to.has(|fact| matches!(fact, TaskEvent::PhaseStarted { .. })) {
            let phase = task.current_phase.unwrap_or_default();
            let started = task.started_at.unwrap_or(at);
            to.push(started, TaskEvent::PhaseStarted { phase });
        }
        to.end_run(at);
        let phase = task.current_phase.unwrap_or_default();
        let rest = self.tokens.total.beyond(&self.tokens.by_phase);
        let by_phase = self.tokens.by_phase.iter();
        for (counter, phase, taken) in by_phase
            .map(|(phase, taken)| (format!("imported-{phase}"), *phase, taken))
            .chain([("imported".to_owned(), phase, &rest)])
            .filter(|(_, _, taken)| !taken.is_nothing())
        {
            let (usage, cost) = (taken.usage(), Some(taken.cost()));
            let phase = Some(phase);
            to.push(
                at,
                TaskEvent::UsageRecorded {
                    counter,
                    usage,
                    cost,
                    phase,
                    session: None,
                },
            );
        }
        let step = |state| {
            move |title: &String| PlanStep {
                title: title.clone(),
                state,
            }
        };
        let AgentMetadata {
            completed_steps,
            pending_steps,
            ..
        } = &self.agent.metadata;
        let completed = completed_steps.iter().map(step(PlanStepState::Completed));
        let current = self.agent.current_step.iter();
        let current = current.map(step(PlanStepState::InProgress));
        let pending = pending_steps.iter().map(step(PlanStepState::Pending));
        let steps: Vec<PlanStep> = completed.chain(current).chain(pending).collect();
        if !steps.is_empty() {
            to.push(at, TaskEvent::PlanTold { steps });
        }
        if let Some(step) = self.agent.current_step.clone() {
            to.push(at, TaskEvent::StepStarted { step });
        }
        if self.agent.progress > 0 {
            let percent = self.agent.progress.min(100);
            to.push(at, TaskEvent::ProgressMade { percent });
        }
        if let Some(checkpoint_id) = self.agent.checkpoint_id.clone() {
            to.push(at, TaskEvent::CheckpointCreated { checkpoint_id });
        }
        self.add_status(to, at);
    }

    /// Adds the event that led to the status, if the history lacks it.
    fn add_status(&self, to: &mut Translation, at: Timestamp) {
        let task = &self.task;
        let (at, fact) = match task.status.as_str() {
            "completed" => (task.completed_at.unwrap_or(at), TaskEvent::TaskCompleted {}),
            "failed" => {
                let reason = "it had failed when it was imported".to_owned();
                (
                    task.failed_at.unwrap_or(at),
                    TaskEvent::TaskFailed { reason },
                )
            }
            "cancelled" => (at, TaskEvent::TaskCancelled {}),
            "paused" => {
                let (reason, why) = (PauseReason::Person, None);
                (at, TaskEvent::TaskPaused { reason, why })
            }
            "waiting_review" => {
                let phase = task.current_phase.unwrap_or_default();
                (at, TaskEvent::ReviewRequested { phase })
            }
            _ => return,
        };
        let same = std::mem::discriminant(&fact);
        if !to.has(|fact| std::mem::discriminant(fact) == same) {
            to.push(at, fact);
        }
    }
}

struct Translation {
    entries: Vec<HistoryEntry>,
    left_out: Vec<String>,
    /// The number of the last run.
    run: u64,
    is_running: bool,
    asks: usize,
}

impl Translation {
    fn push(&mut self, at: Timestamp, fact: TaskEvent) {
        // A history is ordered by time.
        let before = self.entries.last().map(|entry| entry.timestamp);
        let timestamp = before.map_or(at, |before| before.max(at));
        self.entries.push(HistoryEntry { timestamp, fact });
    }

    fn has(&self, is_wanted: impl Fn(&TaskEvent) -> bool) -> bool {
        self.entries.iter().any(|entry| is_wanted(&entry.fact))
    }

    /// Ends a run whose program is unknown here.
    fn end_run(&mut self, at: Timestamp) {
        if std::mem::take(&mut self.is_running) {
            let (run, outcome) = (self.run, RunOutcome::Ended);
            let ended = TaskEvent::RunEnded {
                run,
                outcome,
                last_words: String::new(),
                stderr: String::new(),
                files: Vec::new(),
            };
            self.push(at, ended);
        }
    }

    fn line(&mut self, line: &PlainHistoryLine) {
        let at = line.timestamp;
        match line.event.as_str() {
            // Created from the complete task.
            "task_created" => {}
            "agent_started" => {
                self.end_run(at);
                self.run += 1;
                self.is_running = true;
                let run = self.run;
                let (session, carried) = (None, 0);
                self.push(
                    at,
                    TaskEvent::RunRequested {
                        run,
                        session,
                        carried,
                        kind: TaskRunKind::Agent,
                        agent: None,
                    },
                );
                let pid = line.data.get("pid").and_then(Value::as_u64);
                let pid = pid.and_then(|pid| u32::try_from(pid).ok());
                // Without its start time, no process of this computer can be mistaken for it.
                let start_time = None;
                self.push(
                    at,
                    TaskEvent::AgentStarted {
                        run,
                        pid,
                        start_time,
                    },
                );
            }
            event => match self.fact(event, &line.data) {
                Some(fact) => self.push(at, fact),
                None => self.left_out.push(format!("{at} {event}")),
            },
        }
    }

    /// Translates an event whose form equals ours except for fields that the plain format lacks.
    fn fact(&mut self, event: &str, data: &Value) -> Option<TaskEvent> {
        let mut data = match data {
            Value::Object(data) => data.clone(),
            Value::Null => serde_json::Map::new(),
            _ => return None,
        };
        let asked = match event {
            "dependency_requested" => Some('d'),
            "question_asked" => Some('q'),
            _ => None,
        };
        if let Some(kind) = asked {
            self.asks += 1;
            let id = format!("{kind}-{:04}", self.asks);
            data.entry("id").or_insert(id.into());
            data.entry("until").or_insert(Value::Null);
            data.entry("origin").or_insert("agent".into());
        }
        if matches!(event, "phase_completed" | "work_completed") {
            data.entry("documents").or_insert(Value::Array(Vec::new()));
        }
        if event == "task_paused" {
            data.entry("reason").or_insert("person".into());
        }
        if event == "task_failed" {
            data.entry("reason").or_insert("unknown reason".into());
        }
        let fact = serde_json::json!({"event": event, "data": data});
        serde_json::from_value(fact).ok()
    }
}

fn read_file<T: for<'de> Deserialize<'de>>(
    disk: &dyn Disk,
    path: &Path,
) -> Result<Option<T>, WorkAreaError> {
    if disk.stat(path).during("inspect", path)?.is_none() {
        return Ok(None);
    }
    let mut file = disk.open_read(path).during("open", path)?;
    let text = read_all(file.as_mut(), FILE_BYTES_MAX).during("read", path)?;
    let read = serde_json::from_slice(&text).map_err(|error| damaged(path, &error))?;
    Ok(Some(read))
}

impl TranslatedHistory {
    /// Replaces the imported history, and keeps it next to the new one. Durable on return.
    ///
    /// # Errors
    ///
    /// [`WorkAreaError::File`].
    pub fn write(&self, disk: &dyn Disk, root: &Path) -> Result<(), WorkAreaError> {
        let (path, came) = (root.join(HISTORY), root.join(CAME));
        disk.rename(&path, &came).during("rename", &path)?;
        let (mut history, _) = SealedLog::open(disk, &path)?;
        for entry in &self.entries {
            history.append(entry)?;
        }
        history.sync()?;
        let metadata = root.join(".metadata");
        disk.sync_dir(&metadata).during("sync", &metadata)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
