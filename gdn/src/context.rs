//! What every command works with: the options that all share, and the way to daemon and workspace.

use std::path::{Path, PathBuf};

use goondan_config::ThisMachine;
use goondan_protocol::control::{ListWorkspaces, WorkspaceInfo};
use goondan_protocol::ids::WorkspaceId;
use goondan_vault::{Given, Vault};

use crate::client::Client;
use crate::exit::Exit;
use crate::failure::{Failure, NameKind};
use crate::output::Output;
use crate::output::text::shell_quoted;
use crate::{programs, project, state_format};

/// The environment variable that names the state root.
const STATE_ROOT_VAR: &str = "GOONDAN_STATE_ROOT";

/// The shared options, resolved.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    pub(crate) output: Output,
    /// Absolute.
    pub(crate) state_root: PathBuf,
    /// Whether a person named it; else it is the usual one.
    pub(crate) is_state_root_named: bool,
    project: Option<PathBuf>,
    workspace: Option<WorkspaceId>,
    /// Options that a hint must repeat to mean the same daemon.
    same_daemon: String,
    /// Options that a hint must repeat to mean the same workspace.
    same_workspace: String,
}

impl Context {
    /// Resolves the shared options (`ROOT-7`: option, then environment, then `~/.goondan`).
    pub(crate) fn new(
        output: Output,
        state_root: Option<&Path>,
        project: Option<PathBuf>,
        workspace: Option<WorkspaceId>,
    ) -> Result<Self, Failure> {
        let named = state_root.filter(|dir| !dir.as_os_str().is_empty());
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
            is_state_root_named: named.is_some(),
            same_daemon: same_daemon(named),
            same_workspace: same_workspace(project.as_deref(), workspace.as_ref()),
            project,
            workspace,
        })
    }

    /// The same with another state root and project, for `gdn demo`.
    pub(crate) fn elsewhere(&self, state_root: PathBuf, project: PathBuf) -> Self {
        Self {
            same_daemon: same_daemon(Some(&state_root)),
            same_workspace: option("--project", shell_quoted(&project.to_string_lossy())),
            output: self.output,
            state_root,
            is_state_root_named: true,
            project: Some(project),
            workspace: None,
        }
    }

    /// The same with another state root, for an upgrade that goes on.
    pub(crate) fn with_state_root(&self, state_root: PathBuf) -> Self {
        Self {
            same_daemon: same_daemon(Some(&state_root)),
            state_root,
            is_state_root_named: true,
            ..self.clone()
        }
    }

    /// The command line `gdn <command>` for the same daemon and workspace.
    pub(crate) fn command(&self, command: &str) -> String {
        format!("gdn{}{} {command}", self.same_daemon, self.same_workspace)
    }

    /// The command line `gdn <command>` for the same daemon, whatever the workspace.
    pub(crate) fn daemon_command(&self, command: &str) -> String {
        format!("gdn{} {command}", self.same_daemon)
    }

    /// The canonical Project Root.
    pub(crate) fn project(&self) -> Result<PathBuf, Failure> {
        Ok(project::find(self.project.as_deref())?)
    }

    /// Checks that the files of the state root can be read by this program, where no daemon does it (`REL-1`).
    pub(crate) fn check_format(&self) -> Result<(), Failure> {
        state_format::read(&self.state_root)?;
        Ok(())
    }

    /// The secret store, to read from. Nothing is read before a configuration asks for a secret.
    pub(crate) fn vault(&self) -> Vault {
        Vault::new(&self.state_root, Given::to_this_process())
    }

    /// What of this machine decides whether a project can run on it.
    pub(crate) fn machine(&self) -> ThisMachine {
        ThisMachine::new(self.state_root.clone(), programs::rights)
            .with_readable(goondan_confinement::readable)
    }

    /// Connects to the daemon.
    pub(crate) async fn connect(&self) -> Result<Client, Failure> {
        Ok(Client::connect(&self.state_root).await?)
    }

    /// The workspace that the person named by its id.
    pub(crate) fn workspace_id(&self) -> Option<WorkspaceId> {
        self.workspace.clone()
    }

    /// Whether the person named the workspace by its id.
    pub(crate) fn is_by_id(&self) -> bool {
        self.workspace.is_some()
    }

    /// Connects, and finds the workspace this command is about.
    pub(crate) async fn open(&self) -> Result<(Client, WorkspaceInfo), Failure> {
        let wanted = self.wanted()?;
        let mut client = self.connect().await?;
        let info = self.look_up(&mut client, &wanted).await?;
        Ok((client, info))
    }

    /// Finds the workspace this command is about.
    pub(crate) async fn find(&self, client: &mut Client) -> Result<WorkspaceInfo, Failure> {
        let wanted = self.wanted()?;
        self.look_up(client, &wanted).await
    }

    /// Finds a workspace by its id.
    pub(crate) async fn find_by_id(
        &self,
        client: &mut Client,
        id: &WorkspaceId,
    ) -> Result<WorkspaceInfo, Failure> {
        self.look_up(client, &Wanted::Id(id.clone())).await
    }

    fn wanted(&self) -> Result<Wanted, Failure> {
        Ok(match &self.workspace {
            Some(id) => Wanted::Id(id.clone()),
            None => Wanted::Project(self.project()?),
        })
    }

    async fn look_up(
        &self,
        client: &mut Client,
        wanted: &Wanted,
    ) -> Result<WorkspaceInfo, Failure> {
        let found = client.query(wanted.list()).await?.workspaces.pop();
        found.ok_or_else(|| self.not_registered(wanted))
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
                format!(
                    "see what there is: `{}`",
                    self.daemon_command("workspace list")
                ),
            )
            .of_unknown(NameKind::Workspace),
            Wanted::Project(root) => Failure::new(
                Exit::NotFound,
                format!("the project {} is not running", root.display()),
                format!("start it: `{}`", self.command("run")),
            ),
        }
    }
}

#[derive(Debug, Clone)]
enum Wanted {
    Id(WorkspaceId),
    Project(PathBuf),
}

impl Wanted {
    /// What to ask for to hear of it alone.
    fn list(&self) -> ListWorkspaces {
        let all = ListWorkspaces::default();
        match self.clone() {
            Self::Id(id) => ListWorkspaces {
                workspace_id: Some(id),
                ..all
            },
            Self::Project(root) => ListWorkspaces {
                project_root: Some(root),
                ..all
            },
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

fn option(name: &str, value: Option<String>) -> String {
    value.map_or_else(String::new, |value| format!(" {name} {value}"))
}

/// The option that must be repeated to mean the same daemon: none if the environment says it.
fn same_daemon(state_root: Option<&Path>) -> String {
    let from_environment = std::env::var_os(STATE_ROOT_VAR).map(PathBuf::from);
    let named = state_root.filter(|root| from_environment.as_deref() != Some(root));
    option(
        "--state-root",
        named.and_then(|root| shell_quoted(&root.to_string_lossy())),
    )
}

/// The options that must be repeated to mean the same workspace.
fn same_workspace(project: Option<&Path>, workspace: Option<&WorkspaceId>) -> String {
    let project = project.and_then(|project| shell_quoted(&project.to_string_lossy()));
    let workspace = workspace.map(ToString::to_string);
    option("--project", project) + &option("--workspace", workspace)
}
