//! `gdn inbox approvals`, `gdn inbox approve` and `gdn inbox deny`: tool calls that wait for approval (`STEER-3`).

use clap::Args;
use goondan_protocol::approval::{ApprovalDecision, ApprovalScope};
use goondan_protocol::control::{
    ApprovalDecided, ApprovalDetail, ApprovalInfo, DaemonStatus, DecideApproval, ListApprovals,
    ListStandingApprovals, RevokeStandingApproval, ShowApproval, StandingApprovalInfo,
    WorkspaceInfo,
};
use goondan_protocol::ids::{ApprovalId, InstanceKey};
use goondan_protocol::time::Timestamp;
use serde_json::{Value, json};

use super::{call_arguments, names};
use crate::client::Client;
use crate::context::Context;
use crate::exit::Exit;
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
  gdn inbox approve a-7f3a9c21 --always        also the same call in this conversation from now on
  gdn inbox approve a-7f3a9c21 --always=workspace
  gdn inbox approve a-7f3a9c21 --set 'command=make check'
  gdn inbox approve a-7f3a9c21 --edit          in $EDITOR

`--always` covers calls of the same agent and tool with exactly these arguments, until you revoke it: `gdn
inbox standing`. Changed arguments must fit the tool; the model is notified of them. The first
decision wins: a second one is refused with exit code 10.")]
pub(crate) struct ApproveArgs {
    /// The pending call
    #[arg(value_name = "ID")]
    approval: ApprovalId,
    /// Approve the same call from now on, in its conversation or workspace
    #[arg(
        long,
        value_name = "SCOPE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "conversation",
        conflicts_with_all = ["set", "edit"]
    )]
    always: Option<Scope>,
    /// Change one argument of the call (can be repeated)
    #[arg(long, value_name = "NAME=VALUE", value_parser = call_arguments::parse_assignment)]
    set: Vec<(String, String)>,
    /// Change the arguments in $VISUAL or $EDITOR
    #[arg(long, conflicts_with = "set")]
    edit: bool,
}

/// Scope of a standing approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Scope {
    /// Calls in the same conversation
    Conversation,
    /// Calls in every conversation of the workspace
    Workspace,
}

impl From<Scope> for ApprovalScope {
    fn from(scope: Scope) -> Self {
        match scope {
            Scope::Conversation => Self::Conversation,
            Scope::Workspace => Self::Workspace,
        }
    }
}

/// List the calls that are approved without asking
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn inbox standing                           this project's
  gdn inbox standing --all
  gdn inbox standing --json | jq -r '.standing[].input.command'

`gdn inbox approve ID --always` creates a standing approval. It covers calls of one agent and tool with exactly
the shown arguments, in one conversation or in the workspace, and ends with its conversation. Calls
that `approve: never` denies stay denied.")]
pub(crate) struct StandingArgs {
    /// Include every workspace
    #[arg(long)]
    all: bool,
}

/// Revoke a standing approval, so that its calls need approval again
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn inbox standing
  gdn inbox revoke a-7f3a9c21")]
