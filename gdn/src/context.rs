//! Context of a command: the global options, and access to the daemon and the workspace.

use std::path::{Path, PathBuf};

use goondan_config::LocalMachine;
use goondan_protocol::control::{ListWorkspaces, WorkspaceInfo};
use goondan_protocol::ids::WorkspaceId;
use goondan_vault::{ExternalIdentities, Vault};

use crate::client::{Client, Endpoint, Remote};
use crate::exit::Exit;
use crate::failure::{Failure, NameKind};
use crate::output::Output;
use crate::output::text::shell_quoted;
use crate::remotes::{RemoteSource, STATE_ROOT_VAR, SelectedRemote};
use crate::{programs, project, state_format};

/// Name of this program in hints.
const GDN: &str = "gdn";

/// Resolved global options.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    pub(crate) output: Output,
    pub(crate) state_root: PathBuf,
    /// True if the user set it; false for the default.
    pub(crate) is_state_root_named: bool,
    /// The daemon of all requests.
    pub(crate) endpoint: Endpoint,
    /// Origin of the other machine, if there is one.
    remote_source: Option<RemoteSource>,
    project: Option<PathBuf>,
    workspace: Option<WorkspaceId>,
    /// Options that a hint must repeat to address the same daemon.
    same_daemon: String,
    /// Options that a hint must repeat to address the same workspace.
    same_workspace: String,
}

impl Context {
    /// Resolves the global options (`ROOT-7`: option, then environment, then `~/.goondan`).
    pub(crate) fn new(
        output: Output,
        state_root: Option<&Path>,
        project: Option<PathBuf>,
        workspace: Option<WorkspaceId>,
        remote: Option<SelectedRemote>,
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
        // Records and answers name it.
        if state_root.to_str().is_none() {
            return Err(Failure::new(
                Exit::Usage,
                format!("the state root {} is not UTF-8 text", state_root.display()),
                "choose another one: `gdn --state-root DIR …`, or set GOONDAN_STATE_ROOT",
            ));
        }
        let (endpoint, remote_source) = match remote {
            Some(SelectedRemote { remote, source }) => (Endpoint::Remote(remote), Some(source)),
            None => (Endpoint::Local(state_root.clone()), None),
        };
        Ok(Self {
            output,
            state_root,
            is_state_root_named: named.is_some(),
            same_daemon: match (&endpoint, remote_source) {
                (Endpoint::Remote(remote), Some(RemoteSource::Option)) => {
                    format!(" --remote {remote}")
                }
                (Endpoint::Remote(_), _) => String::new(),
                (Endpoint::Local(_), _) => same_daemon(named),
            },
            endpoint,
            remote_source,
            same_workspace: same_workspace(project.as_deref(), workspace.as_ref()),
            project,
            workspace,
        })
    }

    /// Copy with another state root and project, for `gdn demo`.
    pub(crate) fn elsewhere(&self, state_root: PathBuf, project: PathBuf) -> Self {
        Self {
            same_daemon: same_daemon(Some(&state_root)),
            same_workspace: option("--project", shell_quoted(&project.to_string_lossy())),
            output: self.output,
            endpoint: Endpoint::Local(state_root.clone()),
            remote_source: None,
            state_root,
            is_state_root_named: true,
            project: Some(project),
            workspace: None,
        }
    }

    /// Copy for a workspace of the same daemon, so that a command can act on it.
    pub(crate) fn of_workspace(&self, id: &WorkspaceId) -> Self {
        Self {
            same_workspace: same_workspace(None, Some(id)),
            project: None,
            workspace: Some(id.clone()),
            ..self.clone()
        }
    }

    /// True if the user named a project or a workspace.
    pub(crate) fn is_named(&self) -> bool {
        self.project.is_some() || self.workspace.is_some()
    }

    /// True if a list covers every workspace: with `--all`, and outside a project.
    pub(crate) fn covers_all(&self, all: bool) -> bool {
        let is_outside = || {
            if self.remote().is_some() {
                return true;
            }
            let found = project::find(None);
            matches!(found, Err(project::ProjectError::NoneAbove { .. }))
        };
        all || !self.is_named() && is_outside()
    }

    /// Copy with another state root, for an upgrade that is resumed.
    pub(crate) fn with_state_root(&self, state_root: PathBuf) -> Self {
        Self {
            same_daemon: same_daemon(Some(&state_root)),
            endpoint: Endpoint::Local(state_root.clone()),
            remote_source: None,
            state_root,
            is_state_root_named: true,
            ..self.clone()
        }
    }

    /// The command line `gdn <command>` for the same daemon and workspace.
    pub(crate) fn command(&self, command: &str) -> String {
        format!("gdn{}{} {command}", self.same_daemon, self.same_workspace)
    }

    /// The command line `gdn <command>` for the same daemon, without the workspace.
    pub(crate) fn daemon_command(&self, command: &str) -> String {
        format!("gdn{} {command}", self.same_daemon)
    }

