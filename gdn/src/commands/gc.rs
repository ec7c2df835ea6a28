//! `gdn daemon gc`: removes conversations, tasks and packages that are no longer used, in all workspaces.

use clap::Args;
use goondan_protocol::control::{
    ErrorCode, ListWorkspaces, PackagesPruned, PruneInstances, PrunePackages, PruneTasks,
};
use goondan_protocol::ids::{InstanceKey, WorkspaceId};
use goondan_protocol::task::TaskId;
use serde::Serialize;

use super::confirm::confirm;
use super::instance::parse_age_ms;
use crate::client::{CallError, Client};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::text;
use crate::schemas;

/// Days for which a package is kept without a use, as `gdn package prune` does by default.
const PACKAGE_DAYS: u32 = 7;

/// Remove unused conversations, tasks and packages of all workspaces
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn daemon status --disk                   size of each kind of data
  gdn daemon gc --dry-run                    what the policies of the projects allow to remove
  gdn daemon gc --older-than 90d --yes       also what has not changed for 90 days

Conversations with events, unfinished tasks, and packages of a lockfile are never removed. A removed task keeps a
backup in the directory backups of the state root.")]
pub(crate) struct GcArgs {
    /// Remove conversations that were unchanged, and tasks that ended, for this long, such as 90d [default: those due by
    /// the policy of their Swarm]
    #[arg(long, value_name = "AGE", value_parser = parse_age_ms)]
    older_than: Option<u64>,
    /// Only show what would be removed
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
}

/// A conversation or a task of a workspace.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Removed<K> {
    workspace_id: WorkspaceId,
    key: K,
}

/// Everything that is due, or was removed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Garbage {
    conversations: Vec<Removed<InstanceKey>>,
    tasks: Vec<Removed<TaskId>>,
    packages: Vec<String>,
    /// Size of the packages, in bytes.
    package_bytes: u64,
    /// Reasons why tasks were not removed.
    problems: Vec<String>,
    dry_run: bool,
}

impl Garbage {
    fn is_empty(&self) -> bool {
        self.conversations.is_empty() && self.tasks.is_empty() && self.packages.is_empty()
    }

    fn counts(&self) -> String {
        format!(
            "{}, {} and {} ({})",
            text::count(self.conversations.len(), "conversation"),
            text::count(self.tasks.len(), "task"),
            text::count(self.packages.len(), "package"),
            text::bytes(self.package_bytes)
        )
    }
}

pub(crate) async fn run(args: &GcArgs, context: &Context) -> Result<(), Failure> {
    let mut client = context.connect().await?;
    let all = client.all(ListWorkspaces::default()).await?;
    let workspaces: Vec<WorkspaceId> = all.into_iter().map(|info| info.workspace_id).collect();
    let due = collect(&mut client, &workspaces, args.older_than, true).await?;
    let output = context.output;
    if args.dry_run || due.is_empty() {
        output.object(schemas::GC, &due)?;
        list(&due, context)?;
        return output.data(match due.is_empty() {
            true => "Nothing can be removed.".to_owned(),
            false => format!("Would remove {}.", due.counts()),
        });
    }
    if !args.yes {
        list(&due, context)?;
        let age = args
            .older_than
            .map(|ms| format!(" --older-than {}s", ms / 1_000));
        let command = format!("daemon gc{} --yes", age.unwrap_or_default());
        confirm(context, &format!("Remove {}?", due.counts()), &command)?;
    }
    let removed = collect(&mut client, &workspaces, args.older_than, false).await?;
    output.object(schemas::GC, &removed)?;
    output.data(format!("Removed {}.", removed.counts()))?;
    if removed.problems.is_empty() {
        return Ok(());
    }
    for problem in &removed.problems {
        output.note(text::one_line(problem));
    }
    Err(Failure::new(
        Exit::Degraded,
        format!(
            "{} could not be removed",
            text::count(removed.problems.len(), "task")
        ),
        "fix the problems above, and run the command again",
    ))
}

/// Lists, or removes, what is due.
async fn collect(
    client: &mut Client,
    workspaces: &[WorkspaceId],
    older_than_ms: Option<u64>,
    dry_run: bool,
) -> Result<Garbage, Failure> {
    let mut found = Garbage {
        conversations: Vec::new(),
        tasks: Vec::new(),
        packages: Vec::new(),
        package_bytes: 0,
        problems: Vec::new(),
        dry_run,
    };
    for workspace_id in workspaces {
        let instances = PruneInstances {
            workspace_id: workspace_id.clone(),
            older_than_ms,
            dry_run,
        };
        let of_workspace = |key| Removed {
            workspace_id: workspace_id.clone(),
            key,
        };
        let pruned = client.change(instances).await;
        let instances = unless_no_policy(pruned, older_than_ms)?.map(|pruned| pruned.instances);
        let keys = instances
            .into_iter()
            .flatten()
            .map(|it| of_workspace(it.instance_key));
        found.conversations.extend(keys);
        let tasks = PruneTasks {
            workspace_id: workspace_id.clone(),
            older_than_ms,
            no_backup: false,
            dry_run,
        };
        let pruned = client.change(tasks).await;
        let tasks = unless_no_policy(pruned, older_than_ms)?.map(|pruned| pruned.tasks);
        for task in tasks.into_iter().flatten() {
            match task.problem {
                Some(problem) => found
                    .problems
                    .push(format!("task {}: {problem}", task.task_id)),
                None => found.tasks.push(Removed {
                    workspace_id: workspace_id.clone(),
                    key: task.task_id,
                }),
            }
        }
    }
    let packages = PrunePackages {
        keep: Vec::new(),
        min_age_days: PACKAGE_DAYS,
        dry_run,
    };
    let PackagesPruned { pruned, .. } = client.change(packages).await?;
    found.package_bytes = pruned.iter().map(|package| package.bytes).sum();
    found.packages = pruned
        .into_iter()
        .map(|package| match package.names.is_empty() {
            true => package.tree,
            false => package.names.join(", "),
        })
        .collect();
    Ok(found)
}

/// The answer to a removal, or `None` if it names no age and the workspace has no policy for one. The
/// daemon refuses such a request, so that a person who prunes one workspace receives the reason.
fn unless_no_policy<T>(
    answer: Result<T, CallError>,
    older_than_ms: Option<u64>,
) -> Result<Option<T>, CallError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(CallError::Refused(refused))
            if older_than_ms.is_none() && refused.code == ErrorCode::InvalidRequest =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Prints each item on a line.
fn list(garbage: &Garbage, context: &Context) -> Result<(), Failure> {
    let mut lines = Vec::new();
    for Removed { workspace_id, key } in &garbage.conversations {
        lines.push(format!("- conversation {key} of {workspace_id}"));
    }
    for Removed { workspace_id, key } in &garbage.tasks {
        lines.push(format!("- task {key} of {workspace_id}"));
    }
    for package in &garbage.packages {
        lines.push(format!("- package {}", text::one_line(package)));
    }
    match lines.is_empty() {
        true => Ok(()),
        false => context.output.data(lines.join("\n")),
    }
}
