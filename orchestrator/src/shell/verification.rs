//! Verification of the files of tasks, checkpoints and of node-local data, and repair of damage
//! (`MSG-11`). This can take long with large files, so it does not run on the writer threads.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use goondan_checkpoints::{CheckpointError, Store};
use goondan_durable::disk::{Disk, EntryKind};
use goondan_durable::{Finding, FindingKind, IoContext as _, Severity, VerificationResult};
use goondan_protocol::control::{ControlError, ErrorCode};
use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::task::TaskId;
use goondan_protocol::time::Timestamp;
use goondan_store::root::Layout;
use goondan_store::verify::{self, Group};
use goondan_store::{StoreError, workspace};
use goondan_tasks::work_area::{HISTORY, Records, WorkArea, WorkAreaError, read_history};
use goondan_trees::{PathProblem, RealFolder, RelativePath};

/// Prefix of the directories in which checkpoints are unpacked. The next start removes the
/// leftovers of a crash.
const STAGING_PREFIX: &str = ".import-repair-";

/// Advice about a damaged history that the daemon has open.
const IS_OPEN: &str = "the daemon has this history open: restart it (`gdn daemon shutdown`, then `gdn run`), and repair then";

/// Reason that files cannot be verified.
#[derive(Debug, thiserror::Error)]
pub(super) enum VerifyError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    File(#[from] goondan_durable::FileError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    Task(#[from] WorkAreaError),
    #[error(transparent)]
    Path(#[from] PathProblem),
}

impl From<VerifyError> for ControlError {
    fn from(error: VerifyError) -> Self {
        Self::new(ErrorCode::Storage, goondan_log::error_chain(&error))
    }
}

/// The files of one workspace.
pub(super) struct Verification<'a> {
    pub(super) disk: &'a dyn Disk,
    pub(super) layout: &'a Layout,
    pub(super) workspace_id: &'a WorkspaceId,
    /// True if damage must be repaired.
    pub(super) repair: bool,
    /// Tasks whose histories are open, so that their next records would go to a replaced file.
    pub(super) open_tasks: &'a [TaskId],
    pub(super) now: Timestamp,
}

