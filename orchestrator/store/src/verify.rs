//! Checks every file of a System Root, a workspace or an instance, and moves damaged files aside.
//!
//! A check changes nothing, so it may run while the files are unused, or in the process that owns
//! them. A repair ([`crate::instance::repair`]) rewrites a file without its unreadable parts, and
//! keeps the original beside it; it never deletes data.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use goondan_durable::disk::{Disk, EntryKind, read_all};
use goondan_durable::names::renamed_directory;
use goondan_durable::register::{self, REGISTERS, Register};
use goondan_durable::{
    FileError, Finding, FindingKind, IoContext as _, Severity, VerificationResult,
};
use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::task::{self, TaskId};

use crate::configuration;
use crate::error::StoreError;
use crate::file_names::instance_key_of;
use crate::instance::{self, Metadata};
use crate::ledger::LEDGER_FILE;
use crate::limits::CONFIGURATION_BYTES_MAX;
use crate::own_files::{self, OWN_MANIFEST};
use crate::root::{AUDIT_FILE, CONFIGURATION_FILE, Layout, TASKS_GROUP};
use crate::workspace::{self, RecordCopy, UnusableEntry, WORKSPACE_FILE, record_copy};

/// Directory of the state of a workspace's connections.
const CONNECTORS: &str = "connectors";
/// The directory of a workspace's instances.
const INSTANCES: &str = "instances";
/// The directory of a workspace's sandboxes.
const SANDBOXES: &str = "sandboxes";

/// Checks the instance in `dir`.
///
/// # Errors
///
/// [`FileError::Io`] if its folders cannot be listed or a file that was opened cannot be read.
pub fn instance(disk: &dyn Disk, dir: &Path) -> Result<VerificationResult, StoreError> {
    let mut out = VerificationResult::default();
    instance::check(disk, dir, &mut out)?;
    Ok(out)
}

/// Checks a workspace and every instance in it.
///
/// # Errors
///
/// As [`instance`](fn@instance).
pub fn workspace(
    disk: &dyn Disk,
    layout: &Layout,
    id: &WorkspaceId,
) -> Result<VerificationResult, StoreError> {
    let mut out = VerificationResult::default();
    check_workspace(disk, layout, &layout.workspace(id), &mut out)?;
    Ok(out)
}

/// Folders of a workspace whose existence is recorded outside of them
/// ([`goondan_durable::register`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    Instances,
    Tasks,
    Sandboxes,
}

impl Group {
    const ALL: [Self; 3] = [Self::Instances, Self::Tasks, Self::Sandboxes];

    fn name(self) -> &'static str {
        match self {
            Self::Instances => INSTANCES,
            Self::Tasks => TASKS_GROUP,
            Self::Sandboxes => SANDBOXES,
        }
    }

    /// Directory of the folders.
    #[must_use]
    pub fn dir(self, layout: &Layout, id: &WorkspaceId) -> PathBuf {
        match self {
            Self::Instances => layout.instances(id),
            Self::Tasks => layout.tasks(id),
            Self::Sandboxes => layout.sandboxes(id),
        }
    }
}

/// Data that a folder is known to have lost.
#[derive(Debug)]
pub struct KnownLosses<'d> {
    register: Register<'d>,
    pub findings: Vec<Finding>,
}

impl KnownLosses<'_> {
    #[must_use]
    pub fn subject(&self) -> &Path {
        self.register.subject()
    }

    /// Accepts the current state of the folder after a person acknowledged the loss. Returns the
    /// findings as acknowledged.
    ///
    /// # Errors
    ///
    /// [`FileError::Io`].
    pub fn acknowledge(mut self) -> Result<Vec<Finding>, StoreError> {
        self.register.acknowledge()?;
        self.findings.iter_mut().for_each(own_files::mark);
        Ok(self.findings)
    }
}

#[must_use]
pub fn register<'d>(
    disk: &'d dyn Disk,
    layout: &Layout,
    id: &WorkspaceId,
    group: Group,
    subject: &Path,
) -> Register<'d> {
    let workspace = layout.workspace(id);
    Register::in_group(disk, &workspace, Path::new(group.name()), subject)
}

