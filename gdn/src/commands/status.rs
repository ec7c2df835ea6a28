//! `gdn daemon status`.

mod disk;
mod observation;

use clap::Args;
use goondan_protocol::control::{DaemonStatus, FileWatchMode, Resource, WorkspaceInfo};
use goondan_protocol::secret::ALLOW_DEBUGGER_VAR;
use goondan_protocol::state_format::StateFormat;

use self::disk::DiskUsage;
use self::observation::Observation;
use super::{approval, health, node};
use crate::client::{Client, DaemonConnection, OtherDaemon};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::style;
use crate::output::table::{Cell, Column, Table};
use crate::output::text;
use crate::schemas;
use crate::state_format;

/// Show the daemon and its workspaces
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn daemon status
  gdn daemon status --json | jq .pid
  gdn daemon status --disk          size of each kind of data, and the command that frees it

Exit code 16: something needs attention; 3: no daemon runs; 4: a daemon of another version runs.")]
pub(crate) struct StatusArgs {
    /// Show the disk space of each kind of data, its bound, and the command that frees it
    #[arg(long)]
    disk: bool,
}

pub(crate) async fn run(args: &StatusArgs, context: &Context) -> Result<(), Failure> {
    let mut client = match Client::reach(&context.endpoint).await? {
        DaemonConnection::Same(client) => client,
        DaemonConnection::Other(other) => return of_another_version(other, context),
    };
    let status = client.status().await?;
    let output = context.output;
    // The files of another machine cannot be read from here.
    let is_here = context.remote().is_none();
    if args.disk
        && let Some(remote) = context.remote()
    {
        return Err(Failure::new(
            Exit::Usage,
            format!("the disk space of {remote} cannot be read from this machine"),
            format!(
                "run it there: `{}`",
                remote.shell_command(&remote.gdn("daemon status --disk"))
            ),
        ));
    }
    let disk = args.disk.then(|| disk::survey(&status.state_root));
    let observation = is_here.then(|| observation::survey(&status.state_root));
    let shown = StatusOutput {
        status: &status,
        remote: context.remote().map(ToString::to_string),
        observation,
        disk,
        // The daemon has upgraded the format; `gdn doctor` checks later changes.
        format: is_here
            .then(|| state_format::read(&status.state_root).ok().flatten())
            .flatten(),
    };
    output.object(schemas::STATUS, &shown)?;
    let mut fields = fields(&status);
    if let Some(remote) = &shown.remote {
        fields.field("Remote", remote.as_str());
    }
    if let Some(observation) = &shown.observation {
        fields.field("Format", state_format::format_text(shown.format.as_ref()));
        fields.field("Observed", observed(observation));
    }
    output.data(fields.render(output.canvas()))?;
    if let Some(usage) = &shown.disk {
        let table = disk::table(usage).render(output.canvas());
        output.data(format!("\n{table}{}", disk::total(usage)))?;
    }
    if status.workspaces.is_empty() {
        let hint = match context.remote() {
            Some(remote) => remote.shell_command(&remote.gdn("run DIR")),
            None => context.daemon_command("run"),
        };
        output.data(format!(
            "\nNo workspaces. Start one in its directory: {hint}"
        ))?;
        node::verdict_of_unheard(&mut client, context).await?;
        return health::verdict_of_all(&status, context);
    }
    output.data(format!(
        "\n{}",
        workspaces(&status.workspaces).render(output.canvas())
    ))?;
    for workspace in &status.workspaces {
        health::report(workspace, context);
    }
    approval::report(&mut client, &status, context).await?;
    node::verdict_of_unheard(&mut client, context).await?;
    health::verdict_of_all(&status, context)
}

/// State of the daemon and of the files on disk.
#[derive(serde::Serialize)]
struct StatusOutput<'s> {
    #[serde(flatten)]
    status: &'s DaemonStatus,
    /// Address of the other machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    remote: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    observation: Option<Observation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disk: Option<DiskUsage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<StateFormat>,
}

/// Prints the status of a daemon of another version, unchanged with `--json`, and fails with the reason.
fn of_another_version(other: OtherDaemon, context: &Context) -> Result<(), Failure> {
    let output = context.output;
    output.object(schemas::STATUS, &other.status)?;
    let daemon = other.client.daemon();
    let mut table = Table::of_fields();
    table.field("Daemon", Cell::styled("of another version", style::WARN));
    table.field("Process", daemon.pid.to_string());
    table.field("Version", text::printable(&daemon.version.to_string()));
    table.field("State", daemon.state_root.to_string_lossy());
    output.data(table.render(output.canvas()))?;
    Err(other.why.into())
}

fn observed(found: &Observation) -> Cell {
    let at_least = if found.is_partial { "at least " } else { "" };
    let kept = format!("{at_least}{}", text::bytes(found.bytes));
    if found.dropped_bytes == 0 {
        return Cell::from(kept);
    }
    let dropped = text::bytes(found.dropped_bytes);
    Cell::from(format!("{kept}; {dropped} dropped by policy"))
}

