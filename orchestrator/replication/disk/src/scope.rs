//! Defines which paths of a workspace are replicated, and maps paths to workspaces.
//!
//! Paths written by other programs, or by the daemon other than through a [`Disk`], are not
//! replicated: work directories, their checkpoints, working copies of changesets, and sandboxes. Of
//! a task, its history and state are replicated, but not its files, logs and secrets. Of a run of
//! workers, its log and the submitted proposals are replicated. The registered checksums of files
//! ([`register`]) are replicated if the files are.
//!
//! [`Disk`]: goondan_durable::disk::Disk
//! [`register`]: goondan_durable::register

use std::ffi::OsStr;
use std::io;
use std::path::{Component, Path, PathBuf};

use goondan_durable::register::{HERE, REGISTERS};
use goondan_protocol::ids::WorkspaceId;
use goondan_protocol::task::TaskId;
use goondan_replication::operation::RelativePath;

/// Directory with one directory per instance of a workspace.
pub(crate) const INSTANCES: &str = "instances";
/// Paths of an instance that are not replicated.
const APART_OF_INSTANCE: [&str; 2] = ["work", ".checkpoints"];
/// An agent's changes to its own configuration.
const BUNDLE: &str = "swarm-bundle";
/// Paths of the bundle that are not replicated: the changesets, which the agent's process also
/// writes, and the directory in which its modules are tested.
const APART_OF_BUNDLE: [&str; 2] = ["changesets", "gate"];
/// Directory with the work area of each task of a workspace.
const TASKS: &str = "tasks";
/// The replicated directory of a work area.
const METADATA: &str = ".metadata";
/// Prefix of file names in [`METADATA`] that are not replicated, because each node has its own key.
const SECRETS: &[u8] = b"secrets";
/// Directory with the sandboxes of each run of workers.
const SANDBOXES: &str = "sandboxes";
/// Prefixes of replicated names in a run: its log, and proposals packed for other nodes.
const OF_RUN: [&[u8]; 2] = [b"events.jsonl", b".handed-on"];

/// A path below the directory of workspaces that a log cannot contain.
#[derive(Debug, thiserror::Error)]
#[error(
    "`{}` cannot be replicated: below a workspace's directory, names must be UTF-8 and short \
     enough for records", path.display()
)]
struct InvalidScopePath {
    path: PathBuf,
}

/// True if a path of a workspace is replicated.
#[must_use]
pub fn is_replicated(path: &RelativePath) -> bool {
    are_replicated(path.as_str().split('/'))
}

/// True if the path with these names, relative to the workspace's directory, is replicated.
pub(crate) fn are_replicated(names: impl Iterator<Item = impl AsRef<OsStr>>) -> bool {
    rule_of(names) != ScopeRule::Apart
}

/// Rule for a path and the entries of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScopeRule {
    Whole,
    Apart,
    Workspace,
    /// `instances`.
    Instances,
    /// The directory of an instance.
    Instance,
    /// `swarm-bundle` of an instance.
    Bundle,
    /// `tasks`.
    Tasks,
    /// The work area of a task.
    WorkArea,
    /// `.metadata` of a work area.
    Metadata,
    /// `sandboxes`.
    Sandboxes,
    /// The directory of a run.
    Run,
    Registers,
    /// The registers of one kind of folder.
    RegisterGroup,
    /// The registers of one folder.
    Register,
}