/// The folders of a workspace that lack what is known to have been in them, of files that all nodes have. A conversation
/// that exists is checked by [`instance`](fn@instance), and not here.
///
/// # Errors
///
/// As [`instance`](fn@instance).
pub fn lost<'d>(
    disk: &'d dyn Disk,
    layout: &Layout,
    id: &WorkspaceId,
    groups: &[Group],
) -> Result<Vec<KnownLosses<'d>>, StoreError> {
    let mut all = Vec::new();
    for (group, register) in registers(disk, layout, id, groups)? {
        let subject = register.subject();
        let is_checked_elsewhere =
            group == Group::Instances && disk.stat(subject).during("inspect", subject)?.is_some();
        let findings = match is_checked_elsewhere {
            true => Vec::new(),
            false => register.check()?,
        };
        if !findings.is_empty() {
            all.push(KnownLosses { register, findings });
        }
    }
    Ok(all)
}

/// As [`lost`], of files that this machine alone has.
///
/// # Errors
///
/// As [`instance`](fn@instance).
pub fn lost_here<'d>(
    disk: &'d dyn Disk,
    layout: &Layout,
    id: &WorkspaceId,
) -> Result<Vec<KnownLosses<'d>>, StoreError> {
    let mut all = Vec::new();
    for (_, register) in registers(disk, layout, id, &Group::ALL)? {
        let subject = register.subject();
        // A missing folder is one finding, which another check reports.
        if disk.stat(subject).during("inspect", subject)?.is_none() {
            continue;
        }
        let register = register.here();
        let findings = register.check()?;
        if !findings.is_empty() {
            all.push(KnownLosses { register, findings });
        }
    }
    Ok(all)
}

fn registers<'d>(
    disk: &'d dyn Disk,
    layout: &Layout,
    id: &WorkspaceId,
    groups: &[Group],
) -> Result<Vec<(Group, Register<'d>)>, StoreError> {
    let workspace = layout.workspace(id);
    let mut registers = Vec::new();
    for group in groups {
        let dir = group.dir(layout, id);
        for name in register::names(disk, &workspace, group.name())? {
            let subject = dir.join(name);
            registers.push((*group, register(disk, layout, id, *group, &subject)));
        }
    }
    Ok(registers)
}

/// Checks the history of a task, and its register.
///
/// # Errors
///
/// As [`instance`](fn@instance).
pub fn task(
    disk: &dyn Disk,
    layout: &Layout,
    id: &WorkspaceId,
    work_area: &Path,
) -> Result<VerificationResult, StoreError> {
    let mut out = VerificationResult::default();
    check_task(disk, layout, id, work_area, &mut out)?;
    Ok(out)
}

/// Checks the files of a workspace that belong to no instance and no task: its record, its audit
/// log, its ledger.
///
/// # Errors
///
/// As [`instance`](fn@instance).
pub fn workspace_files(
    disk: &dyn Disk,
    layout: &Layout,
    id: &WorkspaceId,
) -> Result<VerificationResult, StoreError> {
    let mut out = VerificationResult::default();
    check_own_files(disk, layout, &layout.workspace(id), &mut out)?;
    check_unusable(disk, &layout.instances(id), &mut out)?;
    Ok(out)
}

