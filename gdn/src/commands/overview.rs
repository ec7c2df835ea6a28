//! `gdn` alone: what runs, what needs the user, and the next command.

use std::path::{Path, PathBuf};

use goondan_protocol::control::{DaemonStatus, WorkspaceInfo};
use serde_json::json;

use super::inbox::{self, Inbox};
use super::{health, status};
use crate::client::{Client, ConnectError};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::style;
use crate::output::table::{Cell, Table};
use crate::output::text;
use crate::schemas;

/// Maximum number of listed items that need the user.
const ITEMS_SHOWN: usize = 5;

pub(crate) async fn run(context: &Context) -> Result<(), Failure> {
    // A directory that the user names must be a project; the current one need not be.
    let project = match context.project() {
        Ok(root) => Some(root),
        Err(failure) if context.is_named() && !context.is_by_id() => return Err(failure),
        Err(_) => None,
    };
    let connected = match Client::connect(&context.endpoint).await {
        Ok(mut client) => {
            let status = client.status().await?;
            let only = context.workspace_id();
            let inbox = inbox::read(&mut client, only.as_ref(), context).await?;
            Some((status, inbox))
        }
        Err(ConnectError::NotRunning { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let overview = Overview {
        context,
        project,
        connected,
    };
    overview.check_workspace()?;
    overview.print()
}

struct Overview<'c> {
    context: &'c Context,
    project: Option<PathBuf>,
    connected: Option<(DaemonStatus, Inbox)>,
}

impl Overview<'_> {
    /// Fails if the user named a workspace that does not exist.
    fn check_workspace(&self) -> Result<(), Failure> {
        match (&self.connected, self.context.workspace_id()) {
            (Some(_), Some(id)) if self.own().is_none() => Err(Failure::new(
                Exit::NotFound,
                format!("workspace {id} is not registered"),
                format!(
                    "list the workspaces: `{}`",
                    self.context.daemon_command("workspace list")
                ),
            )
            .of_unknown(crate::failure::NameKind::Workspace)),
            _ => Ok(()),
        }
    }

    fn workspaces(&self) -> &[WorkspaceInfo] {
        match &self.connected {
            Some((status, _)) => &status.workspaces,
            None => &[],
        }
    }

    /// The workspace of the project, or the one that the user named.
    fn own(&self) -> Option<&WorkspaceInfo> {
        let id = self.context.workspace_id();
        self.workspaces().iter().find(|workspace| match &id {
            Some(id) => workspace.workspace_id == *id,
            None => Some(&workspace.project_root) == self.project.as_ref(),
        })
    }

    /// The state root of the daemon.
    fn state_root(&self) -> &Path {
        match (self.context.remote(), &self.connected) {
            (Some(_), Some((status, _))) => &status.state_root,
            _ => &self.context.state_root,
        }
    }

    fn inbox(&self) -> Option<&Inbox> {
        self.connected.as_ref().map(|(_, inbox)| inbox)
    }

    /// The command that most likely comes next, and why.
    fn next(&self) -> (String, &'static str) {
        let context = self.context;
        let needs_user = self.inbox().is_some_and(|inbox| !inbox.items.is_empty());
        let is_project = self.project.is_some() || context.is_by_id();
        if needs_user {
            return (context.command("inbox"), "decide what waits for you");
        }
        if let Some(remote) = context.remote()
            && self.workspaces().is_empty()
        {
            let run = remote.shell_command(&remote.gdn("run DIR"));
            return (run, "start a project there");
        }
        match (is_project, self.own()) {
            (true, None) => (context.command("run"), "start this project"),
            (true, Some(own)) if own.problem.is_some() => (
                context.command("validate"),
                "list the problems of this project",
            ),
            (true, Some(_)) => (context.command("chat"), "talk to this project"),
            (false, _) if self.workspaces().is_empty() => (
                context.daemon_command("init my-swarm"),
                "create a project that is ready to run",
            ),
            (false, _) => (context.daemon_command("top"), "watch what runs"),
        }
    }

    fn print(&self) -> Result<(), Failure> {
        let context = self.context;
        let output = context.output;
        let (next, why) = self.next();
        let items = self.inbox().map_or(&[][..], |inbox| &inbox.items);
        let daemon = self.connected.as_ref().map(|(status, _)| {
            json!({
                "pid": status.pid,
                "version": status.version,
                "startedAt": status.started_at,
                "stopping": status.stopping,
            })
        });
        let project = self.project.as_ref().map(|root| {
            let own = self.own().map(|own| &own.workspace_id);
            json!({ "projectRoot": root, "workspaceId": own })
        });
        output.object(
            schemas::OVERVIEW,
            &json!({
                "stateRoot": self.state_root(),
                "remote": context.remote().map(ToString::to_string),
                "daemon": daemon,
                "project": project,
                "workspaces": self.workspaces(),
                "items": items,
                "next": next,
            }),
        )?;
        output.data(self.fields().render(output.canvas()))?;
        if !self.workspaces().is_empty() {
            let table = status::workspaces(self.workspaces());
            output.data(format!("\n{}", table.render(output.canvas())))?;
        }
        if !items.is_empty() {
            let verb = if items.len() == 1 { "needs" } else { "need" };
            let count = text::count(items.len(), "thing");
            let title = format!("{count} {verb} you:");
            output.data(format!("\n{}", output.out.paint(style::TITLE, &title)))?;
            for item in items.iter().take(ITEMS_SHOWN) {
                let line = inbox::line(item, context);
                let room = output.canvas().columns;
                let line = room.map_or_else(
                    || line.clone(),
                    |room| {
                        text::wrapped(&line, room.saturating_sub(2), room.saturating_sub(4))
                            .join("\n    ")
                    },
                );
                output.data(format!("  {line}"))?;
            }
            if let Some(more @ 1..) = items.len().checked_sub(ITEMS_SHOWN) {
                output.data(format!("  and {more} more"))?;
            }
        }
        output.data(format!(
            "\nNext: {next}    {}",
            output.out.paint(style::FAINT, why)
        ))
    }

    fn fields(&self) -> Table {
        let mut table = Table::of_fields();
        if let Some(remote) = self.context.remote() {
            table.field("Remote", remote.to_string());
        }
        match &self.connected {
            Some((status, _)) => {
                let age = text::age(status.started_at, text::now());
                let state = if status.stopping {
                    "stopping"
                } else {
                    "running"
                };
                let message = format!("{state}, pid {}, started {age} ago", status.pid);
                let look = if status.stopping {
                    style::WARN
                } else {
                    style::GOOD
                };
                table.field("Daemon", Cell::styled(message, look));
            }
            None => {
                let told = format!("not running on {}", self.context.state_root.display());
                table.field("Daemon", Cell::styled(told, style::FAINT));
            }
        }
        let state = match self.own() {
            Some(own) => health::state_of(own),
            None => Cell::styled("not running", style::FAINT),
        };
        match (&self.project, self.own()) {
            (Some(root), _) => {
                table.field("Project", root.to_string_lossy());
                table.field("State", state);
            }
            (None, Some(own)) => {
                table.field("Project", own.project_root.to_string_lossy());
                table.field("State", state);
            }
            (None, None) if self.context.remote().is_some() => {}
            (None, None) => {
                table.field(
                    "Project",
                    Cell::styled("none in this directory", style::FAINT),
                );
            }
        }
        table
    }
}
