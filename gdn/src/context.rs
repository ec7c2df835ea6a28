//! What every command works with: the options that all share, and the way to daemon and workspace.

use std::path::{Path, PathBuf};

use goondan_protocol::control::{ListWorkspaces, WorkspaceInfo};
use goondan_protocol::ids::WorkspaceId;

use crate::cli::Global;
use crate::client::Client;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Output;
use crate::output::text::shell_quoted;
use crate::project;

/// The environment variable that names the state root.
const STATE_ROOT_VAR: &str = "GOONDAN_STATE_ROOT";

/// The shared options, resolved.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    pub(crate) output: Output,
    /// Absolute.
    pub(crate) state_root: PathBuf,
    project: Option<PathBuf>,
    workspace: Option<WorkspaceId>,
    /// Options that a hint must repeat to mean the same daemon and project.
    repeat: String,
}

impl Context {
    /// Resolves the shared options (`ROOT-7`: option, then environment, then `~/.goondan`).
    pub(crate) fn new(global: &Global, output: Output) -> Result<Self, Failure> {
        let named = global
            .state_root
            .as_deref()
            .filter(|dir| !dir.as_os_str().is_empty());
        let state_root = match named {
            Some(dir) => dir.to_owned(),
            None => std::env::home_dir()
                .filter(|home| home.is_absolute())
                .ok_or_else(no_home)?
                .join(".goondan"),
        };
        let state_root = std::path::absolute(&state_root).map_err(Failure::from)?;
        Ok(Self {
            output,
            state_root,
            project: global.project.clone(),
            workspace: global.workspace.clone(),
            repeat: repeated(global, named),
        })
    }

    /// The same with another state root and project, for `gdn demo`.
    pub(crate) fn elsewhere(&self, state_root: PathBuf, project: PathBuf) -> Self {
        Self {
            repeat: match shell_quoted(&state_root.to_string_lossy()) {
                Some(root) => format!(" --state-root {root}"),
                None => String::new(),
            },
            output: self.output,
            state_root,
            project: Some(project),
            workspace: None,
        }
    }

    /// The command line `gdn <command>` with the shared options of this one.
    pub(crate) fn command(&self, command: &str) -> String {
        format!("gdn{} {command}", self.repeat)
    }

    /// The canonical Project Root.
    pub(crate) fn project(&self) -> Result<PathBuf, Failure> {
        Ok(project::find(self.project.as_deref())?)
    }

    /// Connects to the daemon.
    pub(crate) async fn connect(&self) -> Result<Client, Failure> {
        Ok(Client::connect(&self.state_root).await?)
    }

    /// Connects, and finds the workspace this command is about.
    pub(crate) async fn open(&self) -> Result<(Client, WorkspaceInfo), Failure> {
        let wanted = match &self.workspace {
            Some(id) => Wanted::Id(id.clone()),
            None => Wanted::Project(self.project()?),
        };
        let mut client = self.connect().await?;
        let workspaces = client.query(ListWorkspaces {}).await?;
        match workspaces.into_iter().find(|info| wanted.is(info)) {
            Some(info) => Ok((client, info)),
            None => Err(self.not_registered(&wanted)),
        }
    }

    /// Connects, and finds the workspace unless all are meant.
    pub(crate) async fn open_scope(
        &self,
        all: bool,
    ) -> Result<(Client, Option<WorkspaceId>), Failure> {
        if all {
            return Ok((self.connect().await?, None));
        }
        let (client, info) = self.open().await?;
        Ok((client, Some(info.workspace_id)))
    }

    fn not_registered(&self, wanted: &Wanted) -> Failure {
        match wanted {
            Wanted::Id(id) => Failure::new(
                Exit::NotFound,
                format!("no workspace {id} is registered"),
                format!("see what there is: `{}`", self.command("workspace list")),
            ),
            Wanted::Project(root) => Failure::new(
                Exit::NotFound,
                format!("the project {} is not running", root.display()),
                format!("start it: `{}`", self.command("run")),
            ),
        }
    }
}

enum Wanted {
    Id(WorkspaceId),
    Project(PathBuf),
}

impl Wanted {
    fn is(&self, info: &WorkspaceInfo) -> bool {
        match self {
            Self::Id(id) => *id == info.workspace_id,
            Self::Project(root) => *root == info.project_root,
        }
    }
}

fn no_home() -> Failure {
    Failure::new(
        Exit::Usage,
        "there is no home directory to keep the state in",
        "name a directory: `gdn --state-root DIR …` or GOONDAN_STATE_ROOT",
    )
}

/// The shared options as they must be repeated. What the environment says is in the environment still.
fn repeated(global: &Global, state_root: Option<&Path>) -> String {
    let from_environment = std::env::var_os(STATE_ROOT_VAR).map(PathBuf::from);
    let state_root = state_root.filter(|root| from_environment.as_deref() != Some(root));
    let workspace = global.workspace.as_ref().map(|id| id.as_str().to_owned());
    let path = |path: &Path| shell_quoted(&path.to_string_lossy());
    [
        ("--state-root", state_root.and_then(path)),
        ("--project", global.project.as_deref().and_then(path)),
        ("--workspace", workspace),
    ]
    .into_iter()
    .filter_map(|(option, value)| Some(format!(" {option} {}", value?)))
    .collect()
}
