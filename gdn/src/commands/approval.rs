//! `gdn inbox approvals`, `gdn inbox approve` and `gdn inbox deny`: tool calls that wait for approval (`STEER-3`).

use clap::Args;
use goondan_protocol::approval::ApprovalDecision;
use goondan_protocol::control::{
    ApprovalDecided, ApprovalDetail, ApprovalInfo, DaemonStatus, DecideApproval, ListApprovals,
    ShowApproval, WorkspaceInfo,
};
use goondan_protocol::ids::{ApprovalId, InstanceKey};
use goondan_protocol::time::Timestamp;
use serde_json::{Value, json};

use super::names;
use crate::client::Client;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::style;
use crate::output::table::{Cell, Column, Table};
use crate::output::text;
use crate::schemas;

/// Maximum number of pending calls that other commands list.
const NAMED_AT_ONCE: usize = 5;

/// List the tool calls that wait for approval, or show one
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn inbox approvals                                this project's
  gdn inbox approvals --all
  gdn inbox approvals a-7f3a9c21               one call with all its arguments
  gdn inbox approvals --json | jq -r '.approvals[].approvalId'

Tools that an agent lists with `approve: ask` run only after you approve the call. The call waits without
a time limit, even across restarts of the agent and the daemon; the rest of its step continues.")]
pub(crate) struct ApprovalsArgs {
    /// Show this call in full
    #[arg(value_name = "ID", conflicts_with_all = ["all", "instance"])]
    approval: Option<ApprovalId>,
    /// Include every workspace
    #[arg(long)]
    all: bool,
    /// Only calls of this conversation
    #[arg(
        long = "conversation",
        alias = "instance",
        value_name = "KEY",
        conflicts_with = "all"
    )]
    instance: Option<InstanceKey>,
}

/// Approve a pending tool call
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn inbox approvals a-7f3a9c21               review it first
  gdn inbox approve a-7f3a9c21

The first decision wins: a second one is refused with exit code 10.")]
pub(crate) struct ApproveArgs {
    /// The pending call
    #[arg(value_name = "ID")]
    approval: ApprovalId,
}

/// Deny a pending tool call
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn inbox deny a-7f3a9c21
  gdn inbox deny a-7f3a9c21 --reason 'not on the main branch; make one of your own first'

