//! The thread that owns the work areas of tasks and executes the core's operations on them in order
//! (`TASK-1`).
//!
//! The core limits its queue: one write for each task, a limited amount of output, and a limited
//! number of requests. Long operations (copying a work area, moving one aside) run on separate
//! threads.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use goondan_core::{
    CoreInput, LogText, RequestToken, SecretsRead, TaskRef, TaskResult, TaskWork, UnreadableSecrets,
};
use goondan_durable::disk::Disk;
use goondan_durable::register::Register;
use goondan_protocol::control::ControlError;
use goondan_store::root::{Layout, TASKS_GROUP};
use tokio::sync::mpsc;

use super::event::ShellEvent;
use super::masking::Masks;
use super::secrets::{SecretKeeper, TASK_SECRETS as SECRETS};

mod areas;
mod checkpoints;
mod disk;
mod documents;
mod handoffs;
mod logs;
mod readers;
mod stream;
mod transfer;

pub(super) use checkpoints::boot;

use areas::Areas;
use readers::{Readers, TaskLogReader};

/// Dependencies of operations on tasks.
#[derive(Clone)]
pub(super) struct TaskIo {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) layout: Layout,
    pub(super) secrets: Arc<SecretKeeper>,
    pub(super) masks: Arc<Masks>,
    pub(super) events: mpsc::Sender<ShellEvent>,
}

impl TaskIo {
    fn work_area(&self, at: &TaskRef) -> PathBuf {
        self.layout
            .tasks(&at.workspace_id)
            .join(at.task_id.as_str())
    }

    /// Register of a task's files, outside of its work area.
    fn register(&self, at: &TaskRef) -> Register<'_> {
        let workspace = self.layout.workspace(&at.workspace_id);
        let group = Path::new(TASKS_GROUP);
        Register::in_group(self.disk.as_ref(), &workspace, group, &self.work_area(at))
    }

    fn report(&self, done: TaskResult) {
        let input = CoreInput::Tasks(Box::new(done));
        // There is no receiver only when the daemon is stopping.
        drop(self.events.blocking_send(ShellEvent::Input(input)));
    }

    fn answer(&self, token: RequestToken, result: Result<serde_json::Value, ControlError>) {
        drop(
            self.events
                .blocking_send(ShellEvent::Answer { token, result }),
        );
    }
}

/// Senders to this thread and to the thread that creates checkpoints.
#[derive(Debug)]
pub(super) struct TaskThread {
    works: Sender<TaskWork>,
    checkpoints: Sender<TaskWork>,
    thread: JoinHandle<()>,
}

impl TaskThread {
    /// Starts the threads.
    ///
    /// # Errors
    ///
    /// The operating system's error if a thread cannot be created.
    pub(super) fn start(ground: TaskIo) -> io::Result<Self> {
        let (works, waiting) = channel();
        let (checkpoints, on_checkpoints) = channel();
        let with = ground.clone();
        // The daemon does not wait for this thread at its end, because an unfinished checkpoint is
        // discarded.
        std::thread::Builder::new()
            .name("checkpoints".to_owned())
            .spawn(move || {
                let boot = boot();
                while let Ok(work) = on_checkpoints.recv() {
                    checkpoints::carry_out(&with, &boot, work);
                }
            })?;
        let thread = std::thread::Builder::new()
            .name("tasks".to_owned())
            .spawn(move || run(&ground, &waiting))?;
        Ok(Self {
            works,
            checkpoints,
            thread,
        })
    }

    /// Submits an operation; false if the thread has ended.
    pub(super) fn submit(&self, work: TaskWork) -> bool {
        let to = match &work {
            TaskWork::MakeCheckpoint { .. }
            | TaskWork::ListCheckpoints { .. }
            | TaskWork::Drill { .. }
            | TaskWork::Restore { .. } => &self.checkpoints,
            _ => &self.works,
        };
        to.send(work).is_ok()
    }

    /// Waits until all submitted operations are done. Blocks.
    pub(super) fn finish(self) {
        drop(self.works);
        if self.thread.join().is_err() {
            tracing::error!("the task thread failed");
        }
    }
}

fn run(ground: &TaskIo, waiting: &Receiver<TaskWork>) {
    let mut areas = Areas::new(ground.clone());
    let mut readers = Readers::new(ground.clone());
    while let Ok(work) = waiting.recv() {
        carry_out(ground, &mut areas, &mut readers, work);
    }
}

