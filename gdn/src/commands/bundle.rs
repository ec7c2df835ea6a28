//! `gdn conversation bundle …`: an agent's changes to the configuration of its conversation, and their review.

use clap::{Args, Subcommand};
use goondan_protocol::bundle::{BundleStatus, ChangesetInfo, ChangesetState, StatusResult};
use goondan_protocol::control::{
    ApproveChangeset, PinBundle, ReadBundleLog, RejectChangeset, RevertBundle, ShowBundle,
    ShowChangeset,
};
use goondan_protocol::ids::{ChangesetId, InstanceKey, RevisionId};

use crate::context::Context;
use crate::failure::Failure;
use crate::output::style;
use crate::output::table::{Cell, Column, Table};
use crate::output::text;
use crate::schemas;

use super::names;

mod rehearse;

use rehearse::BundleRehearseArgs;

/// Review and control agents' changes to their own configuration
#[derive(Debug, Subcommand)]
pub(crate) enum BundleCommand {
    /// Show the active revision, its probation state, and the latest changesets
    #[command(after_help = "\
Examples:
  gdn conversation bundle status
  gdn conversation bundle status telegram:42 --json | jq '.changesets[] | select(.state == \"waiting\")'")]
    Status(BundleKeyArgs),
    /// Show the outcome of each changeset, in order
    #[command(after_help = "\
Examples:
  gdn conversation bundle log
  gdn conversation bundle log telegram:42")]
    Log(BundleKeyArgs),
    /// Show a changeset: its pending decision, changes and reason
    #[command(after_help = "\
Examples:
  gdn conversation bundle show 0199a2f1-….3-q0
  gdn conversation bundle show 0199a2f1-….3-q0 --key telegram:42")]
    Show(BundleChangesetArgs),
    /// Print a changeset as a patch
    #[command(after_help = "\
Examples:
  gdn conversation bundle diff 0199a2f1-….3-q0 | git apply  apply it to the project")]
    Diff(BundleChangesetArgs),
    /// Show the changeset of each file that differs from the project
    #[command(after_help = "\
Examples:
  gdn conversation bundle blame")]
    Blame(BundleKeyArgs),
    /// Replay the latest turns with a changeset or revision before it is activated
    #[command(after_help = "\
Examples:
  gdn conversation bundle rehearse 0199a2f1-….3-q0
  gdn conversation bundle rehearse 0199a2f1-….3-q0 --turns 50
  gdn conversation bundle rehearse 5f0c21…    a revision from `gdn conversation bundle log`

Replies and tool results are the recorded ones: no model is called, no tool runs, and nothing
changes. Exits with 16 if something would stop working.")]
    Rehearse(BundleRehearseArgs),
    /// Approve a pending changeset; it becomes active with the next step
    #[command(after_help = "\
Examples:
  gdn conversation bundle approve 0199a2f1-….3-q0

The changeset is checked again, against the active revision. Then it is on probation, like any other.")]
    Approve(BundleDecideArgs),
    /// Reject a pending changeset
    #[command(after_help = "\
Examples:
  gdn conversation bundle reject 0199a2f1-….3-q0 --reason 'keep the search tool'

The agent receives the reason.")]
    Reject(BundleDecideArgs),
    /// Revert to a revision with the next step
    #[command(after_help = "\
Examples:
  gdn conversation bundle revert       the last proven revision or, if that is active, the project
  gdn conversation bundle revert --to 5f0c21…       a revision from `gdn conversation bundle log`")]
    Revert(BundleRevertArgs),
    /// Pin the active revision; changesets are refused
    #[command(after_help = "\
Examples:
  gdn conversation bundle pin
  gdn conversation bundle pin --off")]
    Pin(BundlePinArgs),
}

#[derive(Debug, Args)]
pub(crate) struct BundleKeyArgs {
    /// The conversation [default: the swarm's `instanceKey`, or `main`]
    #[arg(value_name = "KEY")]
    key: Option<InstanceKey>,
}

#[derive(Debug, Args)]
pub(crate) struct BundleChangesetArgs {
    /// The changeset
    #[arg(value_name = "CHANGESET")]
    changeset: ChangesetId,
    /// The conversation [default: the swarm's `instanceKey`, or `main`]
    #[arg(long, value_name = "KEY")]
    key: Option<InstanceKey>,
}

