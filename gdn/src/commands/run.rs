//! `gdn run`.

use std::path::PathBuf;

use goondan_protocol::control::{OpenWorkspace, WorkspaceInfo};
use serde_json::json;

use super::status;
use crate::cli::Run;
use crate::client::Client;
use crate::context::Context;
use crate::daemon::{self, Started};
use crate::failure::Failure;
use crate::output::style;
use crate::output::table::{Cell, Table};
use crate::{project, schemas};

pub(super) async fn run(args: &Run, context: &Context) -> Result<(), Failure> {
    // A workspace that is named by its id is registered: it needs the daemon only.
    let root = match &args.path {
        Some(path) => Some(project::find(Some(path))?),
        None if context.is_by_id() => None,
        None => Some(context.project()?),
    };
    if let Some(root) = &root {
        project::check_apart(root, &context.state_root)?;
    }
    if args.foreground {
        return Err(daemon::become_daemon(&context.state_root, root.as_deref()).into());
    }
    let (mut client, log_dir) = attach_or_start(context).await?;
    let info = match root {
        Some(project_root) => client.change(OpenWorkspace { project_root }).await?,
        None => context.find(&mut client).await?,
    };
    let output = context.output;
    output.object(
        schemas::RUN,
        &json!({
            "daemon": {
                "pid": client.daemon().pid,
                "started": log_dir.is_some(),
                "stateRoot": client.daemon().state_root,
                "logDir": log_dir,
            },
            "workspace": info,
        }),
    )?;
    output.data(summary(&info).render(output.out))?;
    status::report_problem(&info, context);
    output.note(format!(
        "Talk to it: {}    Watch it: {}",
        context.command("chat"),
        context.command("logs -f")
    ));
    Ok(())
}

/// The running daemon, or one that is started now and whose log directory is told.
async fn attach_or_start(context: &Context) -> Result<(Client, Option<PathBuf>), Failure> {
    if let Some(client) = daemon::attach(&context.state_root).await? {
        return Ok((client, None));
    }
    let Started { client, log_dir } = daemon::start(&context.state_root).await?;
    context.output.note(format!(
        "Started the daemon: pid {}, log in {}",
        client.daemon().pid,
        log_dir.display()
    ));
    Ok((client, Some(log_dir)))
}

fn summary(info: &WorkspaceInfo) -> Table {
    let entry = info.entry_agent.as_ref();
    let agents: Vec<String> = info
        .agents
        .iter()
        .map(|agent| match entry {
            Some(entry) if entry == agent => format!("{agent} (entry)"),
            _ => agent.to_string(),
        })
        .collect();
    let mut table = Table::of_fields();
    table.field("Workspace", &info.workspace_id);
    table.field("Project", info.project_root.to_string_lossy());
    if let Some(package) = &info.package {
        table.field("Package", package);
    }
    table.field("Agents", listed(&agents));
    table.field("Connections", listed(&info.connections));
    table
}

pub(super) fn listed(names: &[String]) -> Cell {
    if names.is_empty() {
        Cell::styled("none", style::FAINT)
    } else {
        names.join(", ").into()
    }
}
