//! Checking every file of a System Root, a workspace or an instance, and setting damage aside.
//!
//! Checking changes nothing, so it may be done while nobody uses the files, or by whoever owns them.
//! Repairing ([`crate::instance::repair`]) writes a file anew without what cannot be read of it, and
//! keeps it as it was beside itself; it never deletes.

use std::path::{Path, PathBuf};

use goondan_durable::disk::{Disk, EntryKind, read_all};
use goondan_durable::{FileError, Finding, FindingKind, IoContext as _, Severity, Verified};
use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::task::{self, TaskId};

use crate::configuration;
use crate::error::StoreError;
use crate::instance::{self, Metadata};
use crate::ledger::LEDGER_FILE;
use crate::limits::CONFIGURATION_BYTES_MAX;
use crate::naming::instance_key_of;
use crate::own_files::{self, OWN_MANIFEST};
use crate::root::{AUDIT_FILE, CONFIGURATION_FILE, Layout};
use crate::workspace::{self, RecordCopy, Unusable, WORKSPACE_FILE};

/// The directory of what a workspace's connections remember.
const CONNECTORS: &str = "connectors";
/// The directory of a workspace's instances.
const INSTANCES: &str = "instances";
const TASKS: &str = "tasks";

/// Checks the instance in `dir`.
///
/// # Errors
///
/// [`FileError::Io`] if its folders cannot be listed or a file that was opened cannot be read.
pub fn instance(disk: &dyn Disk, dir: &Path) -> Result<Verified, StoreError> {
    let mut out = Verified::default();
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
) -> Result<Verified, StoreError> {
    let mut out = Verified::default();
    check_workspace(disk, layout, &layout.workspace(id), &mut out)?;
    Ok(out)
}

/// Checks the files of a workspace that belong to no instance: whose it is, its audit log, its ledger.
///
/// # Errors
///
/// As [`instance`](fn@instance).
pub fn workspace_files(
    disk: &dyn Disk,
    layout: &Layout,
    id: &WorkspaceId,
) -> Result<Verified, StoreError> {
    let mut out = Verified::default();
    check_own_files(disk, layout, &layout.workspace(id), &mut out)?;
    check_unusable(disk, &layout.instances(id), &mut out)?;
    Ok(out)
}