#[derive(Debug, Args)]
pub(crate) struct BundleDecideArgs {
    /// The changeset
    #[arg(value_name = "CHANGESET")]
    changeset: ChangesetId,
    /// The conversation [default: the swarm's `instanceKey`, or `main`]
    #[arg(long, value_name = "KEY")]
    key: Option<InstanceKey>,
    /// Reason for the decision
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    reason: String,
}

#[derive(Debug, Args)]
pub(crate) struct BundleRevertArgs {
    /// The conversation [default: the swarm's `instanceKey`, or `main`]
    #[arg(value_name = "KEY")]
    key: Option<InstanceKey>,
    /// The revision
    #[arg(long, value_name = "REVISION")]
    to: Option<RevisionId>,
    /// Reason, which the agent receives
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    reason: String,
}

#[derive(Debug, Args)]
pub(crate) struct BundlePinArgs {
    /// The conversation [default: the swarm's `instanceKey`, or `main`]
    #[arg(value_name = "KEY")]
    key: Option<InstanceKey>,
    /// Unpin: accept changesets again
    #[arg(long)]
    off: bool,
}

pub(crate) async fn run(command: BundleCommand, context: &Context) -> Result<(), Failure> {
    match command {
        BundleCommand::Status(args) => status(args, context).await,
        BundleCommand::Log(args) => log(args, context).await,
        BundleCommand::Show(args) => show(args, context).await,
        BundleCommand::Diff(args) => diff(args, context).await,
        BundleCommand::Blame(args) => blame(args, context).await,
        BundleCommand::Rehearse(args) => rehearse::rehearse(args, context).await,
        BundleCommand::Approve(args) => approve(args, context).await,
        BundleCommand::Reject(args) => reject(args, context).await,
        BundleCommand::Revert(args) => revert(args, context).await,
        BundleCommand::Pin(args) => pin(args, context).await,
    }
}

async fn status(args: BundleKeyArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let key = workspace.conversation(args.key);
    let show = ShowBundle {
        instance_key: key.clone(),
        workspace_id: workspace.workspace_id.clone(),
    };
    let status = match client.query(show).await {
        Ok(status) => status,
        Err(error) => {
            // A suggestion of a similar name is more useful than the daemon's error.
            let id = &workspace.workspace_id;
            names::check_conversation(Some(&key), &mut client, id, context).await?;
            return Err(error.into());
        }
    };
    print_status(&status, schemas::BUNDLE_STATUS, context)
}

fn print_status(status: &BundleStatus, schema: &str, context: &Context) -> Result<(), Failure> {
    let output = context.output;
    output.object(schema, status)?;
    let mut table = Table::of_fields();
    let named = |revision: &RevisionId| match () {
        () if *revision == status.base => format!("{revision} (the project)"),
        () => revision.to_string(),
    };
    table.field("Active", named(&status.active));
    if status.head != status.active {
        table.field("With the next step", named(&status.head));
    }
    if status.promoted != status.active {
        table.field("Last proven", named(&status.promoted));
    }
    if let Some(probation) = &status.probation {
        let turns = text::count(u64::from(probation.turns), "turn");
        let failures = text::count(u64::from(probation.failures), "failure");
        let message = format!("{turns} completed, {failures}");
        table.field("On probation", message);
    }
    if status.pinned {
        table.field("Pinned", "changesets are refused".to_owned());
    }
    if let Some(problem) = &status.problem {
        table.field("Problem", Cell::styled(text::one_line(problem), style::BAD));
    }
    for file in &status.conflicts {
        table.field("Your version kept", text::printable(file));
    }
    let mut page = table.render(output.canvas());
    if !status.changesets.is_empty() {
        let changesets = changesets_of(&status.changesets).render(output.canvas());
        page.push_str(&format!("\n{changesets}"));
    }
    output.data(page.trim_end())
}

fn changesets_of(changesets: &[ChangesetInfo]) -> Table {
    let mut table = Table::new([
        Column::new("CHANGESET"),
        Column::new("STATE"),
        Column::new("CHANGES").below(1, "changes"),
        Column::new("SAID").below(2, ""),
    ]);
    for info in changesets {
        let said = if info.detail.is_empty() {
            &info.message
        } else {
            &info.detail
        };
        table.row([
            Cell::from(&info.changeset_id),
            Cell::styled(info.state.as_str(), style_of(info.state)),
            text::printable(&info.summary.join(", ")).into(),
            text::one_line(said).into(),
        ]);
    }
    table
}

