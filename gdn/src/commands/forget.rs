//! `gdn workspace forget`: removes a project and its data.

use clap::Args;
use std::collections::BTreeSet;
use std::path::PathBuf;

use goondan_protocol::control::{
    CloseWorkspace, DecidePermission, DeleteInstance, DenySecret, InstanceSummary, ListInstances,
    ListPermissions, ListSecrets, WorkspaceInfo, WorkspacePermission,
};
use goondan_protocol::ids::{SecretName, WorkspaceId};
use serde::Serialize;

use super::attach::attach_or_start;
use super::completion_values::{self, KnownWorkspace};
use super::confirm::confirm;
use super::drain_progress::while_draining;
use crate::client::Client;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::text;
use crate::schemas;

/// Forget this project: stop it and revoke its secrets; its conversations are kept
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn workspace forget
  gdn workspace forget --delete          and delete its conversations
  gdn workspace forget --workspace home_me_swarm__swarm  one whose project was deleted

Needs the daemon, and starts it if none runs.")]
pub(crate) struct ForgetArgs {
    /// Delete its conversations, too
    #[arg(long)]
    delete: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
}

/// Maximum number of passes that look for conversations created during the deletion.
const MAX_SWEEPS: usize = 3;

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct ForgetResult {
    workspace_ids: BTreeSet<WorkspaceId>,
    project_root: Option<PathBuf>,
    /// True if the project was registered.
    stopped: bool,
    deleted_conversations: usize,
    /// Secrets that the project may no longer use.
    denied_secrets: BTreeSet<SecretName>,
    /// Permissions that the project no longer has.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    denied_permissions: BTreeSet<WorkspacePermission>,
}

/// Withdraws all permissions of the workspaces.
async fn withdraw(
    client: &mut Client,
    workspaces: &BTreeSet<WorkspaceId>,
) -> Result<BTreeSet<WorkspacePermission>, Failure> {
    let decisions = client.query(ListPermissions {}).await?.decisions;
    let mut withdrawn = BTreeSet::new();
    for decision in decisions {
        if !decision.allowed || !workspaces.contains(&decision.workspace_id) {
            continue;
        }
        let decide = DecidePermission {
            permission: decision.permission,
            project_root: decision.project_root,
            allowed: false,
            covers: BTreeSet::new(),
        };
        client.change(decide).await?;
        withdrawn.insert(decision.permission);
    }
    Ok(withdrawn)
}

pub(crate) async fn run(args: &ForgetArgs, context: &Context) -> Result<(), Failure> {
    // Only the daemon writes state.
    let (mut client, _) = attach_or_start(context, false).await?;
    let known = completion_values::of(context)?;
    let running = match context.find(&mut client).await {
        Ok(running) => Some(running),
        Err(failure) if failure.exit == Exit::NotFound && !known.is_empty() => None,
        Err(failure) => return Err(failure),
    };
    let mut done = ForgetResult {
        project_root: known.first().map(|known| known.project_root.clone()),
        workspace_ids: known
            .into_iter()
            .map(|KnownWorkspace { id, .. }| id)
            .collect(),
        ..ForgetResult::default()
    };
    match &running {
        Some(running) => {
            done.project_root = Some(running.project_root.clone());
            done.workspace_ids.insert(running.workspace_id.clone());
            if args.delete {
                done.deleted_conversations = delete(&mut client, running, args, context).await?;
            }
            close(&mut client, running, context).await?;
            done.stopped = true;
        }
        None if args.delete => return Err(not_running(context)),
        None => {}
    }
    done.denied_secrets = deny(&mut client, &done.workspace_ids).await?;
    done.denied_permissions = withdraw(&mut client, &done.workspace_ids).await?;
    tell(&done, args, context)
}

fn not_running(context: &Context) -> Failure {
    Failure::new(
        Exit::NotFound,
        "cannot delete conversations, because the project is not running",
        format!(
            "run it first: `{}`, then `{}`",
            context.command("run"),
            context.command("workspace forget --delete")
        ),
    )
}

/// Deletes every conversation of a workspace, including those created meanwhile, and returns their number.
async fn delete(
    client: &mut Client,
    workspace: &WorkspaceInfo,
    args: &ForgetArgs,
    context: &Context,
) -> Result<usize, Failure> {
    let mut instances = list(client, workspace).await?;
    if !args.yes {
        let root = workspace.project_root.to_string_lossy();
        let question = format!(
            "Forget the project {} and delete its {} with all their messages?",
            text::printable(&root),
            text::count(instances.len(), "conversation"),
        );
        confirm(context, &question, "workspace forget --delete --yes")?;
    }
    let mut deleted = 0;
    for _ in 0..MAX_SWEEPS {
        for instance in instances {
            let delete = DeleteInstance {
                workspace_id: workspace.workspace_id.clone(),
                instance_key: instance.instance_key,
            };
            deleted += usize::from(client.change(delete).await?.existed);
        }
        instances = list(client, workspace).await?;
        if instances.is_empty() {
            return Ok(deleted);
        }
    }
    Err(Failure::new(
        Exit::Internal,
        format!("new conversations keep starting; {deleted} were deleted"),
        format!(
            "stop their source, then run: `{}`",
            context.command("workspace forget --delete --yes")
        ),
    ))
}

async fn list(
    client: &mut Client,
    workspace: &WorkspaceInfo,
) -> Result<Vec<InstanceSummary>, Failure> {
    let list = ListInstances {
        workspace_id: Some(workspace.workspace_id.clone()),
        ..ListInstances::default()
    };
    Ok(client.all(list).await?)
}

async fn close(
    client: &mut Client,
    workspace: &WorkspaceInfo,
    context: &Context,
) -> Result<(), Failure> {
    let workspace_id = workspace.workspace_id.clone();
    let close = CloseWorkspace {
        workspace_id: workspace_id.clone(),
    };
    while_draining(context, Some(workspace_id), client.change(close)).await?;
    Ok(())
}

/// Revokes every secret that these workspaces were allowed.
async fn deny(
    client: &mut Client,
    ids: &BTreeSet<WorkspaceId>,
) -> Result<BTreeSet<SecretName>, Failure> {
    let mut denied = BTreeSet::new();
    let consents = client.query(ListSecrets {}).await?.consents;
    let theirs = consents
        .into_iter()
        .filter(|consent| ids.contains(&consent.workspace_id));
    for consent in theirs {
        let deny = DenySecret {
            name: consent.secret.clone(),
            project_root: None,
            workspace_id: Some(consent.workspace_id),
        };
        client.change(deny).await?;
        denied.insert(consent.secret);
    }
    Ok(denied)
}

fn tell(done: &ForgetResult, args: &ForgetArgs, context: &Context) -> Result<(), Failure> {
    let output = context.output;
    output.object(schemas::FORGET, done)?;
    let ids: Vec<&str> = done.workspace_ids.iter().map(WorkspaceId::as_str).collect();
    output.data(format!("Forgot workspace {}", ids.join(", ")))?;
    for secret in &done.denied_secrets {
        output.data(format!("Revoked Secret/{secret}"))?;
    }
    if args.delete {
        let count = text::count(done.deleted_conversations, "conversation");
        return output.data(format!("Deleted {count}"));
    }
    output.note(format!(
        "The daemon no longer starts it. Its conversations are kept; `{}` continues them.",
        context.command("run")
    ));
    Ok(())
}