impl ScopeRule {
    /// The rule for an entry of a directory with this rule.
    fn of_name(self, name: &OsStr) -> Self {
        let bytes = name.as_encoded_bytes();
        match self {
            Self::Whole | Self::Apart => self,
            Self::Workspace if name == INSTANCES => Self::Instances,
            Self::Workspace if name == TASKS => Self::Tasks,
            Self::Workspace if name == SANDBOXES => Self::Sandboxes,
            Self::Workspace if name == REGISTERS => Self::Registers,
            Self::Workspace => Self::Whole,
            Self::Registers => Self::RegisterGroup,
            Self::RegisterGroup => Self::Register,
            Self::Register if name == HERE => Self::Apart,
            Self::Register => Self::Whole,
            Self::Instances => Self::Instance,
            Self::Instance if APART_OF_INSTANCE.iter().any(|apart| name == *apart) => Self::Apart,
            Self::Instance if name == BUNDLE => Self::Bundle,
            Self::Instance => Self::Whole,
            Self::Bundle if APART_OF_BUNDLE.iter().any(|apart| name == *apart) => Self::Apart,
            Self::Bundle => Self::Whole,
            Self::Tasks if is_task(name) => Self::WorkArea,
            // Incoming files, and files that people keep there.
            Self::Tasks => Self::Apart,
            Self::WorkArea if name == METADATA => Self::Metadata,
            Self::WorkArea => Self::Apart,
            Self::Metadata if bytes.starts_with(SECRETS) => Self::Apart,
            Self::Metadata => Self::Whole,
            Self::Sandboxes => Self::Run,
            Self::Run if OF_RUN.iter().any(|begins| bytes.starts_with(begins)) => Self::Whole,
            Self::Run => Self::Apart,
        }
    }

    /// True if a directory may contain both replicated and other entries.
    fn is_mixed(self) -> bool {
        !matches!(self, Self::Whole | Self::Apart)
    }
}

fn is_task(name: &OsStr) -> bool {
    let name = name.to_str();
    name.is_some_and(|name| name.parse::<TaskId>().is_ok())
}

fn rule_of(names: impl Iterator<Item = impl AsRef<OsStr>>) -> ScopeRule {
    names.fold(ScopeRule::Workspace, |rule, name| {
        rule.of_name(name.as_ref())
    })
}

/// True if the directory with these names may contain both replicated and other entries.
pub(crate) fn is_mixed(names: impl Iterator<Item = impl AsRef<OsStr>>) -> bool {
    rule_of(names).is_mixed()
}