The turn continues: the model receives the denial with your reason.")]
pub(crate) struct DenyArgs {
    /// The pending call
    #[arg(value_name = "ID")]
    approval: ApprovalId,
    /// Reason for the model
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

pub(crate) async fn list(args: ApprovalsArgs, context: &Context) -> Result<(), Failure> {
    if let Some(approval_id) = args.approval {
        return show(approval_id, context).await;
    }
    let all = context.covers_all(args.all);
    let (mut client, workspace_id) = context.open_scope(all).await?;
    if let Some(id) = &workspace_id {
        let key = args.instance.as_ref();
        names::check_conversation(key, &mut client, id, context).await?;
    }
    let list = ListApprovals {
        workspace_id,
        instance_key: args.instance,
        ..ListApprovals::default()
    };
    let waiting = client.all(list).await?;
    let output = context.output;
    output.object(schemas::APPROVALS, &json!({ "approvals": waiting }))?;
    let Some(first) = waiting.first() else {
        return output.data("No tool calls wait for approval.");
    };
    output.data(table_of(&waiting, all, text::now()).render(output.canvas()))?;
    let id = &first.approval_id;
    output.note(format!(
        "Show one: {}\nApprove:  {}\nDeny:     {}",
        context.command(&format!("inbox approvals {id}")),
        context.command(&format!("inbox approve {id}")),
        context.command(&format!("inbox deny {id} --reason '…'")),
    ));
    Ok(())
}

fn table_of(waiting: &[ApprovalInfo], all: bool, now: Timestamp) -> Table {
    let workspace = all.then_some(Column::new("WORKSPACE").cut());
    let titles = [
        Column::new("APPROVAL"),
        Column::new("CONVERSATION").cut(),
        Column::new("AGENT").cut().below(1, "agent"),
        Column::new("TOOL").cut().below(2, "tool"),
        Column::new("ASKED").below(3, "asked"),
        Column::new("ARGUMENTS").below(4, ""),
    ];
    let mut table = Table::new(workspace.into_iter().chain(titles));
    for info in waiting {
        let cells = [
            Cell::from(&info.approval_id),
            Cell::from(&info.instance_key),
            Cell::from(&info.agent_name),
            Cell::from(&info.tool_name),
            format!("{} ago", text::age(info.asked_at, now)).into(),
            text::one_line(&info.summary).into(),
        ];
        let workspace = all.then(|| Cell::from(&info.workspace_id));
        table.row(workspace.into_iter().chain(cells));
    }
    table
}

async fn show(approval_id: ApprovalId, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let show = ShowApproval {
        workspace_id: workspace.workspace_id,
        approval_id,
    };
    let detail = client.query(show).await?;
    let output = context.output;
    output.object(schemas::APPROVALS_SHOW, &detail)?;
    let ApprovalDetail { approval, input } = &detail;
    output.data(fields_of(approval, text::now()).render(output.canvas()))?;
    output.data(format!("\n{}", arguments(input)))?;
    if approval.may_have_begun {
        let warning = output.err.paint(style::WARN, "warning:");
        output.note(format!(
            "{warning} a process that ended may have started this call already"
        ));
    }
    let id = &approval.approval_id;
    output.note(format!(
        "\nApprove:  {}\nDeny:     {}",
        context.command(&format!("inbox approve {id}")),
        context.command(&format!("inbox deny {id} --reason '…'")),
    ));
    Ok(())
}

fn fields_of(approval: &ApprovalInfo, now: Timestamp) -> Table {
    let mut table = Table::of_fields();
    table.field("Approval", Cell::from(&approval.approval_id));
    table.field("Tool", Cell::from(&approval.tool_name));
    table.field("Conversation", Cell::from(&approval.instance_key));
    table.field("Agent", Cell::from(&approval.agent_name));
    let age = text::age(approval.asked_at, now);
    let asked = format!("{} ({age} ago)", text::clock(approval.asked_at));
    table.field("Asked", asked);
    if let Some(denied_at) = approval.denied_at {
        table.field(
            "Denied",
            format!("{} unless decided before", text::clock(denied_at)),
        );
    }
    table
}

/// Arguments of a call, one block for each, so that every line is visible.
pub(super) fn arguments(input: &Value) -> String {
    let Value::Object(arguments) = input else {
        return text::quoted(&input.to_string());
    };
    let shown = arguments.iter().map(|(name, value)| {
        let value = match value {
            Value::String(value) => text::quoted(value),
            other => text::quoted(&other.to_string()),
        };
        format!("{}:\n{value}", text::one_line(name))
    });
    let shown: Vec<String> = shown.collect();
    if shown.is_empty() {
        return "(no arguments)".to_owned();
    }
    shown.join("\n")
}

pub(crate) async fn approve(args: ApproveArgs, context: &Context) -> Result<(), Failure> {
    let decided = decide(args.approval, ApprovalDecision::Approved, None, context).await?;
    context.output.object(schemas::APPROVE, &decided)?;
    print_decided("Approved", &decided, context)
}

pub(crate) async fn deny(args: DenyArgs, context: &Context) -> Result<(), Failure> {
    let reason = args.reason.filter(|reason| !reason.trim().is_empty());
    let decided = decide(args.approval, ApprovalDecision::Denied, reason, context).await?;
    context.output.object(schemas::DENY, &decided)?;
    print_decided("Denied", &decided, context)
}

async fn decide(
    approval_id: ApprovalId,
    decision: ApprovalDecision,
    reason: Option<String>,
    context: &Context,
) -> Result<ApprovalDecided, Failure> {
    let (mut client, workspace) = context.open().await?;
    let decide = DecideApproval {
        workspace_id: workspace.workspace_id,
        approval_id,
        decision,
        reason,
    };
    Ok(client.change(decide).await?)
}

fn print_decided(how: &str, decided: &ApprovalDecided, context: &Context) -> Result<(), Failure> {
    let ApprovalDecided {
        approval_id,
        instance_key,
        tool_name,
        ..
    } = decided;
    context.output.data(format!(
        "{how} {approval_id}: {tool_name} in conversation {instance_key}"
    ))
}

/// Prints pending approvals and their commands to stderr.
pub(super) async fn report(
    client: &mut Client,
    status: &DaemonStatus,
    context: &Context,
) -> Result<(), Failure> {
    for workspace in status.workspaces.iter().filter(|it| it.approvals > 0) {
        let id = &workspace.workspace_id;
        let list = ListApprovals {
            workspace_id: Some(id.clone()),
            ..ListApprovals::default()
        };
        let command =
            |command: &str| context.daemon_command(&format!("--workspace {id} {command}"));
        report_some(client, list, context, &command).await?;
    }
    Ok(())
}

/// Prints the pending approvals of one conversation.
pub(super) async fn report_of(
    client: &mut Client,
    workspace: &WorkspaceInfo,
    key: InstanceKey,
    context: &Context,
) -> Result<(), Failure> {
    if workspace.approvals == 0 {
        return Ok(());
    }
    let list = ListApprovals {
        workspace_id: Some(workspace.workspace_id.clone()),
        instance_key: Some(key),
        ..ListApprovals::default()
    };
    report_some(client, list, context, &|command| context.command(command)).await
}

async fn report_some(
    client: &mut Client,
    mut list: ListApprovals,
    context: &Context,
    command: &impl Fn(&str) -> String,
) -> Result<(), Failure> {
    list.limit = Some(NAMED_AT_ONCE);
    let waiting = client.query(list).await?;
    for info in waiting.approvals {
        let id = &info.approval_id;
        context.output.note(format!(
            "  {} in {} waits for your approval: {}\n    `{}`, or `{}`",
            text::printable(&info.tool_name),
            text::printable(info.instance_key.as_ref()),
            text::one_line(&info.summary),
            command(&format!("inbox approve {id}")),
            command(&format!("inbox deny {id}")),
        ));
    }
    Ok(())
}