fn style_of(state: ChangesetState) -> anstyle::Style {
    match state {
        ChangesetState::Open => style::FAINT,
        ChangesetState::Waiting => style::WARN,
        ChangesetState::Committed => style::GOOD,
        ChangesetState::Rejected => style::BAD,
    }
}

async fn log(args: BundleKeyArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let key = workspace.conversation(args.key);
    let read = ReadBundleLog {
        instance_key: key.clone(),
        workspace_id: workspace.workspace_id,
    };
    let logs = client.query(read).await?;
    let output = context.output;
    output.object(schemas::BUNDLE_LOG, &logs)?;
    let mut table = Table::new([
        Column::new("TIME"),
        Column::new("PHASE"),
        Column::new("RESULT"),
        Column::new("REVISION").below(2, "revision"),
        Column::new("CHANGESET").below(3, "changeset"),
        Column::new("DETAIL").below(1, ""),
    ]);
    for record in &logs.statuses {
        let phase = match record.phase {
            goondan_protocol::bundle::StatusPhase::Commit => "commit",
            goondan_protocol::bundle::StatusPhase::Activate => "activate",
        };
        let (result, style) = match record.result {
            StatusResult::Ok => ("ok", style::GOOD),
            StatusResult::Rejected => ("rejected", style::BAD),
            StatusResult::Failed => ("failed", style::BAD),
            StatusResult::Skipped => ("skipped", style::FAINT),
        };
        let revision = record.revision.as_ref().map(RevisionId::as_str);
        let changeset = record.changeset_id.as_ref().map(ChangesetId::as_str);
        table.row([
            text::clock(record.recorded_at).into(),
            phase.into(),
            Cell::styled(result, style),
            revision.unwrap_or_default().into(),
            changeset.unwrap_or_default().into(),
            text::one_line(&record.detail).into(),
        ]);
    }
    output.data(table.render(output.canvas()))?;
    let latest = logs.statuses.iter().rev();
    if let Some(id) = latest.filter_map(|it| it.changeset_id.as_ref()).next() {
        note("Show the latest", &format!("show {id}"), &key, context);
    }
    Ok(())
}

/// Suggests the next command for a conversation's bundle.
fn note(what: &str, command: &str, key: &InstanceKey, context: &Context) {
    let command = command_for(command, key, context);
    context.output.note(format!("{what}: {command}"));
}

/// Command line of `gdn conversation bundle <command>` with the conversation in `--key`.
fn command_for(command: &str, key: &InstanceKey, context: &Context) -> String {
    let key = text::shell_quoted(key.as_str()).unwrap_or_else(|| "KEY".to_owned());
    context.command(&format!("conversation bundle {command} --key {key}"))
}

/// Command line of `gdn conversation bundle <command>` with the conversation as its argument.
fn command_of(command: &str, key: &InstanceKey, context: &Context) -> String {
    let key = text::shell_quoted(key.as_str()).unwrap_or_else(|| "KEY".to_owned());
    context.command(&format!("conversation bundle {command} {key}"))
}

async fn show(args: BundleChangesetArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let key = workspace.conversation(args.key);
    let show = ShowChangeset {
        instance_key: key.clone(),
        workspace_id: workspace.workspace_id,
        changeset_id: args.changeset,
    };
    let shown = client.query(show).await?;
    let output = context.output;
    output.object(schemas::BUNDLE_SHOW, &shown)?;
    let info = &shown.changeset;
    let mut table = Table::of_fields();
    table.field("Changeset", Cell::from(&info.changeset_id));
    table.field(
        "State",
        Cell::styled(info.state.as_str(), style_of(info.state)),
    );
    table.field("Based on", info.base.to_string());
    if let Some(revision) = &info.revision {
        table.field("Makes", revision.to_string());
    }
    table.field("Opened", text::clock(info.opened_at));
    table.field("For", text::printable(&info.message));
    table.field("Because", text::printable(&info.detail));
    let diff = text::printable(&shown.diff);
    output.paged(&format!("{}\n{diff}", table.render(output.canvas())))?;
    if info.state == ChangesetState::Waiting {
        let id = &info.changeset_id;
        let rehearse = format!("rehearse {id}");
        note("Replay the latest turns with it", &rehearse, &key, context);
        note("Approve it", &format!("approve {id}"), &key, context);
        note("Reject it", &format!("reject {id}"), &key, context);
    }
    Ok(())
}

