//! `gdn config reload`.

use clap::Args;
use goondan_protocol::control::{ConfigurationChange, Reload, WorkspaceReload};

use super::active_configuration::{self, ActiveConfig};
use super::run;
use crate::client::Client;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::text;
use crate::schemas;

/// Reload this project's configuration, and restart what changed after the turns in progress
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn config reload                             this project's
  gdn config reload --all                every workspace's
  gdn config reload --json | jq '.workspaces[] | select(.problem)'

An invalid configuration changes nothing: the previous one continues to run. SIGHUP reloads all workspaces.
Exit code 16: a connector of a changed connection is not ready within 10 seconds.")]
pub(crate) struct ReloadArgs {
    /// Include every workspace
    #[arg(long, conflicts_with_all = ["project", "workspace"])]
    all: bool,
}

pub(crate) async fn run(args: &ReloadArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace_id) = context.open_scope(args.all).await?;
    let reloaded = client.change(Reload { workspace_id }).await?;
    let output = context.output;
    output.object(schemas::RELOAD, &reloaded)?;
    if reloaded.workspaces.is_empty() {
        let hint = context.daemon_command("run");
        return output.data(format!("No workspaces. Start one in its directory: {hint}"));
    }
    for workspace in &reloaded.workspaces {
        output.data(reload_text(workspace))?;
    }
    let refused = reloaded.workspaces.iter();
    let refused: Vec<&WorkspaceReload> = refused.filter(|w| w.problem.is_some()).collect();
    for workspace in &refused {
        warn(workspace, context);
    }
    if refused.is_empty() {
        return check_connectors(&mut client, &reloaded.workspaces, context).await;
    }
    Err(Failure::new(
        Exit::InvalidConfiguration,
        format!(
            "failed to reload {}; the previous configuration continues to run",
            text::count(refused.len(), "workspace")
        ),
        format!(
            "fix the problems above, then: `{}`",
            match args.all {
                true => context.daemon_command("config reload --all"),
                false => context.command("config reload"),
            }
        ),
    ))
}

/// Waits for the connectors of changed connections, and fails if one is not ready.
async fn check_connectors(
    client: &mut Client,
    workspaces: &[WorkspaceReload],
    context: &Context,
) -> Result<(), Failure> {
    let is_of_connection = |change: &ConfigurationChange| {
        let kind = change.resource.split('/').next();
        matches!(kind, Some("Connection" | "Connector"))
    };
    for workspace in workspaces {
        if !workspace.changes.iter().any(is_of_connection) {
            continue;
        }
        let info = context.find_by_id(client, &workspace.workspace_id).await?;
        let (info, silent) = run::ready(client, info, context).await?;
        if let Some(unready) = run::unready(&info, &silent, context) {
            return Err(unready);
        }
    }
    Ok(())
}

/// Prints why a workspace's configuration was rejected and what runs instead, if it was rejected.
pub(super) fn warn(workspace: &WorkspaceReload, context: &Context) {
    if let Some(problem) = &workspace.problem {
        let running = ActiveConfig::of_reload(workspace);
        active_configuration::warn(&workspace.workspace_id, problem, &running, context);
    }
}

/// Result of a reload, as one line.
pub(super) fn reload_text(workspace: &WorkspaceReload) -> String {
    let id = &workspace.workspace_id;
    if workspace.problem.is_some() {
        return format!("{id}: not reloaded");
    }
    if workspace.changes.is_empty() {
        return format!("{id}: unchanged");
    }
    let changes = workspace.changes.iter();
    let changes: Vec<String> = changes
        .map(|change| format!("{} {}", change.resource, change.change.as_str()))
        .collect();
    let restarting = match workspace.processes {
        0 => "nothing to restart".to_owned(),
        processes => format!(
            "restarting {}, each after its turn in progress",
            text::count(processes, "process")
        ),
    };
    format!("{id}: {}; {restarting}", changes.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sup_8_reload_summary_of_changes_and_restarts_is_one_line() {
        let text = |changes, processes| {
            let reload = json!({"workspaceId": "w", "changes": changes, "processes": processes});
            reload_text(&serde_json::from_value(reload).unwrap())
        };
        assert_eq!(text(json!([]), 0), "w: unchanged");
        let changes = json!([
            {"resource": "Agent/clerk", "change": "changed"},
            {"resource": "Connection/hook", "change": "added"},
        ]);
        assert_eq!(
            text(changes, 2),
            "w: Agent/clerk changed, Connection/hook added; restarting 2 processes, each after its \
             turn in progress"
        );
    }
}
