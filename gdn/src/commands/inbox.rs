//! `gdn inbox`: everything that needs a person, in one list over all workspaces (`NEED-1`).

mod changes;
mod current;
pub(super) mod decisions;
pub(super) mod details;
mod entry;
mod items;
mod review;
pub(super) mod shown;

use std::io::IsTerminal as _;

use clap::{Args, Subcommand};
use goondan_protocol::ids::WorkspaceId;
use serde_json::{Value, json};

pub(super) use self::changes::LiveChanges;
pub(super) use self::current::CurrentInbox;
pub(super) use self::entry::{Entry, EntryStep};
#[cfg(test)]
pub(super) use self::items::Target;
pub(super) use self::items::{Inbox, InboxItem, read};
pub(super) use self::shown::line;

use super::approval::{ApprovalsArgs, ApproveArgs, DenyArgs, RevokeArgs, StandingArgs};
use super::names;
use super::question::QuestionCommand;
use super::unknown_call::{CallsArgs, SettleArgs};
use super::{approval, question, unknown_call};
use crate::client::Client;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::text;
use crate::schemas;

/// Decide what waits for a person, in every workspace
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  gdn inbox                              on a terminal, one after another: a key decides
  gdn inbox --list                       all of them, as in a pipe
  gdn inbox show a-7f3a9c21              one of them, in full
  gdn inbox approve a-7f3a9c21
  gdn inbox --json | jq -r '.items[].commands[0]'

Lists the workspaces of the daemon; `--project` and `--workspace` select one. Each item shows what is
decided about, who asks since when, and what happens without a decision. The first decision counts."
)]
pub(crate) struct InboxArgs {
    #[command(subcommand)]
    command: Option<InboxCommand>,
    /// Print the list instead of asking
    #[arg(long)]
    list: bool,
}

#[derive(Debug, Subcommand)]
enum InboxCommand {
    /// Show one item in full
    #[command(after_help = "\
Examples:
  gdn inbox show a-7f3a9c21              a tool call with all its arguments
  gdn inbox show r1/coder                a proposal with its patch")]
    Show(InboxShowArgs),
    Approvals(ApprovalsArgs),
    Approve(ApproveArgs),
    Deny(DenyArgs),
    Standing(StandingArgs),
    Revoke(RevokeArgs),
    #[command(subcommand)]
    Question(QuestionCommand),
    Calls(CallsArgs),
    Settle(SettleArgs),
}

#[derive(Debug, Args)]
struct InboxShowArgs {
    /// The item, as `gdn inbox` lists it
    #[arg(value_name = "ID")]
    id: String,
}

/// Lines of details of an item in a list on a terminal.
const DETAIL_LINES: usize = 12;

/// Maximum number of items that are listed with details on a terminal.
const DETAILED_ITEMS: usize = 30;

pub(crate) async fn run(args: InboxArgs, context: &Context) -> Result<(), Failure> {
    match args.command {
        None => overview(args.list, context).await,
        Some(InboxCommand::Show(args)) => show(&args.id, context).await,
        Some(InboxCommand::Approvals(args)) => approval::list(args, context).await,
        Some(InboxCommand::Approve(args)) => approval::approve(args, context).await,
        Some(InboxCommand::Deny(args)) => approval::deny(args, context).await,
        Some(InboxCommand::Standing(args)) => approval::standing(&args, context).await,
        Some(InboxCommand::Revoke(args)) => approval::revoke(args, context).await,
        Some(InboxCommand::Question(command)) => question::run(command, context).await,
        Some(InboxCommand::Calls(args)) => unknown_call::list(args, context).await,
        Some(InboxCommand::Settle(args)) => unknown_call::settle(args, context).await,
    }
}

/// The daemon, and the workspace if the user named one.
async fn open(context: &Context) -> Result<(Client, Option<WorkspaceId>), Failure> {
    context.open_scope(!context.is_named()).await
}

async fn overview(is_list: bool, context: &Context) -> Result<(), Failure> {
    let (mut client, only) = open(context).await?;
    let output = context.output;
    let is_asked = output.is_watched() && std::io::stdin().is_terminal();
    if is_asked && !is_list {
        drop(client);
        return review::run(only.as_ref(), context).await;
    }
    let inbox = read(&mut client, only.as_ref(), context).await?;
    tell_of_failures(&inbox, context);
    if output.is_json() {
        let mut listed = Vec::new();
        for item in &inbox.items {
            let details = details::read(&mut client, item, output.canvas(), context).await;
            listed.push(with_details(item, details.ok().map(|details| details.json)));
        }
        let failures = &inbox.failures;
        return output.object(
            schemas::INBOX,
            &json!({ "items": listed, "unreadable": failures }),
        );
    }
    if inbox.items.is_empty() {
        return output.data("Nothing needs you.");
    }
    // A pipe gets everything.
    let (items_max, lines_max) = match output.is_watched() {
        true => (DETAILED_ITEMS, Some(DETAIL_LINES)),
        false => (usize::MAX, None),
    };
    for (place, item) in inbox.items.iter().enumerate() {
        if place >= items_max {
            output.data(line(item, context))?;
            continue;
        }
        let details = details::read(&mut client, item, output.canvas(), context).await;
        let details = details.ok().map(|details| details.text);
        let shown = shown::item(item, details.as_deref(), lines_max, output.out, context);
        output.data(format!("{shown}\n"))?;
    }
    let total = text::count(inbox.items.len(), "thing");
    let verb = if inbox.items.len() == 1 {
        "needs"
    } else {
        "need"
    };
    output.note(format!(
        "{total} {verb} you. Decide on a terminal: {}",
        context.command("inbox")
    ));
    Ok(())
}

/// An item as a JSON object, with what is decided about.
fn with_details(item: &InboxItem, details: Option<Value>) -> Value {
    let mut object = json!(item);
    if let (Some(fields), Some(details)) = (object.as_object_mut(), details) {
        fields.insert("details".to_owned(), details);
    }
    object
}

async fn show(id: &str, context: &Context) -> Result<(), Failure> {
    let (mut client, only) = open(context).await?;
    let inbox = read(&mut client, only.as_ref(), context).await?;
    let found = inbox.items.iter().find(|item| item.id == id);
    let Some(item) = found else {
        let hint = format!("list what needs you: `{}`", context.command("inbox --list"));
        let known = inbox.items.iter().map(|item| item.id.as_str());
        return Err(Failure::new(
            Exit::NotFound,
            format!("nothing in the inbox is called `{}`", text::one_line(id)),
            names::with_near_name(id, known, hint),
        ));
    };
    let output = context.output;
    let details = details::read(&mut client, item, output.canvas(), context).await?;
    output.object(
        schemas::INBOX_SHOW,
        &with_details(item, Some(details.json.clone())),
    )?;
    let shown = shown::item(item, Some(&details.text), None, output.out, context);
    output.data(shown)
}

/// Reports lists that could not be read.
fn tell_of_failures(inbox: &Inbox, context: &Context) {
    for failure in &inbox.failures {
        let failure = text::one_line(failure);
        context.output.note(format!("Incomplete list: {failure}"));
    }
}