/// True if the same parts of a directory are replicated under both names.
pub(crate) fn have_one_rule(one: &RelativePath, other: &RelativePath) -> bool {
    let rule = |path: &RelativePath| rule_of(path.as_str().split('/'));
    let is_one_of_many = !matches!(
        rule(one),
        ScopeRule::Instances | ScopeRule::Tasks | ScopeRule::Sandboxes | ScopeRule::Registers
    );
    rule(one) == rule(other) && is_one_of_many
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PathScope {
    Outside,
    Root(WorkspaceId),
    /// In a workspace, not replicated.
    Apart,
    /// In a workspace, replicated.
    Replicated(WorkspaceId, RelativePath),
}

/// Locates `path`, given that each directory in `workspaces` is a workspace.
///
/// # Errors
///
/// [`io::ErrorKind::InvalidInput`] if a log cannot contain the path.
pub(crate) fn locate(workspaces: &Path, path: &Path) -> io::Result<PathScope> {
    let Ok(below) = path.strip_prefix(workspaces) else {
        return Ok(PathScope::Outside);
    };
    locate_below(below).ok_or_else(|| {
        let path = path.to_owned();
        io::Error::new(io::ErrorKind::InvalidInput, InvalidScopePath { path })
    })
}

fn locate_below(below: &Path) -> Option<PathScope> {
    let name = |component| match component {
        Component::Normal(name) => Some(name),
        _ => None,
    };
    let names: Vec<&OsStr> = below.components().map(name).collect::<Option<_>>()?;
    let Some((workspace, rest)) = names.split_first() else {
        return Some(PathScope::Outside);
    };
    let workspace = WorkspaceId::new(workspace.to_str()?).ok()?;
    if rest.is_empty() {
        return Some(PathScope::Root(workspace));
    }
    if !are_replicated(rest.iter()) {
        return Some(PathScope::Apart);
    }
    let rest: Vec<&str> = rest
        .iter()
        .map(|name| name.to_str())
        .collect::<Option<_>>()?;
    let path = RelativePath::new(&rest.join("/")).ok()?;
    Some(PathScope::Replicated(workspace, path))
}

/// The workspace that contains `path`, replicated or not.
pub(crate) fn workspace_of(workspaces: &Path, path: &Path) -> Option<WorkspaceId> {
    let below = path.strip_prefix(workspaces).ok()?;
    let first = below.components().next()?;
    WorkspaceId::new(first.as_os_str().to_str()?).ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    #[test]
    fn files_written_by_other_programs_are_not_replicated() {
        for replicated in [
            "workspace.json",
            "instances",
            "instances/a",
            "instances/a/metadata.json",
            "instances/a/messages/work",
            "instances/work",
            "connectors/tasks",
            "work",
            "tasks",
            "tasks/t",
            "tasks/t/.metadata",
            "tasks/t/.metadata/history.jsonl",
            "instances/a/swarm-bundle/cursor.yaml",
            "instances/a/swarm-bundle/store/blobs/0",
            "sandboxes",
            "sandboxes/r/events.jsonl",
            "sandboxes/r/.handed-on/coder.json",
            "known",
            "known/tasks/t",
            "known/tasks/t/files.jsonl",
        ] {
            let path = RelativePath::new(replicated).unwrap();
            assert!(is_replicated(&path), "{replicated}");
        }
        for apart in [
            "sandboxes/r/coder",
            "sandboxes/r/coder/kept/d/proposal.json",
            "known/tasks/t/here.jsonl",
            "tasks/t/src",
            "tasks/t/.logs/agent.log",
            "tasks/t/.metadata/secrets.yaml",
            "tasks/.import-1",
            "tasks/_mine/.metadata/history.jsonl",
            "instances/a/work",
            "instances/.new-a/.checkpoints/x",
            "instances/a/.checkpoints",
            "instances/a/swarm-bundle/changesets/c/workdir/x",
            "instances/a/swarm-bundle/gate",
        ] {
            let path = RelativePath::new(apart).unwrap();
            assert!(!is_replicated(&path), "{apart}");
        }
    }

    #[test]
    fn a_path_leads_to_one_place() {
        let at = |path: &str| locate(Path::new("/r/workspaces"), Path::new(path)).unwrap();
        let workspace = WorkspaceId::new("w").unwrap();
        assert_eq!(at("/r/system/x"), PathScope::Outside);
        assert_eq!(at("/r/workspaces"), PathScope::Outside);
        assert_eq!(at("/r/workspaces/w/"), PathScope::Root(workspace.clone()));
        assert_eq!(at("/r/workspaces/w/tasks/t/src/a"), PathScope::Apart);
        assert_eq!(
            at("/r/workspaces/w/instances/./a"),
            PathScope::Replicated(workspace, RelativePath::new("instances/a").unwrap())
        );
    }

    #[test]
    fn unloggable_paths_are_reported_only_where_they_matter() {
        let workspaces = Path::new("/r/workspaces");
        let strange = OsStr::from_bytes(b"\xff");
        let path = workspaces.join("w").join(strange);
        let error = locate(workspaces, &path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("/r/workspaces/w/"), "{error}");
        assert!(locate(workspaces, &workspaces.join("w/../v")).is_err());
        let work = workspaces.join("w/instances").join(strange).join("work");
        assert_eq!(
            locate(workspaces, &work.join(strange)).unwrap(),
            PathScope::Apart
        );
    }

    #[test]
    fn a_directory_moves_only_where_the_same_parts_are_replicated() {
        let rule = |one, other| {
            have_one_rule(
                &RelativePath::new(one).unwrap(),
                &RelativePath::new(other).unwrap(),
            )
        };
        assert!(rule("instances/.new-a", "instances/a"));
        assert!(rule("a", "instances/x/y"));
        assert!(!rule("a", "instances/a"));
        assert!(!rule("instances", "instances"));
        assert!(rule("tasks/a", "tasks/b"));
        assert!(!rule("tasks/a", "instances/a"));
        assert!(!rule("tasks/a/.metadata", "a"));
    }
}
