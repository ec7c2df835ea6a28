//! Source of a task's files, and delivery of its result to the project (`REPO-1`, `REPO-3`).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::git::{RepositoryAddress, RepositoryUrl, check_reference};
use crate::ids::ConnectionName;

/// Directory of a sandbox in which a program works: its copy of the project.
pub const SANDBOX_WORK: &str = "work";

/// Directory of a sandbox with the files as they were given, read-only.
pub const SANDBOX_INPUT: &str = "input";

/// Directory of a sandbox in which a program leaves `summary.md` and `test.log`.
pub const SANDBOX_PROPOSAL: &str = "proposal";

/// Begins the names of the branches that tasks work on, and are delivered as; their ids follow.
pub const TASK_BRANCHES: &str = "goondan/";

/// Source of a task's files: `runtime.source` of its agent, or `gdn task new --source`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WrittenSource", into = "WrittenSource")]
pub enum TaskSource {
    /// No source: the task works in its work area, and changes nothing in the project.
    #[default]
    None,
    /// The project: the task works in a sandbox with a full copy of it, and its result is a
    /// proposal.
    Project,
    /// Another git repository: the task works in a sandbox with a clone of it, and its result is a
    /// proposal for that repository.
    Repository(RepositorySource),
}

/// A git repository as a source, not checked yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RepositorySource {
    /// Absolute path or URL of the repository.
    pub repository: String,
    /// Branch, tag or commit; by default the one that the repository's HEAD names.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

impl RepositorySource {
    /// Checks both parts, and returns the address.
    ///
    /// # Errors
    ///
    /// The reason, as text.
    pub fn address(&self) -> Result<RepositoryAddress, String> {
        let Self {
            repository,
            reference,
        } = self;
        if let Some(reference) = reference {
            check_reference(reference).map_err(|why| format!("`{reference}` {why}"))?;
        }
        RepositoryAddress::parse(repository).map_err(|why| format!("`{repository}` {why}"))
    }

    /// The URL, if the repository has one.
    #[must_use]
    pub fn url(&self) -> Option<RepositoryUrl> {
        match self.address() {
            Ok(RepositoryAddress::Url(url)) => Some(url),
            _ => None,
        }
    }
}

impl fmt::Display for RepositorySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reference {
            Some(reference) => write!(f, "{} at {reference}", self.repository),
            None => f.write_str(&self.repository),
        }
    }
}

/// A source as it is written: a word, or a repository.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum WrittenSource {
    Word(SourceWord),
    Repository(RepositorySource),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum SourceWord {
    None,
    Project,
}

impl From<WrittenSource> for TaskSource {
    fn from(written: WrittenSource) -> Self {
        match written {
            WrittenSource::Word(SourceWord::None) => Self::None,
            WrittenSource::Word(SourceWord::Project) => Self::Project,
            WrittenSource::Repository(source) => Self::Repository(source),
        }
    }
}

impl From<TaskSource> for WrittenSource {
    fn from(source: TaskSource) -> Self {
        match source {
            TaskSource::None => Self::Word(SourceWord::None),
            TaskSource::Project => Self::Word(SourceWord::Project),
            TaskSource::Repository(source) => Self::Repository(source),
        }
    }
}

impl TaskSource {
    /// True if there are none.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }

    /// The repository, if it is another one than the project.
    #[must_use]
    pub fn repository(&self) -> Option<&RepositorySource> {
        match self {
            Self::Repository(source) => Some(source),
            Self::None | Self::Project => None,
        }
    }
}

/// Rights of an agent's tasks at the repository in its `runtime.source`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RepositoryAccess {
    /// Connection that opens pull requests; its token is used for git, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<ConnectionName>,
    /// Credentials for git. They stay in the daemon.
    #[serde(skip)]
    pub credentials: Option<GitCredentials>,
}

impl RepositoryAccess {
    /// True if no connection is configured.
    #[must_use]
    pub fn has_no_connection(&self) -> bool {
        self.connection.is_none()
    }
}

/// User and token for a repository, for Basic authentication.
#[derive(Clone, PartialEq, Eq)]
pub struct GitCredentials {
    /// The user.
    pub username: String,
    /// The token. Never shown.
    pub token: String,
}

impl fmt::Debug for GitCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GitCredentials")
            .field("username", &self.username)
            .finish_non_exhaustive()
    }
}

/// A proposal that was delivered as a branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeliveredBranch {
    /// The branch.
    pub branch: String,
    /// Its commit.
    pub commit: String,
    /// Branch of the repository that a pull request is merged into, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub into: Option<String>,
    /// Summary of the proposal.
    #[serde(default)]
    pub summary: String,
}

/// Delivery of a task's proposal when its last phase is approved: `runtime.deliver`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TaskDelivery {
    /// The proposal is applied to the project's files, atomically.
    #[default]
    Apply,
    /// It stays a proposal, which a person applies with `gdn proposal apply`.
    Proposal,
    /// It becomes a commit on a branch of the source's repository, and no file of the project is touched.
    Branch,
    /// The branch is pushed, and a pull request is opened for it.
    #[serde(rename = "pull-request")]
    PullRequest,
}

impl TaskDelivery {
    /// True if it is the default.
    #[must_use]
    pub fn is_usual(&self) -> bool {
        *self == Self::default()
    }
}

/// Kind of a task's run (`REPO-2`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TaskRunKind {
    /// Its agent works.
    #[default]
    Agent,
    /// The command `runtime.setup` prepares the copy of the project, once, before its agent works.
    Setup,
    /// The command `runtime.verify` verifies complete work before it is proposed.
    Verify,
}

impl TaskRunKind {
    /// True if its agent works.
    #[must_use]
    pub fn is_agent(&self) -> bool {
        *self == Self::Agent
    }

    /// The kind as it is written, which is also the name of the setting with its command.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Setup => "setup",
            Self::Verify => "verify",
        }
    }
}

/// Commands that a task runs in its copy of the project, besides its agent's program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskChecks {
    /// `runtime.setup`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub setup: bool,
    /// `runtime.verify`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub verify: bool,
}

impl TaskChecks {
    /// True if there are none.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}