fn fields(status: &DaemonStatus) -> Table {
    let mut table = Table::of_fields();
    let state = if status.stopping {
        Cell::styled("stopping", style::WARN)
    } else {
        Cell::styled("running", style::GOOD)
    };
    table.field("Daemon", state);
    table.field("Process", status.pid.to_string());
    table.field("Version", status.version.to_string());
    let age = text::age(status.started_at, text::now());
    table.field(
        "Started",
        format!("{} ({age} ago)", text::clock(status.started_at)),
    );
    table.field("State", status.state_root.to_string_lossy());
    match &status.log_dir {
        Some(dir) => table.field("Log", dir.to_string_lossy()),
        None => table.field("Log", "stdout of the daemon"),
    }
    if let Some(dir) = &status.cgroup {
        table.field("Control group", dir.to_string_lossy());
    }
    if let Some(files) = status.open_files {
        let share = format!("{} of {}", files.open, files.limit);
        let is_short = status.short_of.contains(&Resource::Descriptors);
        let style = if is_short { style::WARN } else { style::PLAIN };
        table.field("Open files", Cell::styled(share, style));
    }
    for resource in &status.short_of {
        let what = resource.as_str();
        let told = format!("{what} are scarce: the agents that have been idle longest are stopped");
        table.field("", Cell::styled(told, style::WARN));
        table.field("", Cell::styled(more_of(*resource), style::WARN));
    }
    if status.waiting_for_room > 0 {
        let waiting = format!(
            "{} conversations wait for resources",
            status.waiting_for_room
        );
        table.field("", Cell::styled(waiting, style::WARN));
    }
    if let Some(restored) = &status.restored {
        let taken = text::clock(restored.taken_at);
        let paused = format!(
            "after the restore of backup {} of {taken}: no process starts before `gdn daemon backup resume`",
            text::printable(&restored.backup_id)
        );
        table.field("Paused", Cell::styled(paused, style::WARN));
    }
    if status.memory_open {
        let open = format!("readable by all programs of this user: {ALLOW_DEBUGGER_VAR} is set");
        table.field("Memory", Cell::styled(open, style::WARN));
    }
    if status.dropped_log_lines > 0 {
        let dropped = text::count(status.dropped_log_lines, "log line");
        let last = status.log_lines_dropped_at;
        let last = last.map_or_else(String::new, |at| {
            format!(", the last {} ago", text::age(at, text::now()))
        });
        let told = format!("{dropped} dropped{last}: stdout is read too slowly");
        table.field("", Cell::styled(told, style::WARN));
    }
    table
}

/// Advice for increasing a resource.
fn more_of(resource: Resource) -> &'static str {
    match resource {
        Resource::Descriptors => {
            "for more: `ulimit -Hn` of the daemon, or `LimitNOFILE=` of its service"
        }
        Resource::Processes => "for more: `kernel.pid_max`, or `TasksMax=` of its service",
        Resource::Memory => "for more: a larger machine, or `MemoryMax=` of its service",
    }
}

pub(super) fn workspaces(workspaces: &[WorkspaceInfo]) -> Table {
    let titles = [
        Column::new("WORKSPACE").cut(),
        Column::new("PROJECT").cut().below(5, ""),
        Column::new("AGENTS").below(4, "agents"),
        Column::new("RUNNING").below(3, "running"),
        Column::new("PENDING").below(2, "pending"),
        Column::new("WATCH").below(1, "watch"),
        Column::new("STATE"),
    ];
    let mut table = Table::new(titles);
    for workspace in workspaces {
        table.row([
            Cell::from(&workspace.workspace_id),
            workspace.project_root.to_string_lossy().into(),
            (workspace.agents.len() + workspace.task_agents.len())
                .to_string()
                .into(),
            workspace.running_agents.to_string().into(),
            workspace.pending_events.to_string().into(),
            watch(workspace),
            health::state_of(workspace),
        ]);
    }
    table
}

/// Cell for the state of the file watcher.
pub(super) fn watch(workspace: &WorkspaceInfo) -> Cell {
    match workspace.watch {
        FileWatchMode::Off => Cell::styled("off", style::FAINT),
        FileWatchMode::Starting | FileWatchMode::Events => Cell::from("on"),
        FileWatchMode::Polling => Cell::styled("polling", style::WARN),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::output::table::at_three_widths;

    #[test]
    fn narrow_terminal_shows_all_of_the_status() {
        let workspace = |id: &str, more: serde_json::Value| {
            let mut workspace = json!({
                "workspaceId": id, "projectRoot": format!("/home/ada/projects/{id}"),
                "agents": ["clerk", "buyer"], "connections": [], "runningAgents": 1,
                "pendingEvents": 3, "watch": "events",
            });
            let fields = more.as_object().unwrap().clone();
            workspace.as_object_mut().unwrap().extend(fields);
            serde_json::from_value::<WorkspaceInfo>(workspace).unwrap()
        };
        let all = [
            workspace("home_ada_projects_bookshop__goondan_bookshop", json!({})),
            workspace(
                "home_ada_projects_bot__no-package",
                json!({"problem": {"message": "m", "suggestion": "s"}}),
            ),
        ];
        let status: DaemonStatus = serde_json::from_value(json!({
            "version": {"protocol": 2, "goondan": "0.1.0"}, "pid": 4711,
            "startedAt": "2026-11-21T21:06:00.000Z",
            "stateRoot": "/home/ada/a/rather/deep/directory/that/holds/all/of/the/state/goondan",
            "droppedLogLines": 0, "stopping": false, "workspaces": [],
        }))
        .unwrap();
        let shown = at_three_widths(|canvas| {
            let fields = fields(&status).render(canvas);
            // The uptime differs in each run.
            let fields = fields.lines().filter(|line| !line.starts_with("Started"));
            let fields: Vec<&str> = fields.collect();
            format!(
                "{}\n\n{}",
                fields.join("\n"),
                workspaces(&all).render(canvas)
            )
        });
        assert_eq!(shown, include_str!("narrow/status.txt"));
    }
}
