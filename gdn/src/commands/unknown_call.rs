//! `gdn inbox calls` and `gdn inbox settle`: interrupted tool calls with an unknown outcome.

use clap::Args;
use goondan_protocol::control::{ListUnknownCalls, SettleCall, UnknownCallInfo};
use goondan_protocol::ids::{InstanceKey, ToolCallId};
use goondan_protocol::time::Timestamp;
use serde_json::json;

use crate::context::Context;
use crate::failure::Failure;
use crate::output::table::{Cell, Column, Table};
use crate::output::text;
use crate::schemas;

/// List tool calls with an unknown outcome
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn inbox calls                                    this project's
  gdn inbox calls --all
  gdn inbox calls --json | jq -r '.calls[].toolCallId'

If a process or a connection ends during a call, the outcome of the call is unknown. The call is not
repeated; the model is notified. Check for its effect, then settle it: gdn inbox settle.")]
pub(crate) struct CallsArgs {
    /// Include every workspace
    #[arg(long)]
    all: bool,
}

/// Mark a tool call with an unknown outcome as reviewed
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn inbox calls                                    list the calls
  gdn inbox settle main call_7 --note 'the mail was sent'

Removes the call from the list, and records the note in the audit log. The agent is not notified.")]
pub(crate) struct SettleArgs {
    /// The conversation
    #[arg(value_name = "KEY")]
    instance: InstanceKey,
    /// The call
    #[arg(value_name = "CALL")]
    call: ToolCallId,
    /// Your finding, for the audit log
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

pub(crate) async fn list(args: CallsArgs, context: &Context) -> Result<(), Failure> {
    let all = context.covers_all(args.all);
    let (mut client, workspace_id) = context.open_scope(all).await?;
    let list = ListUnknownCalls {
        workspace_id,
        ..ListUnknownCalls::default()
    };
    let mut calls = client.all(list).await?;
    calls.sort_by_key(|call| call.at);
    let output = context.output;
    output.object(schemas::CALLS, &json!({ "calls": calls }))?;
    let Some(first) = calls.first() else {
        return output.data("The outcome of every tool call is known.");
    };
    output.data(table_of(&calls, all, text::now()).render(output.canvas()))?;
    let (key, call) = (&first.instance_key, &first.tool_call_id);
    output.note(format!(
        "Show the call:       {}\nAfter checking it:   {}",
        context.command(&format!("conversation history {key}")),
        context.command(&format!("inbox settle {key} {call} --note '…'")),
    ));
    Ok(())
}

fn table_of(calls: &[UnknownCallInfo], all: bool, now: Timestamp) -> Table {
    let workspace = all.then_some(Column::new("WORKSPACE").cut());
    let titles = [
        Column::new("CONVERSATION").cut(),
        Column::new("CALL").cut(),
        Column::new("TOOL").cut().below(1, "tool"),
        Column::new("SINCE").below(2, "since"),
        Column::new("HOW").below(3, ""),
    ];
    let mut table = Table::new(workspace.into_iter().chain(titles));
    for call in calls {
        let cells = [
            Cell::from(&call.instance_key),
            Cell::from(&call.tool_call_id),
            Cell::from(&call.tool_name),
            format!("{} ago", text::age(call.at, now)).into(),
            text::one_line(&call.detail).into(),
        ];
        let workspace = all.then(|| Cell::from(&call.workspace_id));
        table.row(workspace.into_iter().chain(cells));
    }
    table
}

pub(crate) async fn settle(args: SettleArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let settle = SettleCall {
        workspace_id: workspace.workspace_id,
        instance_key: args.instance,
        tool_call_id: args.call,
        note: args.note.filter(|note| !note.trim().is_empty()),
    };
    let settled = client.change(settle).await?;
    let output = context.output;
    output.object(schemas::SETTLE, &settled)?;
    let UnknownCallInfo {
        tool_call_id,
        tool_name,
        instance_key,
        ..
    } = &settled.call;
    output.data(format!(
        "Settled {tool_call_id}: {} in conversation {instance_key}",
        text::printable(tool_name)
    ))
}
