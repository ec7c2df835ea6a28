//! `gdn ps`.

pub(super) mod table;
mod watch;

use clap::Args;
use goondan_protocol::control::{ListProcesses, ListTasks, ListWorkspaces};
use goondan_protocol::ids::WorkspaceId;
use serde_json::json;

use self::table::table;
use super::health;
use super::run::swarms;
use super::task::note_held;
use crate::client::{CallError, Client};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::text;
use crate::schemas;

/// Show processes and their states
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn ps                  this project's agents and connectors
  gdn ps --all            processes of every workspace
  gdn ps --watch          show changes continuously
  gdn ps --json | jq '.processes[] | select(.state == \"crashLoopBackOff\")'

With --watch, continues across restarts of the daemon, and ends when the project is stopped (`gdn stop`).")]
pub(crate) struct PsArgs {
    /// Include every workspace
    #[arg(long)]
    all: bool,
    /// Keep watching and show changes
    #[arg(long, short)]
    pub(crate) watch: bool,
}

impl PsArgs {
    /// Processes of every workspace, once.
    pub(crate) fn everywhere() -> Self {
        Self {
            all: true,
            watch: false,
        }
    }
}

pub(crate) async fn run(args: &PsArgs, context: &Context) -> Result<(), Failure> {
    let all = context.covers_all(args.all);
    let (mut client, workspace_id) = context.open_scope(all).await?;
    if args.watch {
        return watch::run((client, workspace_id), all, context).await;
    }
    let only = workspace_id.clone();
    let list = ListProcesses {
        workspace_id,
        ..ListProcesses::default()
    };
    let processes = client.all(list).await?;
    let output = context.output;
    output.object(schemas::PS, &json!({ "processes": processes }))?;
    if processes.is_empty() {
        let hint = context.command("send \"Hello\"");
        output.data(format!(
            "No processes. An agent starts with its first message: {hint}"
        ))?;
        return report_problems(&mut client, only.as_ref(), context).await;
    }
    output.data(table(&processes, all, text::now()).render(output.canvas()))?;
    report_problems(&mut client, only.as_ref(), context).await
}

/// Reports proposals that the merge queue holds for a person.
async fn report_held(
    client: &mut Client,
    only: Option<&WorkspaceId>,
    context: &Context,
) -> Result<(), Failure> {
    let waiting = ListTasks {
        workspace_id: only.cloned(),
        needs_me: true,
        ..ListTasks::default()
    };
    match client.all(waiting).await {
        Ok(tasks) => tasks.iter().for_each(|info| note_held(info, context)),
        // The list of processes does not depend on the tasks.
        Err(CallError::Refused(refused)) => context.output.note(refused.message),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Reports unhealthy workspaces, and fails if there is one.
async fn report_problems(
    client: &mut Client,
    only: Option<&WorkspaceId>,
    context: &Context,
) -> Result<(), Failure> {
    let meant = ListWorkspaces {
        workspace_id: only.cloned(),
        ..ListWorkspaces::default()
    };
    let workspaces = client.all(meant).await?;
    for workspace in &workspaces {
        if let Some(swarm) = workspace
            .swarm
            .as_ref()
            .filter(|_| !workspace.idle_swarms.is_empty())
        {
            let swarms = swarms(swarm, &workspace.idle_swarms);
            let id = &workspace.workspace_id;
            context.output.note(format!("{id}: Swarm {swarms}"));
        }
        health::report(workspace, context);
    }
    report_held(client, only, context).await?;
    health::verdict(&workspaces, context)
}
