//! Files of a workspace that a node had before there was a log: they become part of the log if this
//! node is the first owner, and are moved aside otherwise.
//!
//! ```text
//!                 this node writes the first seal
//! workspaces/<id> ──────────────────────────────▶ replication/importing/<id> ──▶ workspaces/<id>, through the log
//!        │
//!        └──────────────────────────────▶ replication/before/<id>
//!          another node has written to the log, before or since
//! ```
//!
//! The files stay in place until the log has answered, and are kept until it has all of them. A
//! crash at any moment loses no file, and the next start continues.

use std::io;
use std::path::{Path, PathBuf};

use goondan_durable::disk::{Disk, EntryKind, append_all, read_full};
use goondan_protocol::ids::WorkspaceId;
use goondan_replicated_disk::scope;
use goondan_replication::operation::RelativePath;
use goondan_store::root::Layout;

/// Directory of local files of workspaces whose logs belong to other nodes.
const BEFORE: &str = "before";
/// Directory of files that are being imported into a log.
const IMPORTING: &str = "importing";
/// Directory of local-only files while the files of a workspace are rebuilt.
const ASIDE: &str = "aside";

/// Directories of `replication/`.
pub(super) const DIRECTORIES: [&str; 3] = [BEFORE, IMPORTING, ASIDE];

/// Size of the copy buffer, in bytes.
const COPY_BYTES: usize = 256 * 1024;

/// Suffix of the name of a note.
pub(super) const NOTE_SUFFIX: &str = ".json";

/// Path of the note of a workspace's applied position.
pub(super) fn note_path(layout: &Layout, workspace: &WorkspaceId) -> PathBuf {
    layout
        .replication()
        .join(format!("{workspace}{NOTE_SUFFIX}"))
}

/// Path of a workspace's local-only files while its files are rebuilt.
pub(super) fn aside(layout: &Layout, workspace: &WorkspaceId) -> PathBuf {
    layout.replication().join(ASIDE).join(workspace.as_str())
}

/// Path of files that are being imported into the log.
pub(super) fn unfinished(layout: &Layout, workspace: &WorkspaceId) -> PathBuf {
    layout
        .replication()
        .join(IMPORTING)
        .join(workspace.as_str())
}

/// Path of the earlier local files of a workspace. A node that leaves the cluster repeatedly has
/// several versions, and none is replaced. The later ones have names that no workspace has.
fn before(disk: &dyn Disk, layout: &Layout, workspace: &WorkspaceId) -> io::Result<PathBuf> {
    let dir = layout.replication().join(BEFORE);
    let mut to = dir.join(workspace.as_str());
    let mut number: u32 = 1;
    while disk.stat(&to)?.is_some() {
        number += 1;
        to = dir.join(format!("{workspace}~{number}"));
    }
    Ok(to)
}

/// True if a workspace has files here.
pub(super) fn has_files(
    disk: &dyn Disk,
    layout: &Layout,
    workspace: &WorkspaceId,
) -> io::Result<bool> {
    let dir = layout.workspace(workspace);
    Ok(disk.stat(&dir)?.is_some() && !disk.list(&dir)?.is_empty())
}

/// Moves away the files of a workspace that are in no log: to the import directory if this node is
/// the first owner; otherwise aside.
pub(super) fn take_away(
    disk: &dyn Disk,
    layout: &Layout,
    workspace: &WorkspaceId,
    is_first: bool,
) -> io::Result<()> {
    let dir = layout.workspace(workspace);
    if is_first {
        go(disk, &dir, &unfinished(layout, workspace))
    } else {
        keep(disk, layout, workspace, &dir)
    }
}

/// Moves aside files whose import into the log has not finished, because another node has written
/// newer ones.
pub(super) fn give_up(disk: &dyn Disk, layout: &Layout, workspace: &WorkspaceId) -> io::Result<()> {
    keep(disk, layout, workspace, &unfinished(layout, workspace))
}

/// Ends the participation of this node in a workspace's log. The files move to a directory from
/// which no daemon runs them, because another node may run them; files of a workspace that this
/// node keeps stay. The note is removed last: while it exists, the daemon does not start without a
/// log, and a crash in between is repeated.
pub(super) fn leave(
    disk: &dyn Disk,
    layout: &Layout,
    workspace: &WorkspaceId,
    is_kept: bool,
) -> io::Result<()> {
    let path = note_path(layout, workspace);
    let rests = [aside(layout, workspace), unfinished(layout, workspace)];
    let files = Some(layout.workspace(workspace)).filter(|_| !is_kept);
    for from in files.into_iter().chain(rests) {
        if disk.stat(&from)?.is_some() {
            let to = before(disk, layout, workspace)?;
            go(disk, &from, &to)?;
            tracing::info!(
                workspace_id = %workspace,
                path = %to.display(),
                "this node leaves the others; its files of the workspace are kept aside"
            );
        }
    }
    if disk.stat(&path)?.is_some() {
        disk.remove_file(&path)?;
        sync_parent(disk, &path)?;
    }
    Ok(())
}