    /// The other machine on which the daemon runs.
    pub(crate) fn remote(&self) -> Option<&Remote> {
        self.endpoint.remote()
    }

    /// The same context, whose hints repeat that the user chose this machine, because another one may be the default.
    pub(crate) fn of_this_machine(self) -> Self {
        Self {
            same_daemon: format!(" --remote {}{}", crate::remotes::LOCAL, self.same_daemon),
            ..self
        }
    }

    /// Origin of the other machine.
    pub(crate) fn remote_source(&self) -> Option<RemoteSource> {
        self.remote_source
    }

    /// The same context for a command that needs no daemon, or for one that needs the daemon of this machine. Fails if
    /// the user named another machine for it.
    pub(crate) fn on_this_machine(
        self,
        command: &str,
        needs_daemon: bool,
    ) -> Result<Self, Failure> {
        let Some((remote, source)) = self.remote().zip(self.remote_source) else {
            return Ok(self);
        };
        if !needs_daemon && source != RemoteSource::Option {
            return Ok(Self {
                endpoint: Endpoint::Local(self.state_root.clone()),
                remote_source: None,
                ..self
            });
        }
        let here = format!("gdn --remote {} {command}", crate::remotes::LOCAL);
        Err(Failure::new(
            Exit::Usage,
            format!(
                "`gdn {command}` works only on this machine, and not on {remote}{}",
                source.words()
            ),
            format!(
                "run it there: `{}`; or here: `{here}`",
                remote.shell_command(&remote.gdn(command))
            ),
        ))
    }

    /// Adapts a failure to the daemon of another machine: its hint repeats the options of this command.
    pub(crate) fn at_daemon(&self, failure: Failure) -> Failure {
        let Some(remote) = self.remote() else {
            return failure;
        };
        let hint = match failure.exit {
            Exit::VersionMismatch => format!(
                "install the same version of goondan on both machines; the one there: `{}`",
                remote.shell_command("gdn --version")
            ),
            _ if self.same_daemon.is_empty() => return failure,
            _ => with_options(&failure.hint, &self.same_daemon),
        };
        failure.with_hint(hint)
    }

    /// The canonical Project Root. On another machine, its absolute path there, which the user must name.
    pub(crate) fn project(&self) -> Result<PathBuf, Failure> {
        if let Some(remote) = self.remote() {
            return match &self.project {
                Some(root) if root.is_absolute() => Ok(root.clone()),
                Some(root) => Err(Failure::new(
                    Exit::Usage,
                    format!(
                        "the project {} is not an absolute path on {remote}",
                        root.display()
                    ),
                    format!(
                        "list the projects there: `{}`",
                        self.daemon_command("workspace list")
                    ),
                )),
                None => Err(self.unnamed(remote, "this command needs the name of a project")),
            };
        }
        Ok(project::find(self.project.as_deref())?)
    }

    /// Checks that this program supports the state root's format, for commands that read it without a daemon
    /// (`REL-1`).
    pub(crate) fn check_format(&self) -> Result<(), Failure> {
        state_format::read(&self.state_root)?;
        Ok(())
    }

    /// The secret store, read-only. It is not opened before a configuration references a secret.
    pub(crate) fn vault(&self) -> Vault {
        Vault::new(&self.state_root, ExternalIdentities::to_this_process())
    }

    /// Capabilities of this machine that decide if a project can run on it.
    pub(crate) fn machine(&self) -> LocalMachine {
        LocalMachine::new(self.state_root.clone(), programs::rights)
            .with_readable(goondan_confinement::readable)
            .with_open_beneath(goondan_confinement::open_beneath)
    }

    pub(crate) async fn connect(&self) -> Result<Client, Failure> {
        Ok(Client::connect(&self.endpoint).await?)
    }

    /// Workspace id given by the user.
    pub(crate) fn workspace_id(&self) -> Option<WorkspaceId> {
        self.workspace.clone()
    }

    /// True if the user named the workspace by its id.
    pub(crate) fn is_by_id(&self) -> bool {
        self.workspace.is_some()
    }

    /// Connects to the daemon and finds the command's workspace.
    pub(crate) async fn open(&self) -> Result<(Client, WorkspaceInfo), Failure> {
        let wanted = self.wanted()?;
        let mut client = self.connect().await?;
        let info = self.look_up(&mut client, &wanted).await?;
        Ok((client, info))
    }

