//! Checkpoints of work areas: made, listed and restored on a thread of their own, one after the other, since they
//! take as long as the files are many (`CKPT-1` to `CKPT-5`).

use std::path::{Path, PathBuf};

use goondan_checkpoints::{
    AgentState, CheckpointEntry, CheckpointError, CheckpointId, CheckpointSelector, Consistency,
    IdError, MakeCheckpoint, RestoreResult, Retention, Store,
};
use goondan_core::{DiskMeasurement, NewCheckpointMetadata, TaskRef, TaskResult, TaskWork};
use goondan_durable::register::Register;
use goondan_protocol::control::{
    CheckpointInfo, CheckpointsPage, ControlError, ErrorCode, ListCheckpoints, TaskDrill,
    TaskRestored,
};
use goondan_protocol::time::Timestamp;
use goondan_trees::{RealFolder, TreeError};

use super::{TaskIo, disk};

/// Directory of an unfinished restore, below the work area.
pub(super) const RESTORING: &str = ".checkpoints/restoring";

/// Executes an operation on checkpoints.
pub(super) fn carry_out(ground: &TaskIo, boot: &str, work: TaskWork) {
    match work {
        TaskWork::MakeCheckpoint {
            at,
            copy,
            token,
            about,
            now,
        } => {
            let (result, disk) =
                make_within(&CheckpointSite::of(ground, &at, copy), boot, about, now);
            ground.report(TaskResult::CheckpointMade {
                at,
                token,
                result,
                disk,
            });
        }
        TaskWork::ListCheckpoints {
            token,
            at,
            copy,
            list,
        } => {
            let place = CheckpointSite::of(ground, &at, copy);
            let listed = place
                .open(boot)
                .and_then(|store| page_of(&store, &at, &list));
            let listed = listed.and_then(|listed| {
                serde_json::to_value(listed)
                    .map_err(|error| ControlError::new(ErrorCode::Internal, error.to_string()))
            });
            ground.answer(token, listed);
        }
        TaskWork::Drill {
            at,
            copy,
            token,
            now,
        } => {
            let result = drill(&CheckpointSite::of(ground, &at, copy), boot, now);
            ground.report(TaskResult::Drilled { at, token, result });
        }
        TaskWork::Restore {
            at,
            copy,
            token,
            checkpoint_id,
            is_rehearsal,
            now,
        } => {
            let result = restore(
                &CheckpointSite::of(ground, &at, copy),
                boot,
                checkpoint_id.as_deref(),
                is_rehearsal,
                now,
            );
            ground.report(TaskResult::Restored {
                at,
                token,
                is_rehearsal,
                result,
            });
        }
        _ => {}
    }
}

/// Identifies the current start of the machine.
pub(in crate::shell) fn boot() -> String {
    let known = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    known.map_or_else(
        |_| uuid::Uuid::now_v7().to_string(),
        |id| id.trim().to_owned(),
    )
}

fn control_error(error: &CheckpointError, task: &str) -> ControlError {
    let text = goondan_log::error_chain(error);
    let code = match error {
        CheckpointError::None
        | CheckpointError::Unknown { .. }
        | CheckpointError::UnknownName { .. } => ErrorCode::TaskNotFound,
        CheckpointError::Damaged { .. } | CheckpointError::AllDamaged { .. } => ErrorCode::Damaged,
        CheckpointError::Invalid { .. } => ErrorCode::InvalidRequest,
        CheckpointError::TooMany { .. }
        | CheckpointError::Busy(_)
        | CheckpointError::Blocked(_)
        | CheckpointError::Tree(TreeError::Changing { .. })
        | CheckpointError::NoRoom { .. } => ErrorCode::TaskRefused,
        _ => ErrorCode::Storage,
    };
    let hint = match error {
        CheckpointError::None => format!("create one: `gdn task checkpoint {task}`"),
        CheckpointError::Unknown { .. } | CheckpointError::UnknownName { .. } => list_hint(task),
        CheckpointError::Damaged { .. } => {
            format!("restore the newest intact one: `gdn task restore {task}`")
        }
        CheckpointError::Tree(TreeError::Changing { .. }) => {
            format!("pause its agent with `gdn task pause {task}`, then try again")
        }
        CheckpointError::NoRoom { .. } => format!(
            "free space on that file system; the task's files are unchanged; see its disk use with \
             `gdn task show {task}`"
        ),
        _ => return ControlError::new(code, text),
    };
    ControlError::new(code, text).suggest(hint)
}