async fn diff(args: BundleChangesetArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let show = ShowChangeset {
        instance_key: workspace.conversation(args.key),
        workspace_id: workspace.workspace_id,
        changeset_id: args.changeset,
    };
    let shown = client.query(show).await?;
    context.output.object(schemas::BUNDLE_DIFF, &shown)?;
    context.output.bytes(shown.diff.as_bytes())
}

async fn blame(args: BundleKeyArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let key = workspace.conversation(args.key);
    let show = ShowBundle {
        instance_key: key.clone(),
        workspace_id: workspace.workspace_id,
    };
    let status = client.query(show).await?;
    let output = context.output;
    output.object(schemas::BUNDLE_BLAME, &status)?;
    if status.files.is_empty() {
        return output.data("All files are those of the project.");
    }
    let mut table = Table::new([
        Column::new("FILE"),
        Column::new("CHANGESET"),
        Column::new("FOR").below(1, ""),
    ]);
    for file in &status.files {
        let id = file.changeset_id.as_ref();
        let changesets = status.changesets.iter();
        let made = id.and_then(|id| {
            let mut changesets = changesets;
            changesets.find(|it| it.changeset_id == *id)
        });
        let message = made.map(|it| it.message.as_str()).unwrap_or_default();
        table.row([
            text::printable(&file.path).into(),
            id.map_or("not known", ChangesetId::as_str).into(),
            text::one_line(message).into(),
        ]);
    }
    output.data(table.render(output.canvas()))?;
    let made = status.files.iter().rev();
    if let Some(id) = made.filter_map(|it| it.changeset_id.as_ref()).next() {
        note(
            "Show what one changes",
            &format!("show {id}"),
            &key,
            context,
        );
    }
    Ok(())
}

async fn approve(args: BundleDecideArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let key = workspace.conversation(args.key);
    let approve = ApproveChangeset {
        instance_key: key.clone(),
        workspace_id: workspace.workspace_id,
        changeset_id: args.changeset,
        reason: args.reason,
    };
    let info = client.change(approve).await?;
    decided(&info, schemas::BUNDLE_APPROVE, &key, context)
}

async fn reject(args: BundleDecideArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let key = workspace.conversation(args.key);
    let reject = RejectChangeset {
        instance_key: key.clone(),
        workspace_id: workspace.workspace_id,
        changeset_id: args.changeset,
        reason: args.reason,
    };
    let info = client.change(reject).await?;
    decided(&info, schemas::BUNDLE_REJECT, &key, context)
}

fn decided(
    info: &ChangesetInfo,
    schema: &str,
    key: &InstanceKey,
    context: &Context,
) -> Result<(), Failure> {
    context.output.object(schema, info)?;
    let id = &info.changeset_id;
    let detail = text::one_line(&info.detail);
    context.output.data(match info.state {
        ChangesetState::Committed => format!("Approved {id}: active with the next step"),
        _ => format!("Changeset {id} is {}: {detail}", info.state.as_str()),
    })?;
    let status = command_of("status", key, context);
    context.output.note(format!("Show its state: {status}"));
    Ok(())
}

async fn revert(args: BundleRevertArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let key = workspace.conversation(args.key);
    let revert = RevertBundle {
        instance_key: key.clone(),
        workspace_id: workspace.workspace_id,
        revision: args.to,
        reason: args.reason,
    };
    let status = client.change(revert).await?;
    print_status(&status, schemas::BUNDLE_REVERT, context)?;
    let log = command_of("log", &key, context);
    context.output.note(format!("List the revisions: {log}"));
    Ok(())
}

async fn pin(args: BundlePinArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let key = workspace.conversation(args.key);
    let pin = PinBundle {
        instance_key: key.clone(),
        workspace_id: workspace.workspace_id,
        pinned: !args.off,
    };
    let status = client.change(pin).await?;
    print_status(&status, schemas::BUNDLE_PIN, context)?;
    if status.pinned {
        let off = command_of("pin --off", &key, context);
        let note = format!("Allow changesets again: {off}");
        context.output.note(note);
    }
    Ok(())
}