impl Verification<'_> {
    /// Verifies all files.
    ///
    /// # Errors
    ///
    /// [`VerifyError`] if directories cannot be listed, or a repair cannot be written.
    pub(super) fn run(&self) -> Result<VerificationResult, VerifyError> {
        let mut out = VerificationResult::default();
        // Histories are repaired from intact checkpoints first; damaged checkpoints are then set
        // aside.
        let tasks = verify::tasks(self.disk, self.layout, self.workspace_id)?;
        for work_area in &tasks {
            self.check_task(work_area, &mut out)?;
        }
        for work_area in &tasks {
            self.check_checkpoints(Group::Tasks, work_area, &mut out)?;
        }
        let instances = self.layout.instances(self.workspace_id);
        let (instances, _) = workspace::list_instances(self.disk, &instances)?;
        for metadata in instances {
            let name = goondan_store::file_names::instance_dir_name(&metadata.instance_key);
            let dir = self.layout.instances(self.workspace_id).join(name);
            self.check_checkpoints(Group::Instances, &dir, &mut out)?;
        }
        for lost in verify::lost_here(self.disk, self.layout, self.workspace_id)? {
            out.findings.extend(match self.repair {
                true => lost.acknowledge()?,
                false => lost.findings,
            });
        }
        Ok(out)
    }

    fn check_task(
        &self,
        work_area: &Path,
        out: &mut VerificationResult,
    ) -> Result<(), VerifyError> {
        let found = verify::task(self.disk, self.layout, self.workspace_id, work_area)?;
        out.files += found.files;
        out.bytes += found.bytes;
        let mut findings = found.findings;
        let is_damaged = findings
            .iter()
            .any(|finding| finding.severity == Severity::Error);
        if self.repair && is_damaged {
            self.repair_task(work_area, &mut findings, &mut out.kept)?;
        }
        out.findings.append(&mut findings);
        Ok(())
    }

    /// Repairs a history with the records in checkpoints.
    fn repair_task(
        &self,
        work_area: &Path,
        findings: &mut [Finding],
        kept: &mut Vec<PathBuf>,
    ) -> Result<(), VerifyError> {
        let (disk, layout, id) = (self.disk, self.layout, self.workspace_id);
        let register = verify::register(disk, layout, id, Group::Tasks, work_area);
        if !is_directory(disk, work_area)? {
            register.acknowledge()?;
            mark(findings, "acknowledged: it is not reported again");
            return Ok(());
        }
        // Only an earlier folder of this name was lost. The history is intact and may be open, so
        // it must not be rewritten.
        let is_of_folder = |finding: &Finding| finding.path == work_area;
        let mut errors = findings
            .iter()
            .filter(|finding| finding.severity == Severity::Error);
        if errors.all(is_of_folder) {
            register.acknowledge()?;
            mark(findings, "acknowledged: it is not reported again");
            return Ok(());
        }
        let name = work_area.file_name().and_then(OsStr::to_str);
        if self.open_tasks.iter().any(|id| Some(id.as_str()) == name) {
            for finding in findings {
                IS_OPEN.clone_into(&mut finding.advice);
            }
            return Ok(());
        }
        let mut records = Records::default();
        if let Some(history) = read_history(disk, &work_area.join(HISTORY))? {
            records.add(&history);
        }
        let claimed = register.records(HISTORY)?.unwrap_or_default();
        if records.missing(claimed.max(1)) > 0 {
            self.add_from_checkpoints(work_area, claimed, &mut records)?;
        }
        match WorkArea::repair(disk, work_area, records, &register, self.now) {
            Ok(repaired) => {
                kept.extend(repaired.kept);
                mark(
                    findings,
                    &match repaired.lost {
                        0 => "repaired from its checkpoints".to_owned(),
                        lost => format!(
                            "{lost} records are lost; the task is paused: check its work area, then resume it"
                        ),
                    },
                );
            }
            // No copy identifies the task.
            Err(WorkAreaError::NoTask(_)) => {
                for finding in findings {
                    "no checkpoint has its first record: restore the work area from a backup, or move it away"
                        .clone_into(&mut finding.advice);
                }
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Adds records from the histories in checkpoints, newest first, until nothing is missing.
    fn add_from_checkpoints(
        &self,
        work_area: &Path,
        claimed: u64,
        records: &mut Records,
    ) -> Result<(), VerifyError> {
        let file = RelativePath::new(HISTORY.as_bytes())?;
        let store = look(Group::Tasks, work_area)?;
        let name = format!("{STAGING_PREFIX}{}", uuid::Uuid::now_v7().simple());
        let staging = work_area.with_file_name(name);
        self.disk.create_dir(&staging).during("create", &staging)?;
        let found = RealFolder::open(&staging)
            .during("open", &staging)
            .map_err(VerifyError::from)
            .and_then(|into| {
                store.find_file(&file, &into, || -> Result<bool, VerifyError> {
                    let copy = read_history(self.disk, &staging.join(HISTORY))?;
                    records.add(&copy.unwrap_or_default());
                    Ok(records.missing(claimed.max(1)) == 0)
                })
            });
        self.disk.remove_tree(&staging).during("remove", &staging)?;
        found
    }

    fn check_checkpoints(
        &self,
        group: Group,
        subject: &Path,
        out: &mut VerificationResult,
    ) -> Result<(), VerifyError> {
        if !is_directory(self.disk, subject)? {
            return Ok(());
        }
        let store = look(group, subject)?;
        let mut findings = store.check(subject)?;
        if self.repair && !findings.is_empty() {
            let (disk, layout, id) = (self.disk, self.layout, self.workspace_id);
            let register = verify::register(disk, layout, id, group, subject).here();
            let aside = store.set_aside(subject, &register)?;
            mark(&mut findings, "set aside");
            out.kept.extend(aside);
        }
        out.findings.append(&mut findings);
        Ok(())
    }
}

/// The checkpoints of a work area or a conversation.
fn look(group: Group, subject: &Path) -> Result<Store, VerifyError> {
    let folder = RealFolder::open(subject).during("open", subject)?;
    let task = (group == Group::Tasks).then(|| {
        let name = subject.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    });
    Ok(Store::look(Box::new(folder), task)?)
}

fn is_directory(disk: &dyn Disk, path: &Path) -> Result<bool, VerifyError> {
    let stat = disk.stat(path).during("inspect", path)?;
    Ok(stat.is_some_and(|stat| stat.kind == EntryKind::Directory))
}

/// Updates the advice of repaired findings and lowers their severity.
fn mark(findings: &mut [Finding], advice: &str) {
    for finding in findings {
        if finding.kind != FindingKind::TornTail {
            finding.severity = finding.severity.min(Severity::Warning);
            advice.clone_into(&mut finding.advice);
        }
    }
}
