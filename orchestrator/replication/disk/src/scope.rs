//! Which paths of a workspace are replicated, and which workspace a path belongs to.
//!
//! What other programs write, or the daemon through folders rather than through a [`Disk`], is not: work directories,
//! checkpoints of them, working copies of changesets, and sandboxes. Of a task, its history is replicated and how it
//! stands; not its files, its logs, and its secrets. Of workers, what happened in their runs, and what they handed in.
//! What is known of files ([`register`]) is replicated if they are.
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

/// The directory in which each instance of a workspace has one.
pub(crate) const INSTANCES: &str = "instances";
/// What is not replicated of an instance.
const APART_OF_INSTANCE: [&str; 2] = ["work", ".checkpoints"];
/// What an agent made of its own configuration.
const BUNDLE: &str = "swarm-bundle";
/// What is not replicated of that: what the agent's process writes, too, and where its modules are tried.
const APART_OF_BUNDLE: [&str; 2] = ["changesets", "gate"];
/// The directory in which each task of a workspace has its work area.
const TASKS: &str = "tasks";
/// What is replicated of a work area.
const METADATA: &str = ".metadata";
/// How the names of files begin that are in [`METADATA`] and not replicated: each node has a key of its own.
const SECRETS: &[u8] = b"secrets";
/// The directory in which each run of workers has its sandboxes.
const SANDBOXES: &str = "sandboxes";
/// How the names begin of what is replicated of a run: its log, and the proposals that are packed for other nodes.
const OF_RUN: [&[u8]; 2] = [b"events.jsonl", b".handed-on"];

/// A path below the directory of workspaces that cannot stand in a log.
#[derive(Debug, thiserror::Error)]
#[error(
    "`{}` cannot be replicated: below the directory of a workspace, names are UTF-8, and of the length that records \
     take", path.display()
)]
struct Unspeakable {
    path: PathBuf,
}

/// Whether a path of a workspace is replicated.
#[must_use]
pub fn is_replicated(path: &RelativePath) -> bool {
    are_replicated(path.as_str().split('/'))
}

/// Whether a path is replicated whose names, from the workspace's directory on, are these.
pub(crate) fn are_replicated(names: impl Iterator<Item = impl AsRef<OsStr>>) -> bool {
    rule_of(names) != Rule::Apart
}

/// What holds of a path, and of what stands in a directory there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// Everything there is replicated.
    Whole,
    /// Nothing is.
    Apart,
    /// A workspace's own directory.
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
    /// The directory of registers.
    Registers,
    /// The registers of one kind of folder.
    RegisterGroup,
    /// The registers of one folder.
    Register,
}

impl Rule {
    /// That of a name in a directory of this rule.
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
            // What is on its way in, and what people keep there.
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

    /// Whether a directory may hold what is replicated beside what is not.
    fn is_mixed(self) -> bool {
        !matches!(self, Self::Whole | Self::Apart)
    }
}

fn is_task(name: &OsStr) -> bool {
    let name = name.to_str();
    name.is_some_and(|name| name.parse::<TaskId>().is_ok())
}

fn rule_of(names: impl Iterator<Item = impl AsRef<OsStr>>) -> Rule {
    names.fold(Rule::Workspace, |rule, name| rule.of_name(name.as_ref()))
}

/// Whether a directory may hold what is replicated beside what is not, whose names are these.
pub(crate) fn is_mixed(names: impl Iterator<Item = impl AsRef<OsStr>>) -> bool {
    rule_of(names).is_mixed()
}

/// Whether the same parts of a directory are replicated under both names.
pub(crate) fn have_one_rule(one: &RelativePath, other: &RelativePath) -> bool {
    let rule = |path: &RelativePath| rule_of(path.as_str().split('/'));
    let is_one_of_many = !matches!(
        rule(one),
        Rule::Instances | Rule::Tasks | Rule::Sandboxes | Rule::Registers
    );
    rule(one) == rule(other) && is_one_of_many
}

/// Where a path leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// To no workspace.
    Outside,
    /// To a workspace's own directory.
    Root(WorkspaceId),
    /// Into a workspace, to what is not replicated.
    Apart,
    /// Into a workspace, to what is.
    Replicated(WorkspaceId, RelativePath),
}

/// Where `path` leads, if each directory in `workspaces` is a workspace's.
///
/// # Errors
///
/// [`io::ErrorKind::InvalidInput`] if that cannot stand in a log.
pub(crate) fn locate(workspaces: &Path, path: &Path) -> io::Result<Place> {
    let Ok(below) = path.strip_prefix(workspaces) else {
        return Ok(Place::Outside);
    };
    locate_below(below).ok_or_else(|| {
        let path = path.to_owned();
        io::Error::new(io::ErrorKind::InvalidInput, Unspeakable { path })
    })
}

fn locate_below(below: &Path) -> Option<Place> {
    let name = |component| match component {
        Component::Normal(name) => Some(name),
        _ => None,
    };
    let names: Vec<&OsStr> = below.components().map(name).collect::<Option<_>>()?;
    let Some((workspace, rest)) = names.split_first() else {
        return Some(Place::Outside);
    };
    let workspace = WorkspaceId::new(workspace.to_str()?).ok()?;
    if rest.is_empty() {
        return Some(Place::Root(workspace));
    }
    if !are_replicated(rest.iter()) {
        return Some(Place::Apart);
    }
    let rest: Vec<&str> = rest
        .iter()
        .map(|name| name.to_str())
        .collect::<Option<_>>()?;
    let path = RelativePath::new(&rest.join("/")).ok()?;
    Some(Place::Replicated(workspace, path))
}

/// The workspace that `path` is in, whatever it leads to there.
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
    fn what_other_programs_write_is_not_replicated() {
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
        assert_eq!(at("/r/system/x"), Place::Outside);
        assert_eq!(at("/r/workspaces"), Place::Outside);
        assert_eq!(at("/r/workspaces/w/"), Place::Root(workspace.clone()));
        assert_eq!(at("/r/workspaces/w/tasks/t/src/a"), Place::Apart);
        assert_eq!(
            at("/r/workspaces/w/instances/./a"),
            Place::Replicated(workspace, RelativePath::new("instances/a").unwrap())
        );
    }

    #[test]
    fn what_cannot_stand_in_a_log_is_told_and_only_where_it_matters() {
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
            Place::Apart
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