/// Reports unusable instances, because they are in no list and would not be checked otherwise.
fn check_unusable(
    disk: &dyn Disk,
    instances: &Path,
    out: &mut VerificationResult,
) -> Result<(), StoreError> {
    let (_, unusable) = workspace::list_instances(disk, instances)?;
    for UnusableEntry { path, error } in unusable {
        if error.is_shortage() {
            return Err(error);
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let key = instance_key_of(&name);
        let is_older = renamed_directory(&name).is_some();
        let advice = key.map_or_else(
            || {
                match is_older {
                    true => "start the daemon with this workspace to rename the folder",
                    false => "remove the folder: its name is not a conversation's",
                }
                .to_owned()
            },
            |key| {
                format!("recreate its metadata: `gdn daemon verify --conversation {key} --repair`")
            },
        );
        let problem = format!("the conversation is left out of every list: {error}");
        let at = path.join(Metadata::FILE);
        let finding = Finding::new(&at, FindingKind::UnreadableFile, problem);
        out.findings.push(finding.advice(advice));
    }
    Ok(())
}

/// The last configuration that ran.
fn check_configuration(
    disk: &dyn Disk,
    path: &Path,
    out: &mut VerificationResult,
) -> Result<(), StoreError> {
    instance::check_json(disk, path, out)?;
    let mut file = disk.open_read(path).during("open", path)?;
    let bytes = read_all(file.as_mut(), CONFIGURATION_BYTES_MAX).during("read", path)?;
    if !configuration::is_as_written(&bytes) {
        let problem = "it was changed, so it is not used as a fallback configuration";
        let finding = Finding::new(path, FindingKind::ReplacedFile, problem);
        let advice = "nothing to do: the next valid configuration replaces it";
        out.findings
            .push(finding.severity(Severity::Warning).advice(advice));
    }
    Ok(())
}

/// Checks the state of connections.
fn check_connectors(
    disk: &dyn Disk,
    dir: &Path,
    out: &mut VerificationResult,
) -> Result<(), StoreError> {
    for (path, kind, name) in sorted(disk, dir)? {
        if kind == EntryKind::File && name.ends_with(".json") {
            instance::check_json(disk, &path, out)?;
        } else {
            out.findings.push(instance::odd(&path, kind, &name));
        }
    }
    Ok(())
}

/// Checks everything below the System Root that the store writes.
///
/// # Errors
///
/// As [`instance`](fn@instance).
pub fn root(disk: &dyn Disk, layout: &Layout) -> Result<VerificationResult, StoreError> {
    let mut out = VerificationResult::default();
    let config = layout.config_file();
    if disk.stat(&config).during("inspect", &config)?.is_some() {
        instance::check_json(disk, &config, &mut out)?;
    }
    let dir = layout.workspaces();
    if disk.stat(&dir).during("inspect", &dir)?.is_some() {
        for (path, kind, name) in sorted(disk, &dir)? {
            if kind == EntryKind::Directory {
                check_workspace(disk, layout, &path, &mut out)?;
            } else {
                out.findings.push(instance::odd(&path, kind, &name));
            }
        }
    }
    check_lost_folders(disk, layout, &mut out)?;
    Ok(out)
}

/// Reports each workspace whose folder is missing.
fn check_lost_folders(
    disk: &dyn Disk,
    layout: &Layout,
    out: &mut VerificationResult,
) -> Result<(), StoreError> {
    for id in record_copy::list(disk, layout)? {
        let dir = layout.workspace(&id);
        if disk.stat(&dir).during("inspect", &dir)?.is_none() {
            check_record(disk, layout, &dir, out)?;
        }
    }
    Ok(())
}

/// Acknowledges the losses of folders among the findings.
pub(crate) fn acknowledge_lost_folders(
    disk: &dyn Disk,
    layout: &Layout,
    out: &mut VerificationResult,
) -> Result<(), StoreError> {
    let dir = layout.workspaces();
    for finding in &mut out.findings {
        let name = finding.path.strip_prefix(&dir).ok().and_then(Path::to_str);
        if let Some(id) = name.and_then(|name| name.parse().ok()) {
            record_copy::acknowledge_loss(disk, layout, &id)?;
            own_files::mark(finding);
        }
    }
    Ok(())
}

fn lost_folder(dir: &Path, problem: String) -> Finding {
    let finding = Finding::new(dir, FindingKind::MissingFile, problem).severity(Severity::Error);
    finding.advice(
        "restore it from a backup, or acknowledge the loss: `gdn daemon verify --all --repair`",
    )
}

fn sorted(disk: &dyn Disk, dir: &Path) -> Result<Vec<(PathBuf, EntryKind, String)>, StoreError> {
    let entries = disk.list(dir).during("list", dir)?.into_iter();
    let mut entries: Vec<_> = entries
        .map(|entry| {
            let name = entry.name.to_string_lossy().into_owned();
            (dir.join(entry.name), entry.kind, name)
        })
        .collect();
    entries.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(entries)
}

fn check_workspace(
    disk: &dyn Disk,
    layout: &Layout,
    dir: &Path,
    out: &mut VerificationResult,
) -> Result<(), StoreError> {
    check_own_files(disk, layout, dir, out)?;
    let name = dir.file_name().and_then(|name| name.to_str());
    if let Some(id) = name.and_then(|name| name.parse().ok()) {
        check_tasks(disk, layout, &id, out)?;
        for lost in lost(disk, layout, &id, &[Group::Instances, Group::Sandboxes])? {
            out.findings.extend(lost.findings);
        }
    }
    let instances = dir.join(INSTANCES);
    let stat = disk.stat(&instances).during("inspect", &instances)?;
    if stat.is_some_and(|stat| stat.kind == EntryKind::Directory) {
        check_instances(disk, &instances, out)?;
    }
    Ok(())
}

/// Checks the files that belong to no workspace: the system's own audit log, and the record of each
/// folder of a workspace, open or not. A folder without a readable record is in no list, and
/// neither are its conversations.
///
/// # Errors
///
/// As [`instance`](fn@instance).
pub fn root_files(disk: &dyn Disk, layout: &Layout) -> Result<VerificationResult, StoreError> {
    let mut out = VerificationResult::default();
    let system = layout.system();
    let audit = system.join(AUDIT_FILE);
    if disk.stat(&audit).during("inspect", &audit)?.is_some() {
        instance::check_log(disk, &audit, &mut out)?;
    }
    own_files::check(disk, &system, &mut out)?;
    let dir = layout.workspaces();
    if disk.stat(&dir).during("inspect", &dir)?.is_some() {
        for (path, kind, _) in sorted(disk, &dir)? {
            if kind == EntryKind::Directory {
                check_record(disk, layout, &path, &mut out)?;
            }
        }
    }
    check_lost_folders(disk, layout, &mut out)?;
    Ok(out)
}

/// Checks the record of a workspace, which names its project.
fn check_record(
    disk: &dyn Disk,
    layout: &Layout,
    dir: &Path,
    out: &mut VerificationResult,
) -> Result<(), StoreError> {
    let path = dir.join(WORKSPACE_FILE);
    let name = dir.file_name().unwrap_or_default();
    let id: Option<WorkspaceId> = name.to_str().and_then(|name| name.parse().ok());
    let copy = match &id {
        Some(id) => RecordCopy::read(disk, layout, id)?,
        None => None,
    };
    if disk.stat(dir).during("inspect", dir)?.is_none() {
        let lost = match &id {
            Some(id) => workspace::lost_folder(disk, layout, id)?,
            None => None,
        };
        out.findings.extend(lost.map(|copy| {
            let project = copy.record.project_root.display();
            let problem = format!(
                "the folder of the workspace is missing, with all conversations and tasks of `{project}`"
            );
            lost_folder(dir, problem)
        }));
        return Ok(());
    }
    if copy.as_ref().is_some_and(|copy| copy.is_folder_lost) {
        let problem = "the folder of the workspace was missing when the project ran, and was created again, empty";
        out.findings.push(lost_folder(dir, problem.to_owned()));
    }
    let advice = match &copy {
        Some(copy) => format!(
            "run `gdn run` in `{}` to restore its last written state",
            copy.record.project_root.display()
        ),
        None => "run the project again to recreate it, or remove the folder".to_owned(),
    };
    let finding = match workspace::read(disk, dir) {
        Ok(Some(found)) => {
            out.files += 1;
            if name != found.workspace_id.as_str() {
                let problem = format!("it names workspace `{}`", found.workspace_id);
                let finding = Finding::new(&path, FindingKind::WrongOwner, problem);
                finding.advice("rename the folder back")
            } else if copy.is_some_and(|copy| !copy.knows(&found)) {
                let problem = "it was edited, or replaced by an older copy";
                let finding = Finding::new(&path, FindingKind::ReplacedFile, problem);
                finding.severity(Severity::Warning).advice(
                    "check its content, which is used as it is; its next change is recorded",
                )
            } else {
                return Ok(());
            }
        }
        Err(error @ FileError::Io { .. }) => return Err(error.into()),
        Ok(None) => {
            let kept = count_instances(disk, dir)?;
            let problem = format!(
                "the folder does not name its project{}",
                unlisted_conversations_text(kept)
            );
            Finding::new(&path, FindingKind::MissingFile, problem)
                .severity(Severity::Error)
                .advice(advice)
        }
        Err(error) => {
            let problem = format!(
                "{error}{}",
                unlisted_conversations_text(count_instances(disk, dir)?)
            );
            Finding::new(&path, FindingKind::UnreadableFile, problem).advice(advice)
        }
    };
    out.findings.push(finding);
    Ok(())
}

fn unlisted_conversations_text(instances: usize) -> String {
    match instances {
        0 => String::new(),
        1 => "; its conversation is not listed".to_owned(),
        count => format!("; its {count} conversations are not listed"),
    }
}

fn count_instances(disk: &dyn Disk, dir: &Path) -> Result<usize, StoreError> {
    let dir = dir.join(INSTANCES);
    if disk.stat(&dir).during("inspect", &dir)?.is_none() {
        return Ok(0);
    }
    let entries = sorted(disk, &dir)?.into_iter();
    let is_one =
        |kind: EntryKind, name: &str| kind == EntryKind::Directory && !name.starts_with('.');
    Ok(entries
        .filter(|(_, kind, name)| is_one(*kind, name))
        .count())
}

/// All of a workspace but its instances.
fn check_own_files(
    disk: &dyn Disk,
    layout: &Layout,
    dir: &Path,
    out: &mut VerificationResult,
) -> Result<(), StoreError> {
    check_record(disk, layout, dir, out)?;
    if disk.stat(dir).during("inspect", dir)?.is_none() {
        return Ok(());
    }
    own_files::check(disk, dir, out)?;
    for (path, kind, name) in sorted(disk, dir)? {
        match (kind, name.as_str()) {
            (EntryKind::File, WORKSPACE_FILE | OWN_MANIFEST) => {}
            (EntryKind::File, AUDIT_FILE) => instance::check_log(disk, &path, out)?,
            (EntryKind::File, CONFIGURATION_FILE) => check_configuration(disk, &path, out)?,
            (EntryKind::Directory, CONNECTORS) => check_connectors(disk, &path, out)?,
            (EntryKind::File, LEDGER_FILE) => instance::check_ledger(disk, &path, out)?,
            (EntryKind::Directory, INSTANCES | TASKS_GROUP | SANDBOXES | REGISTERS | "backups") => {
            }
            _ => out.findings.push(instance::odd(&path, kind, &name)),
        }
    }
    Ok(())
}

/// Checks the records of tasks. A task's work area belongs to its agent and is not checked.
fn check_tasks(
    disk: &dyn Disk,
    layout: &Layout,
    id: &WorkspaceId,
    out: &mut VerificationResult,
) -> Result<(), StoreError> {
    for path in tasks(disk, layout, id)? {
        check_task(disk, layout, id, &path, out)?;
    }
    Ok(())
}

/// The work areas of the tasks of a workspace, and the paths of known ones that are missing.
///
/// # Errors
///
/// As [`instance`](fn@instance).
pub fn tasks(
    disk: &dyn Disk,
    layout: &Layout,
    id: &WorkspaceId,
) -> Result<Vec<PathBuf>, StoreError> {
    let dir = layout.tasks(id);
    let mut paths = BTreeSet::new();
    if disk.stat(&dir).during("inspect", &dir)?.is_some() {
        for (path, kind, name) in sorted(disk, &dir)? {
            // Others are people's own, or on their way in.
            if kind == EntryKind::Directory && name.parse::<TaskId>().is_ok() {
                paths.insert(path);
            }
        }
    }
    let workspace = layout.workspace(id);
    for name in register::names(disk, &workspace, TASKS_GROUP)? {
        paths.insert(dir.join(name));
    }
    Ok(paths.into_iter().collect())
}

fn check_task(
    disk: &dyn Disk,
    layout: &Layout,
    id: &WorkspaceId,
    work_area: &Path,
    out: &mut VerificationResult,
) -> Result<(), StoreError> {
    let before = out.findings.len();
    instance::check_history(disk, &work_area.join(task::HISTORY), out)?;
    for finding in register(disk, layout, id, Group::Tasks, work_area).check()? {
        // A record that was found damaged needs not be found again by its bytes.
        let is_told = finding.kind == FindingKind::ReplacedFile
            && out
                .findings
                .iter()
                .skip(before)
                .any(|told| told.path == finding.path);
        if !is_told {
            out.findings.push(finding);
        }
    }
    for finding in out.findings.iter_mut().skip(before) {
        if finding.severity == Severity::Error && finding.path != work_area {
            instance::HISTORY_ADVICE.clone_into(&mut finding.advice);
        }
    }
    Ok(())
}

fn check_instances(
    disk: &dyn Disk,
    dir: &Path,
    out: &mut VerificationResult,
) -> Result<(), StoreError> {
    for (path, kind, name) in sorted(disk, dir)? {
        if name.starts_with('.') {
            let problem = "an instance that was being made or removed when the machine stopped";
            out.findings.push(
                Finding::new(&path, FindingKind::UnfinishedWork, problem)
                    .advice("nothing to do: it is removed when the workspace is opened"),
            );
        } else if kind == EntryKind::Directory {
            instance::check(disk, &path, out)?;
        } else {
            out.findings.push(instance::odd(&path, kind, &name));
        }
    }
    Ok(())
}