fn carry_out(ground: &TaskIo, areas: &mut Areas, readers: &mut Readers, work: TaskWork) {
    match work {
        TaskWork::Load { workspace_id } => {
            let found = areas.load_all(&workspace_id);
            ground.report(TaskResult::Loaded {
                workspace_id,
                found,
            });
        }
        TaskWork::Reload { at } => {
            areas.close(&at);
            let found = areas.load(&at);
            readers.written(&at);
            ground.report(TaskResult::Reloaded {
                workspace_id: at.workspace_id,
                found,
            });
        }
        TaskWork::Create {
            at,
            new,
            guide,
            now,
        } => {
            let result = areas.create(&at, *new, guide.as_deref(), now);
            ground.report(TaskResult::Created { at, result });
        }
        TaskWork::Write { at, facts, state } => {
            let result = areas.write(&at, &state, &facts);
            readers.written(&at);
            ground.report(TaskResult::Written { at, result });
        }
        TaskWork::Log { at, text } => {
            let (bytes, items) = match &text {
                LogText::Output(_, text) => (text.len(), 0),
                LogText::Items(items) => (0, items.len()),
                LogText::Block(..) => (0, 0),
            };
            areas.log(&at, &text);
            readers.written(&at);
            if bytes > 0 || items > 0 {
                ground.report(TaskResult::Logged { at, bytes, items });
            }
        }
        TaskWork::KeepSecret {
            at,
            token,
            id,
            value,
            now,
        } => {
            let work_area = ground.work_area(&at);
            let register = ground.register(&at).here();
            let result = ground
                .secrets
                .keep_for_task(&work_area, &register, &id, &value.0, now);
            ground.report(TaskResult::SecretKept {
                at,
                token,
                id,
                result,
            });
        }
        TaskWork::ReadSecrets {
            at,
            run,
            references,
        } => {
            let result = read_secrets(ground, &at, &references);
            ground.report(TaskResult::SecretsRead { at, run, result });
        }
        TaskWork::ReadLog {
            token,
            at,
            position,
            at_end,
        } => {
            let reader = TaskLogReader {
                token,
                at,
                position,
            };
            readers.read(reader, at_end);
        }
        TaskWork::EndLogs { at } => readers.over(&at),
        TaskWork::ForgetReaders { tokens } => readers.forget(&tokens),
        TaskWork::Import {
            workspace_id,
            token,
            path,
            guides,
            worker,
        } => {
            let with = ground.clone();
            in_background(move || {
                let result = transfer::import(&with, &workspace_id, &path, &guides, worker);
                with.report(TaskResult::Imported {
                    workspace_id,
                    token,
                    result,
                });
            });
        }
        TaskWork::Remove {
            at,
            reply,
            with_backup,
        } => {
            areas.close(&at);
            readers.over(&at);
            let with = ground.clone();
            in_background(move || {
                let result = transfer::remove(&with, &at, with_backup);
                with.report(TaskResult::Removed { at, reply, result });
            });
        }
        TaskWork::CheckHandoff { at, copy, text } => {
            let sandboxes = ground.layout.sandboxes(&at.workspace_id);
            let root = copy.unwrap_or_else(|| ground.work_area(&at));
            if let Some(problem) = handoffs::problem_of(&text, &root, &sandboxes) {
                ground.report(TaskResult::HandoffRefused { at, problem });
            }
        }
        TaskWork::FindDocuments {
            at,
            copy,
            documents,
        } => {
            let root = copy.unwrap_or_else(|| ground.work_area(&at));
            let missing = documents::missing(&root, documents);
            ground.report(TaskResult::DocumentsFound { at, missing });
        }
        TaskWork::Measure { at, copy } => {
            let with = ground.clone();
            in_background(move || disk::look(&with, at, copy.as_deref()));
        }
        TaskWork::Close { workspace_id } => {
            areas.close_all(&workspace_id);
            readers.close(&workspace_id);
        }
        // The thread for checkpoints handles these operations.
        TaskWork::MakeCheckpoint { .. }
        | TaskWork::ListCheckpoints { .. }
        | TaskWork::Drill { .. }
        | TaskWork::Restore { .. } => {}
    }
}

/// Runs a long operation on a separate thread; on the current one if none can be created.
fn in_background(work: impl FnOnce() + Send + 'static) {
    let work = Arc::new(std::sync::Mutex::new(Some(work)));
    let take = |work: &std::sync::Mutex<Option<_>>| {
        work.lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .take()
    };
    let theirs = work.clone();
    let spawned = std::thread::Builder::new()
        .name("task-files".to_owned())
        .spawn(move || {
            if let Some(work) = take(&theirs) {
                work();
            }
        });
    if spawned.is_err()
        && let Some(work) = take(&work)
    {
        work();
    }
}

fn read_secrets(ground: &TaskIo, at: &TaskRef, references: &[(String, String)]) -> SecretsRead {
    let work_area = ground.work_area(at);
    let ids: Vec<&str> = references.iter().map(|(_, id)| id.as_str()).collect();
    let lost = |names: Vec<String>, error: String| UnreadableSecrets { names, error };
    let all = || references.iter().map(|(name, _)| name.clone()).collect();
    let found = ground
        .secrets
        .read_for_task(&work_area, &ids)
        .map_err(|error| lost(all(), error))?;
    let missing: Vec<String> = references
        .iter()
        .filter(|(_, id)| !found.contains_key(id))
        .map(|(name, _)| name.clone())
        .collect();
    if !missing.is_empty() {
        return Err(lost(missing, "it is not kept in the work area".to_owned()));
    }
    let read = references.iter().filter_map(|(name, id)| {
        let value = found.get(id)?.clone();
        Some((name.clone(), value))
    });
    Ok(read.collect())
}