fn keep(disk: &dyn Disk, layout: &Layout, workspace: &WorkspaceId, from: &Path) -> io::Result<()> {
    let to = before(disk, layout, workspace)?;
    go(disk, from, &to)?;
    tracing::warn!(
        workspace_id = %workspace,
        path = %to.display(),
        "another node has written to the workspace's log; this node's earlier files are kept aside"
    );
    Ok(())
}

/// Moves a path within the file system, durably.
fn go(disk: &dyn Disk, from: &Path, to: &Path) -> io::Result<()> {
    disk.rename(from, to)?;
    sync_parent(disk, to)?;
    sync_parent(disk, from)
}

/// Imports the files of a workspace into its log, and waits for the confirmation. Changes on
/// `recorded` go to the log.
pub(super) fn finish(
    disk: &dyn Disk,
    recorded: &dyn Disk,
    layout: &Layout,
    workspace: &WorkspaceId,
) -> io::Result<()> {
    let from = unfinished(layout, workspace);
    if disk.stat(&from)?.is_none() {
        return Ok(());
    }
    tracing::info!(
        workspace_id = %workspace,
        "importing existing files of the workspace into its log"
    );
    let to = layout.workspace(workspace);
    let copy = Copy { disk, recorded };
    copy.directory(&from, &to, None)?;
    recorded.confirm(&to)?;
    disk.remove_tree(&from)?;
    sync_parent(disk, &from)
}

struct Copy<'d> {
    disk: &'d dyn Disk,
    recorded: &'d dyn Disk,
}

impl Copy<'_> {
    /// Copies replicated files, and moves local-only ones. Repeatable after an interruption.
    fn directory(&self, from: &Path, to: &Path, path: Option<&RelativePath>) -> io::Result<()> {
        let mut entries = self.disk.list(from)?;
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        for entry in entries {
            let name = entry.name.to_str().ok_or(io::ErrorKind::InvalidInput)?;
            let below = path.map_or_else(|| name.to_owned(), |path| format!("{path}/{name}"));
            let below = RelativePath::new(&below).map_err(io::Error::other)?;
            let (from, to) = (from.join(name), to.join(name));
            match entry.kind {
                _ if !scope::is_replicated(&below) => go(self.disk, &from, &to)?,
                EntryKind::Directory => {
                    self.recorded.create_dir(&to)?;
                    // Otherwise a crash could lose the directory together with the moved files.
                    sync_parent(self.recorded, &to)?;
                    self.directory(&from, &to, Some(&below))?;
                }
                EntryKind::File => self.file(&from, &to)?,
                EntryKind::Other => tracing::warn!(
                    path = %from.display(),
                    "not a file or directory; it is not replicated"
                ),
            }
        }
        self.recorded.sync_dir(to)
    }

    fn file(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut source = self.disk.open_read(from)?;
        let mut copy = self.recorded.create(to)?;
        let (mut buffer, mut offset) = (vec![0; COPY_BYTES], 0);
        loop {
            let read = read_full(source.as_mut(), &mut buffer, offset)?;
            let Some(bytes) = buffer.get(..read).filter(|bytes| !bytes.is_empty()) else {
                return copy.sync();
            };
            append_all(copy.as_mut(), bytes)?;
            offset += read as u64;
        }
    }
}

fn sync_parent(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |parent| disk.sync_dir(parent))
}

#[cfg(test)]
mod tests {
    use goondan_durable::disk::{Crash, SimulatedDisk, read_all};

    use super::*;

    fn workspace() -> WorkspaceId {
        WorkspaceId::new("w").unwrap()
    }

    /// A workspace that existed before its log, with a work directory.
    fn former() -> (SimulatedDisk, Layout) {
        let (disk, layout) = (SimulatedDisk::new(), Layout::new("/s"));
        let dir = layout.workspace(&workspace());
        let mut dirs = vec![
            PathBuf::from("/s"),
            layout.workspaces(),
            layout.replication(),
        ];
        dirs.extend(DIRECTORIES.map(|name| layout.replication().join(name)));
        dirs.extend(
            ["", "instances", "instances/i", "instances/i/.checkpoints"].map(|it| dir.join(it)),
        );
        for dir in dirs {
            disk.create_dir(&dir).unwrap();
        }
        for path in ["workspace.json", "instances/i/.checkpoints/own"] {
            disk.plant(&dir.join(path), path.as_bytes()).unwrap();
        }
        (disk.after_crash(Crash::KeepUnsynced), layout)
    }