fn list_hint(task: &str) -> String {
    format!("list checkpoints: `gdn task checkpoints {task}`")
}

/// Location of a task's checkpoints and their files.
struct CheckpointSite<'a> {
    ground: &'a TaskIo,
    at: &'a TaskRef,
    work_area: PathBuf,
    /// The task's copy of the project, if the task has a source.
    copy: Option<PathBuf>,
}

impl<'a> CheckpointSite<'a> {
    fn of(ground: &'a TaskIo, at: &'a TaskRef, copy: Option<PathBuf>) -> Self {
        Self {
            work_area: ground.work_area(at),
            ground,
            at,
            copy,
        }
    }

    fn task(&self) -> &str {
        self.at.task_id.as_str()
    }

    fn open(&self, boot: &str) -> Result<Store, ControlError> {
        let store = open_at(&self.work_area, self.copy.as_deref(), self.task(), boot)?;
        note(self.ground, self.at, &store);
        Ok(store)
    }

    fn measured(&self) -> Result<DiskMeasurement, String> {
        disk::measure(&self.work_area, self.copy.as_deref())
    }
}

/// Records the checkpoints of a task outside of its work area. Failures are only logged, because
/// the checkpoints exist.
fn note(ground: &TaskIo, at: &TaskRef, store: &Store) {
    if let Err(error) = store.note(&ground.register(at).here()) {
        tracing::warn!(
            task_id = %at.task_id,
            error = &error as &dyn std::error::Error,
            "failed to record checkpoints of a task; later losses may go unnoticed"
        );
    }
}

fn open_at(
    path: &Path,
    copy: Option<&Path>,
    task: &str,
    boot: &str,
) -> Result<Store, ControlError> {
    let folder = |path: &Path| {
        check_directory(path, task)?;
        RealFolder::open(path).map(Box::new).map_err(|error| {
            let text = format!("failed to open `{}`: {error}", path.display());
            ControlError::new(ErrorCode::Storage, text)
        })
    };
    if let Some(copy) = copy.filter(|copy| std::fs::symlink_metadata(copy).is_err()) {
        let text = format!(
            "task `{task}` has no copy of the project at `{}`",
            copy.display()
        );
        let error = ControlError::new(ErrorCode::TaskRefused, text);
        return Err(error.suggest(format!("create one: `gdn task start {task}`")));
    }
    let opened = match copy {
        Some(copy) => Store::open_copy(folder(path)?, folder(copy)?, task, boot),
        None => Store::open(folder(path)?, task, boot),
    };
    let (store, findings) = opened.map_err(|error| control_error(&error, task))?;
    for finding in findings {
        tracing::warn!(
            task_id = task,
            path = %finding.path.display(),
            problem = finding.problem,
            "checkpoints of a task were damaged"
        );
    }
    Ok(store)
}

/// Refuses a work area or a copy that an agent without a sandbox replaced, for example by a link to
/// other files, which a restore would overwrite.
fn check_directory(path: &Path, task: &str) -> Result<(), ControlError> {
    let kind = match std::fs::symlink_metadata(path).map(|found| found.file_type()) {
        Ok(kind) if kind.is_symlink() => "a symbolic link",
        Ok(kind) if !kind.is_dir() => "a file of another kind",
        _ => return Ok(()),
    };
    let at = path.display();
    let text = format!(
        "`{at}` of task `{task}` was replaced by {kind}; its checkpoints cannot be used there"
    );
    let error = ControlError::new(ErrorCode::TaskRefused, text);
    Err(error.suggest(format!(
        "move the directory back, or restore it from a backup: `ls -l {at}`; then try again"
    )))
}