/// Names the instances that cannot be used: they are in no list, so nobody asks to check them.
fn check_unusable(disk: &dyn Disk, instances: &Path, out: &mut Verified) -> Result<(), StoreError> {
    let (_, unusable) = workspace::list_instances(disk, instances)?;
    for Unusable { path, error } in unusable {
        if error.is_shortage() {
            return Err(error);
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let key = instance_key_of(&name);
        let advice = key.map_or_else(
            || "take the folder away: its name is none of a conversation".to_owned(),
            |key| format!("`gdn verify --instance {key} --repair` makes its metadata anew"),
        );
        let problem = format!("the conversation is left out of every list: {error}");
        let at = path.join(Metadata::FILE);
        let finding = Finding::new(&at, FindingKind::UnreadableFile, problem);
        out.findings.push(finding.advice(advice));
    }
    Ok(())
}

/// The last configuration that ran.
fn check_configuration(disk: &dyn Disk, path: &Path, out: &mut Verified) -> Result<(), StoreError> {
    instance::check_json(disk, path, out)?;
    let mut file = disk.open_read(path).during("open", path)?;
    let bytes = read_all(file.as_mut(), CONFIGURATION_BYTES_MAX).during("read", path)?;
    if !configuration::is_as_written(&bytes) {
        let problem = "it is not as it was written, so it is no configuration to fall back to";
        let finding = Finding::new(path, FindingKind::ReplacedFile, problem);
        let advice = "nothing to do: the next configuration that runs takes its place";
        out.findings
            .push(finding.severity(Severity::Warning).advice(advice));
    }
    Ok(())
}

/// What connections remember.
fn check_connectors(disk: &dyn Disk, dir: &Path, out: &mut Verified) -> Result<(), StoreError> {
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
pub fn root(disk: &dyn Disk, layout: &Layout) -> Result<Verified, StoreError> {
    let mut out = Verified::default();
    let config = layout.config_file();
    if disk.stat(&config).during("look at", &config)?.is_some() {
        instance::check_json(disk, &config, &mut out)?;
    }
    let dir = layout.workspaces();
    if disk.stat(&dir).during("look at", &dir)?.is_none() {
        return Ok(out);
    }
    for (path, kind, name) in sorted(disk, &dir)? {
        if kind == EntryKind::Directory {
            check_workspace(disk, layout, &path, &mut out)?;
        } else {
            out.findings.push(instance::odd(&path, kind, &name));
        }
    }
    Ok(out)
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
    out: &mut Verified,
) -> Result<(), StoreError> {
    check_own_files(disk, layout, dir, out)?;
    let instances = dir.join(INSTANCES);
    let stat = disk.stat(&instances).during("look at", &instances)?;
    if stat.is_some_and(|stat| stat.kind == EntryKind::Directory) {
        check_instances(disk, &instances, out)?;
    }
    Ok(())
}

/// Checks what belongs to no workspace: the system's own audit log, and of each folder of a workspace, open
/// or not, whether it says whose it is. A folder that does not is in no list, and so are its conversations.
///
/// # Errors
///
/// As [`instance`](fn@instance).
pub fn root_files(disk: &dyn Disk, layout: &Layout) -> Result<Verified, StoreError> {
    let mut out = Verified::default();
    let system = layout.system();
    let audit = system.join(AUDIT_FILE);
    if disk.stat(&audit).during("look at", &audit)?.is_some() {
        instance::check_log(disk, &audit, &mut out)?;
    }
    own_files::check(disk, &system, &mut out)?;
    let dir = layout.workspaces();
    if disk.stat(&dir).during("look at", &dir)?.is_some() {
        for (path, kind, _) in sorted(disk, &dir)? {
            if kind == EntryKind::Directory {
                check_record(disk, layout, &path, &mut out)?;
            }
        }
    }
    Ok(out)
}

/// Whose a workspace's folder is.
fn check_record(
    disk: &dyn Disk,
    layout: &Layout,
    dir: &Path,
    out: &mut Verified,
) -> Result<(), StoreError> {
    let path = dir.join(WORKSPACE_FILE);
    let name = dir.file_name().unwrap_or_default();
    let id: Option<WorkspaceId> = name.to_str().and_then(|name| name.parse().ok());
    let copy = match &id {
        Some(id) => RecordCopy::read(disk, layout, id)?,
        None => None,
    };
    let advice = match &copy {
        Some(copy) => format!(
            "`gdn run` in `{}` puts it back as it was last written",
            copy.record.project_root.display()
        ),
        None => "run the project again to remake it, or take the folder away".to_owned(),
    };
    let finding = match workspace::read(disk, dir) {
        Ok(Some(found)) => {
            out.files += 1;
            if name != found.workspace_id.as_str() {
                let problem = format!("it names workspace `{}`", found.workspace_id);
                let finding = Finding::new(&path, FindingKind::WrongOwner, problem);
                finding.advice("give the folder its own name again")
            } else if copy.is_some_and(|copy| !copy.knows(&found)) {
                let problem = "it is not as it was written: edited, or an older copy";
                let finding = Finding::new(&path, FindingKind::ReplacedFile, problem);
                finding.severity(Severity::Warning).advice(
                    "look whether it says what it should: it is gone by; the next change of it is noted",
                )
            } else {
                return Ok(());
            }
        }
        Err(error @ FileError::Io { .. }) => return Err(error.into()),
        Ok(None) => {
            let kept = count_instances(disk, dir)?;
            let problem = format!(
                "the folder does not say which project it stands for{}",
                told_of(kept)
            );
            Finding::new(&path, FindingKind::MissingFile, problem)
                .severity(Severity::Error)
                .advice(advice)
        }
        Err(error) => {
            let problem = format!("{error}{}", told_of(count_instances(disk, dir)?));
            Finding::new(&path, FindingKind::UnreadableFile, problem).advice(advice)
        }
    };
    out.findings.push(finding);
    Ok(())
}

fn told_of(instances: usize) -> String {
    match instances {
        0 => String::new(),
        1 => "; the conversation in it is in no list".to_owned(),
        count => format!("; the {count} conversations in it are in no list"),
    }
}

fn count_instances(disk: &dyn Disk, dir: &Path) -> Result<usize, StoreError> {
    let dir = dir.join(INSTANCES);
    if disk.stat(&dir).during("look at", &dir)?.is_none() {
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
    out: &mut Verified,
) -> Result<(), StoreError> {
    check_record(disk, layout, dir, out)?;
    check_moved_tasks(disk, layout, dir, out)?;
    own_files::check(disk, dir, out)?;
    for (path, kind, name) in sorted(disk, dir)? {
        match (kind, name.as_str()) {
            (EntryKind::File, WORKSPACE_FILE | OWN_MANIFEST) => {}
            (EntryKind::File, AUDIT_FILE) => instance::check_log(disk, &path, out)?,
            (EntryKind::File, CONFIGURATION_FILE) => check_configuration(disk, &path, out)?,
            (EntryKind::Directory, CONNECTORS) => check_connectors(disk, &path, out)?,
            (EntryKind::File, LEDGER_FILE) => instance::check_ledger(disk, &path, out)?,
            (EntryKind::Directory, TASKS) => check_tasks(disk, &path, out)?,
            (EntryKind::Directory, INSTANCES | "sandboxes" | "backups") => {}
            _ => out.findings.push(instance::odd(&path, kind, &name)),
        }
    }
    Ok(())
}

/// Checks the tasks of a workspace, if they have a directory of their own.
fn check_moved_tasks(
    disk: &dyn Disk,
    layout: &Layout,
    dir: &Path,
    out: &mut Verified,
) -> Result<(), StoreError> {
    let name = dir.file_name().unwrap_or_default();
    let Some(tasks) = layout.tasks_root().map(|root| root.join(name)) else {
        return Ok(());
    };
    if disk.stat(&tasks).during("look at", &tasks)?.is_some() {
        check_tasks(disk, &tasks, out)?;
    }
    Ok(())
}

/// What is kept of each task: its work area is its agent's.
fn check_tasks(disk: &dyn Disk, dir: &Path, out: &mut Verified) -> Result<(), StoreError> {
    for (path, kind, name) in sorted(disk, dir)? {
        // Others are people's own, or on their way in.
        if kind == EntryKind::Directory && name.parse::<TaskId>().is_ok() {
            instance::check_history(disk, &path.join(task::HISTORY), out)?;
        }
    }
    Ok(())
}

fn check_instances(disk: &dyn Disk, dir: &Path, out: &mut Verified) -> Result<(), StoreError> {
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