    fn has_all(disk: &SimulatedDisk, below: &Path) -> bool {
        ["workspace.json", "instances/i/.checkpoints/own"]
            .iter()
            .all(|path| {
                let file = disk.open_read(&below.join(path));
                let read = file.and_then(|mut file| read_all(file.as_mut(), 1_000));
                read.is_ok_and(|read| read == path.as_bytes())
            })
    }

    #[test]
    fn rep_1_a_crash_on_the_way_into_the_log_loses_nothing() {
        let (before, layout) = former();
        let workspace = workspace();
        take_away(&before, &layout, &workspace, true).unwrap();
        // The node owns it then, and so has a directory for it.
        before.create_dir(&layout.workspace(&workspace)).unwrap();
        before.sync_dir(&layout.workspaces()).unwrap();
        let run = |disk: &SimulatedDisk| finish(disk, disk, &layout, &workspace);
        for call in 1.. {
            let stopped = before.after_crash(Crash::ProcessOnly);
            stopped.crash_at(call);
            let done = run(&stopped);
            for crash in [
                Crash::LoseUnsynced,
                Crash::KeepUnsynced,
                Crash::Subset(call),
            ] {
                let disk = stopped.after_crash(crash);
                run(&disk).unwrap();
                let dir = layout.workspace(&workspace);
                assert!(has_all(&disk, &dir), "stopped at call {call}, {crash:?}");
                let rest = disk.stat(&unfinished(&layout, &workspace)).unwrap();
                assert_eq!(rest, None);
            }
            if !stopped.is_down() {
                return done.unwrap();
            }
        }
    }

    #[test]
    fn rep_1_crash_while_a_node_leaves_runs_nothing_without_a_note() {
        let (before, layout) = former();
        let workspace = workspace();
        let note = note_path(&layout, &workspace);
        before.plant(&note, b"{}").unwrap();
        let before = before.after_crash(Crash::KeepUnsynced);
        for call in 1.. {
            let stopped = before.after_crash(Crash::ProcessOnly);
            stopped.crash_at(call);
            let done = leave(&stopped, &layout, &workspace, false);
            for crash in [
                Crash::LoseUnsynced,
                Crash::KeepUnsynced,
                Crash::Subset(call),
            ] {
                let disk = stopped.after_crash(crash);
                let is_noted = disk.stat(&note).unwrap().is_some();
                let is_there = has_files(&disk, &layout, &workspace).unwrap();
                assert!(is_noted || !is_there, "stopped at call {call}, {crash:?}");
                leave(&disk, &layout, &workspace, false).unwrap();
                let kept = layout.replication().join(BEFORE).join(workspace.as_str());
                assert!(has_all(&disk, &kept), "stopped at call {call}, {crash:?}");
                assert_eq!(disk.stat(&note).unwrap(), None);
            }
            if !stopped.is_down() {
                return done.unwrap();
            }
        }
    }

    #[test]
    fn rep_1_records_of_another_node_are_not_replaced_by_old_files() {
        let (disk, layout) = former();
        let workspace = workspace();
        take_away(&disk, &layout, &workspace, true).unwrap();
        give_up(&disk, &layout, &workspace).unwrap();
        finish(&disk, &disk, &layout, &workspace).unwrap();
        assert!(!has_files(&disk, &layout, &workspace).unwrap());
        let kept = layout.replication().join(BEFORE).join(workspace.as_str());
        assert!(has_all(&disk, &kept));

        let (disk, layout) = former();
        assert!(has_files(&disk, &layout, &workspace).unwrap());
        take_away(&disk, &layout, &workspace, false).unwrap();
        assert!(has_all(&disk, &kept));
    }

    #[test]
    fn rep_1_files_are_kept_when_a_node_leaves_and_returns_again() {
        let (disk, layout) = former();
        let workspace = workspace();
        let dir = layout.workspace(&workspace);
        for number in 1..=3 {
            take_away(&disk, &layout, &workspace, false).unwrap();
            assert!(!has_files(&disk, &layout, &workspace).unwrap());
            disk.create_dir(&dir).unwrap();
            let text = format!("returned {number} times");
            disk.plant(&dir.join("workspace.json"), text.as_bytes())
                .unwrap();
        }
        let kept = disk.list(&layout.replication().join(BEFORE)).unwrap();
        let names = kept.iter().map(|entry| entry.name.to_str().unwrap());
        let names: std::collections::BTreeSet<_> = names.collect();
        assert_eq!(names, ["w", "w~2", "w~3"].into());
        assert!(
            names
                .iter()
                .skip(1)
                .all(|name| WorkspaceId::new(*name).is_err())
        );
    }
}