    /// True if the daemon of another machine has exactly one workspace, which a command is then about.
    pub(crate) async fn is_only_remote_workspace(&self) -> Result<bool, Failure> {
        if self.remote().is_none() {
            return Ok(false);
        }
        let all = WorkspaceSelector::Only.list();
        let listed = self.connect().await?.query(all).await?;
        Ok(listed.workspaces.len() == 1)
    }

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
        self.look_up(client, &WorkspaceSelector::Id(id.clone()))
            .await
    }

    fn wanted(&self) -> Result<WorkspaceSelector, Failure> {
        Ok(match &self.workspace {
            Some(id) => WorkspaceSelector::Id(id.clone()),
            // The current directory is not one of the other machine.
            None if self.remote().is_some() && self.project.is_none() => WorkspaceSelector::Only,
            None => WorkspaceSelector::Project(self.project()?),
        })
    }

    fn unnamed(&self, remote: &Remote, problem: &str) -> Failure {
        Failure::new(
            Exit::Usage,
            format!("{problem} on {remote}"),
            format!(
                "list them: `{}`; then name one with `--workspace ID`",
                self.daemon_command("workspace list")
            ),
        )
    }

    async fn look_up(
        &self,
        client: &mut Client,
        wanted: &WorkspaceSelector,
    ) -> Result<WorkspaceInfo, Failure> {
        let mut found = client.query(wanted.list()).await?.workspaces;
        if let (WorkspaceSelector::Only, Some(remote), 2..) = (wanted, self.remote(), found.len()) {
            return Err(self.unnamed(remote, "several workspaces run"));
        }
        found.pop().ok_or_else(|| self.not_registered(wanted))
    }

    /// Connects to the daemon and finds the workspace, unless `all`.
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

    fn not_registered(&self, wanted: &WorkspaceSelector) -> Failure {
        match wanted {
            WorkspaceSelector::Id(id) => Failure::new(
                Exit::NotFound,
                format!("workspace {id} is not registered"),
                format!(
                    "list the workspaces: `{}`",
                    self.daemon_command("workspace list")
                ),
            )
            .of_unknown(NameKind::Workspace),
            WorkspaceSelector::Project(root) => Failure::new(
                Exit::NotFound,
                format!("the project {} is not running", root.display()),
                match self.remote() {
                    Some(_) => format!(
                        "list the projects there: `{}`",
                        self.daemon_command("workspace list")
                    ),
                    None => format!("start it: `{}`", self.command("run")),
                },
            ),
            WorkspaceSelector::Only => Failure::new(
                Exit::NotFound,
                "no workspace is registered",
                match self.remote() {
                    Some(remote) => {
                        format!(
                            "start a project there: `{}`",
                            remote.shell_command(&remote.gdn("run DIR"))
                        )
                    }
                    None => format!("start a project: `{}`", self.daemon_command("run")),
                },
            ),
        }
    }
}

#[derive(Debug, Clone)]
enum WorkspaceSelector {
    Id(WorkspaceId),
    Project(PathBuf),
    /// The only one of the daemon.
    Only,
}

impl WorkspaceSelector {
    /// Request that lists only this workspace.
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
            Self::Only => all,
        }
    }
}

fn no_home() -> Failure {
    Failure::new(
        Exit::Usage,
        "no home directory for the state root",
        "pass a directory: `gdn --state-root DIR …`, or set GOONDAN_STATE_ROOT",
    )
}

fn option(name: &str, value: Option<String>) -> String {
    value.map_or_else(String::new, |value| format!(" {name} {value}"))
}

/// A hint whose commands of this program begin with these options, each with a space before it.
fn with_options(hint: &str, options: &str) -> String {
    let program = format!("`{GDN}");
    let (mut text, mut rest) = (String::new(), hint);
    while let Some((before, command)) = rest.split_once(program.as_str()) {
        text.extend([before, program.as_str()]);
        if command.starts_with(' ') && !command.starts_with(options) {
            text.push_str(options);
        }
        rest = command;
    }
    text + rest
}

/// Option that addresses the same daemon; empty if the environment variable is sufficient.
fn same_daemon(state_root: Option<&Path>) -> String {
    let from_environment = std::env::var_os(STATE_ROOT_VAR).map(PathBuf::from);
    let named = state_root.filter(|root| from_environment.as_deref() != Some(root));
    option(
        "--state-root",
        named.and_then(|root| shell_quoted(&root.to_string_lossy())),
    )
}

/// Options that address the same workspace.
fn same_workspace(project: Option<&Path>, workspace: Option<&WorkspaceId>) -> String {
    let project = project.and_then(|project| shell_quoted(&project.to_string_lossy()));
    let workspace = workspace.map(ToString::to_string);
    option("--project", project) + &option("--workspace", workspace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rep_2_commands_in_hints_address_the_same_daemon_once() {
        let options = " --remote ssh://desk";
        for (hint, expected) in [
            (
                "list them: `gdn ps`, then `gdn stop`; see gdn's log",
                "list them: `gdn --remote ssh://desk ps`, then `gdn --remote ssh://desk stop`; see gdn's log",
            ),
            (
                "`gdn --remote ssh://desk ps` lists them",
                "`gdn --remote ssh://desk ps` lists them",
            ),
            ("try again", "try again"),
        ] {
            assert_eq!(with_options(hint, options), expected);
        }
    }
}