pub(crate) struct RevokeArgs {
    /// The standing approval
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

/// A table of tool calls, with workspaces if `all`. `id` and `since` are the columns of the
/// calls' ids and times.
fn table_of_calls(
    id: &'static str,
    since: Column,
    all: bool,
    calls: impl Iterator<Item = (Cell, [Cell; 6])>,
) -> Table {
    let workspace = all.then_some(Column::new("WORKSPACE").cut());
    let titles = [
        Column::new(id),
        Column::new("CONVERSATION").cut(),
        Column::new("AGENT").cut().below(1, "agent"),
        Column::new("TOOL").cut().below(2, "tool"),
        since,
        Column::new("ARGUMENTS").below(4, ""),
    ];
    let mut table = Table::new(workspace.into_iter().chain(titles));
    for (workspace, cells) in calls {
        let workspace = all.then_some(workspace);
        table.row(workspace.into_iter().chain(cells));
    }
    table
}

fn table_of(waiting: &[ApprovalInfo], all: bool, now: Timestamp) -> Table {
    let calls = waiting.iter().map(|info| {
        let cells = [
            Cell::from(&info.approval_id),
            Cell::from(&info.instance_key),
            Cell::from(&info.agent_name),
            Cell::from(&info.tool_name),
            format!("{} ago", text::age(info.asked_at, now)).into(),
            text::one_line(&info.summary).into(),
        ];
        (Cell::from(&info.workspace_id), cells)
    });
    let asked = Column::new("ASKED").below(3, "asked");
    table_of_calls("APPROVAL", asked, all, calls)
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
    let ApprovalDetail {
        approval, input, ..
    } = &detail;
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
    if approval.needs_two {
        table.field("Approved", approved_by(approval));
    }
    table
}

/// Approvals so far of a call that two people must approve.
pub(super) fn approved_by(approval: &ApprovalInfo) -> String {
    let first = approval.first_approval.as_ref();
    first.map_or_else(
        || "0 of 2".to_owned(),
        |first| text::one_line(&first.in_words()),
    )
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
    let (mut client, workspace) = context.open().await?;
    let ApproveArgs {
        approval: approval_id,
        always,
        set,
        edit,
    } = args;
    let workspace_id = workspace.workspace_id;
    let input = if edit || !set.is_empty() {
        let show = ShowApproval {
            workspace_id: workspace_id.clone(),
            approval_id: approval_id.clone(),
        };
        let detail = client.query(show).await?;
        Some(match edit {
            true => edited(&detail, context)?,
            false => call_arguments::set_all(&detail, &set)?,
        })
    } else {
        None
    };
    let decide = DecideApproval {
        workspace_id,
        approval_id,
        decision: ApprovalDecision::Approved,
        reason: None,
        input,
        always: always.map(ApprovalScope::from),
    };
    // The connection may have ended while the user was editing.
    let decided = match edit {
        true => context.connect().await?.change(decide).await?,
        false => client.change(decide).await?,
    };
    context.output.object(schemas::APPROVE, &decided)?;
    print_decided("Approved", &decided, context)
}

/// Arguments from the user's editor.
fn edited(detail: &ApprovalDetail, context: &Context) -> Result<Value, Failure> {
    let id = &detail.approval.approval_id;
    let Some(editor) = call_arguments::editor() else {
        let hint = format!(
            "set single arguments: `{}`",
            context.command(&format!("inbox approve {id} --set NAME=VALUE"))
        );
        return Err(Failure::new(
            Exit::Usage,
            "neither $VISUAL nor $EDITOR is set",
            hint,
        ));
    };
    let input = call_arguments::edit(&editor, detail, context)?;
    input.ok_or_else(|| {
        Failure::new(
            Exit::Cancelled,
            "the arguments were not changed; the call still waits",
            format!(
                "approve it unchanged: `{}`",
                context.command(&format!("inbox approve {id}"))
            ),
        )
    })
}

pub(crate) async fn standing(args: &StandingArgs, context: &Context) -> Result<(), Failure> {
    let all = context.covers_all(args.all);
    let (mut client, workspace_id) = context.open_scope(all).await?;
    let list = ListStandingApprovals {
        workspace_id,
        ..ListStandingApprovals::default()
    };
    let standing = client.all(list).await?;
    let output = context.output;
    output.object(schemas::STANDING, &json!({ "standing": standing }))?;
    let Some(first) = standing.first() else {
        return output.data("No calls are approved without asking by a standing approval.");
    };
    output.data(table_of_standing(&standing, all, text::now()).render(output.canvas()))?;
    let id = &first.approval_id;
    let revoke = context.command(&format!("inbox revoke {id}"));
    output.note(format!("Revoke one: {revoke}"));
    Ok(())
}

fn table_of_standing(standing: &[StandingApprovalInfo], all: bool, now: Timestamp) -> Table {
    let calls = standing.iter().map(|info| {
        let key = info.instance_key.as_ref();
        let cells = [
            Cell::from(&info.approval_id),
            key.map_or_else(|| Cell::styled("all", style::FAINT), Cell::from),
            Cell::from(&info.agent_name),
            Cell::from(&info.tool_name),
            format!("{} ago", text::age(info.created_at, now)).into(),
            text::one_line(&info.input.to_string()).into(),
        ];
        (Cell::from(&info.workspace_id), cells)
    });
    let since = Column::new("SINCE").below(3, "since");
    table_of_calls("ID", since, all, calls)
}

pub(crate) async fn revoke(args: RevokeArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let revoke = RevokeStandingApproval {
        workspace_id: workspace.workspace_id,
        approval_id: args.approval,
    };
    let revoked = client.change(revoke).await?;
    context.output.object(schemas::REVOKE, &revoked)?;
    let StandingApprovalInfo {
        approval_id,
        tool_name,
        ..
    } = &revoked.standing;
    context.output.data(format!(
        "Revoked {approval_id}: this call of {} needs approval again",
        text::one_line(tool_name)
    ))
}

pub(crate) async fn deny(args: DenyArgs, context: &Context) -> Result<(), Failure> {
    let reason = args.reason.filter(|reason| !reason.trim().is_empty());
    let (mut client, workspace) = context.open().await?;
    let decide = DecideApproval {
        workspace_id: workspace.workspace_id,
        approval_id: args.approval,
        decision: ApprovalDecision::Denied,
        reason,
        input: None,
        always: None,
    };
    let decided = client.change(decide).await?;
    context.output.object(schemas::DENY, &decided)?;
    print_decided("Denied", &decided, context)
}

fn print_decided(how: &str, decided: &ApprovalDecided, context: &Context) -> Result<(), Failure> {
    let ApprovalDecided {
        approval_id,
        instance_key,
        tool_name,
        is_changed,
        always,
        needs_another,
        ..
    } = decided;
    let changed = match is_changed {
        true => " with changed arguments",
        false => "",
    };
    let output = context.output;
    output.data(format!(
        "{how} {approval_id}: {tool_name} in conversation {instance_key}{changed}"
    ))?;
    if *needs_another {
        output.note(FIRST_OF_TWO);
    }
    if let Some(scope) = always {
        let revoke = context.command(&format!("inbox revoke {approval_id}"));
        output.note(format!(
            "The same call is approved in {} from now on. Revoke that: {revoke}",
            scope_words(*scope)
        ));
    }
    Ok(())
}

/// Note for the first of two people who approves a call.
pub(super) const FIRST_OF_TWO: &str = "1 of 2: another person must approve the call before it runs";

/// The conversations that a standing approval covers, in words.
pub(super) fn scope_words(scope: ApprovalScope) -> &'static str {
    match scope {
        ApprovalScope::Conversation => "this conversation",
        ApprovalScope::Workspace => "every conversation of the workspace",
    }
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