/// Converts checkpoints of the plain format. A checkpoint that cannot be converted stays unchanged.
pub(super) fn adopt(
    store: &Store,
    register: Option<&Register<'_>>,
    task: &str,
) -> Result<(), ControlError> {
    for left in store
        .adopt(register)
        .map_err(|error| control_error(&error, task))?
    {
        tracing::warn!(
            task_id = task,
            checkpoint_id = %left.id,
            problem = left.problem,
            "skipping a checkpoint of another program that cannot be restored"
        );
    }
    Ok(())
}

/// Finishes or undoes a restore that a crash interrupted.
pub(super) fn finish_restore(
    path: &Path,
    copy: Option<&Path>,
    task: &str,
    boot: &str,
) -> Result<(), ControlError> {
    open_at(path, copy, task, boot).map(drop)
}

fn size_of(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// Creates a checkpoint, unless the work area exceeds its quota (`TASK-9`), and measures the new
/// disk usage.
fn make_within(
    place: &CheckpointSite<'_>,
    boot: &str,
    about: NewCheckpointMetadata,
    now: Timestamp,
) -> (
    Result<CheckpointInfo, ControlError>,
    Option<DiskMeasurement>,
) {
    let quota_bytes = about.quota_bytes;
    let before = match place.measured() {
        Ok(measured) if measured.bytes > quota_bytes => {
            let error = over_quota(place.at, measured.bytes, quota_bytes);
            return (Err(error), Some(measured));
        }
        measured => measured.ok(),
    };
    let result = make(place, boot, about, now);
    // Older checkpoints may have been removed. Another measurement is cheap compared to a
    // checkpoint.
    let after = match &result {
        Ok(_) => place.measured().ok(),
        Err(_) => before,
    };
    (result, after)
}

fn over_quota(at: &TaskRef, bytes: u64, quota_bytes: u64) -> ControlError {
    let (task, mib) = (&at.task_id, |bytes: u64| bytes.div_ceil(1 << 20));
    let text = format!(
        "no checkpoint of task `{task}` was created: its work area uses {} MiB; the limit is {} MiB",
        mib(bytes),
        mib(quota_bytes)
    );
    ControlError::new(ErrorCode::TaskRefused, text).suggest(format!(
        "remove files from its work area, or raise the limit: `gdn task budget {task} --max-disk-mib MIB`"
    ))
}

fn make(
    place: &CheckpointSite<'_>,
    boot: &str,
    about: NewCheckpointMetadata,
    now: Timestamp,
) -> Result<CheckpointInfo, ControlError> {
    let (ground, at) = (place.ground, place.at);
    let mut store = place.open(boot)?;
    let request = MakeCheckpoint {
        kind: about.kind,
        phase: about.phase,
        progress: about.progress,
        agent_state: AgentState {
            status: about.status,
            current_step: about.step,
        },
        tokens_used: about.tokens,
        consistency: if about.is_live {
            Consistency::Live
        } else {
            Consistency::Stopped
        },
        name: about.name,
        pinned: None,
    };
    let made = store
        .make(&request, now)
        .map_err(|error| control_error(&error, at.task_id.as_str()))?;
    note(ground, at, &store);
    // The checkpoint exists, even if pruning fails.
    let register = ground.register(at).here();
    if let Err(error) = store.prune_known(Retention::default(), &register) {
        tracing::warn!(
            task_id = %at.task_id,
            error = &error as &dyn std::error::Error,
            "failed to remove old checkpoints of a task"
        );
    }
    Ok(CheckpointInfo {
        checkpoint_id: made.checkpoint_id.to_string(),
        kind: request.kind.to_owned(),
        name: request.name,
        phase: request.phase,
        created_at: Some(now),
        snapshot_size: made.snapshot_bytes,
        files: Some(size_of(made.files)),
        damaged: None,
    })
}

fn list(store: &Store, task: &str) -> Result<Vec<CheckpointInfo>, ControlError> {
    let listed = store.list().map_err(|error| control_error(&error, task))?;
    Ok(listed.into_iter().map(info).collect())
}

fn page_of(
    store: &Store,
    at: &TaskRef,
    list: &ListCheckpoints,
) -> Result<CheckpointsPage, ControlError> {
    let task = at.task_id.as_str();
    let after = list.after.as_deref().map(|id| id_of(id, task));
    let after = after.transpose()?;
    let listed = store.list_behind(after);
    let page = listed.and_then(|listed| list.page_of(listed.map(|one| one.map(info))));
    page.map_err(|error| control_error(&error, task))
}

fn id_of(id: &str, task: &str) -> Result<CheckpointId, ControlError> {
    id.parse().map_err(|error: IdError| {
        ControlError::new(ErrorCode::InvalidRequest, error.to_string()).suggest(list_hint(task))
    })
}

fn info(listed: CheckpointEntry) -> CheckpointInfo {
    CheckpointInfo {
        checkpoint_id: listed.id.to_string(),
        kind: listed.kind().to_owned(),
        name: listed.name().map(ToOwned::to_owned),
        phase: listed.about.as_ref().map_or(0, |about| about.phase),
        created_at: listed.created_at(),
        snapshot_size: listed.snapshot_bytes(),
        files: None,
        damaged: listed.damaged,
    }
}

fn restore(
    place: &CheckpointSite<'_>,
    boot: &str,
    checkpoint_id: Option<&str>,
    is_rehearsal: bool,
    now: Timestamp,
) -> Result<TaskRestored, ControlError> {
    let (ground, at) = (place.ground, place.at);
    let mut store = place.open(boot)?;
    adopt(
        &store,
        Some(&ground.register(at).here()),
        at.task_id.as_str(),
    )?;
    let which = match checkpoint_id {
        Some(id) => CheckpointSelector::Id(
            store
                .find(id)
                .map_err(|error| control_error(&error, at.task_id.as_str()))?,
        ),
        None => CheckpointSelector::Latest,
    };
    let restored = store
        .restore(which, is_rehearsal, now)
        .map_err(|error| control_error(&error, at.task_id.as_str()))?;
    for kept in &restored.kept {
        tracing::warn!(
            task_id = %at.task_id,
            path = kept,
            "restore kept aside files written during the restore"
        );
    }
    note(ground, at, &store);
    let all = list(&store, at.task_id.as_str())?;
    Ok(restored_task(restored, &all))
}

fn drill(
    place: &CheckpointSite<'_>,
    boot: &str,
    now: Timestamp,
) -> Result<TaskDrill, ControlError> {
    let mut store = place.open(boot)?;
    adopt(
        &store,
        Some(&place.ground.register(place.at).here()),
        place.task(),
    )?;
    let drill = store
        .drill(now)
        .map_err(|error| control_error(&error, place.task()))?;
    Ok(TaskDrill {
        checkpoint_id: drill.checkpoint_id.to_string(),
        at: drill.at,
        entries: size_of(drill.entries),
        problem: drill.problem,
    })
}

fn restored_task(restored: RestoreResult, all: &[CheckpointInfo]) -> TaskRestored {
    let texts =
        |paths: Vec<goondan_trees::RelativePath>| paths.iter().map(ToString::to_string).collect();
    let skipped = restored.fell_back_from.into_iter().filter_map(|(id, why)| {
        let id = id.to_string();
        let found = all.iter().find(|info| info.checkpoint_id == id)?;
        Some(CheckpointInfo {
            damaged: Some(why),
            ..found.clone()
        })
    });
    TaskRestored {
        checkpoint_id: restored.used.to_string(),
        skipped: skipped.collect(),
        added: texts(restored.added),
        changed: texts(restored.changed),
        removed: texts(restored.removed),
        pre_restore: restored.pre_restore.map(|id| id.to_string()),
    }
}
