//! `gdn proposal sandbox …`: file copies for workers.

use clap::{Args, Subcommand};
use goondan_protocol::control::{
    ListSandboxes, PrepareSandbox, RemoveSandbox, SandboxDetail, SandboxInfo, SandboxRef,
    ShowSandbox,
};
use goondan_protocol::ids::{RunId, WorkerId};
use goondan_protocol::time::Timestamp;
use serde_json::json;

use super::names;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::style;
use crate::output::table::{Cell, Column, Table};
use crate::output::text;
use crate::schemas;

/// Prepare, list, show and remove workers' file copies
#[derive(Debug, Subcommand)]
pub(crate) enum SandboxCommand {
    /// Copy files of the project for a worker
    #[command(after_help = "\
Examples:
  gdn proposal sandbox prepare --run r1 --agent coder src/a.rs README.md
  gdn proposal sandbox prepare --run r1 --agent coder src --may-create tests
  gdn proposal sandbox prepare --run r1 --agent reviewer --all --exclude '*.png'

The worker works in `work`; the project does not change until you apply its proposal.
Paths are relative to the project's directory. `node_modules/`, `dist/`, `.goondan*` and files that
look like secrets are excluded, or refused if named, unless `--allow` names them; `.git` always is.")]
    Prepare(SandboxPrepareArgs),
    /// List the sandboxes of the project
    #[command(after_help = "\
Examples:
  gdn proposal sandbox list
  gdn proposal sandbox list --run r1 --json | jq -r '.sandboxes[].directory'")]
    List(SandboxListArgs),
    /// Show the files that a worker was given, and those it was not
    #[command(after_help = "\
Examples:
  gdn proposal sandbox show r1 coder")]
    Show(SandboxShowArgs),
    /// Remove a sandbox, with the proposal in it
    #[command(after_help = "\
Examples:
  gdn proposal sandbox remove r1 coder

An applied proposal stays applied, but can no longer be reverted.")]
    Remove(SandboxRemoveArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SandboxPrepareArgs {
    /// The run, which groups the work of several agents
    #[arg(long, value_name = "RUN")]
    run: RunId,
    /// The worker
    #[arg(long, value_name = "AGENT")]
    agent: WorkerId,
    /// Files and directories to copy
    #[arg(value_name = "FILE", required_unless_present = "all")]
    files: Vec<String>,
    /// Copy the whole project
    #[arg(long, conflicts_with = "files")]
    all: bool,
    /// Copy this path even though it is refused by default (can be repeated)
    #[arg(long, value_name = "PATH")]
    allow: Vec<String>,
    /// Exclude paths that match this pattern, as in `.gitignore` (can be repeated)
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Allow the worker to create files in this directory (can be repeated)
    #[arg(long, value_name = "DIR")]
    may_create: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SandboxListArgs {
    /// Only sandboxes of this run
    #[arg(long, value_name = "RUN")]
    run: Option<RunId>,
}

/// Selects one sandbox.
#[derive(Debug, Args)]
pub(crate) struct SandboxShowArgs {
    /// The run
    #[arg(value_name = "RUN")]
    run: RunId,
    /// The worker
    #[arg(value_name = "AGENT")]
    agent: WorkerId,
}

#[derive(Debug, Args)]
pub(crate) struct SandboxRemoveArgs {
    /// The run
    #[arg(value_name = "RUN")]
    run: RunId,
    /// The worker
    #[arg(value_name = "AGENT")]
    agent: WorkerId,
    /// Remove it even if its proposal is pending
    #[arg(long)]
    force: bool,
}

pub(crate) async fn run(command: SandboxCommand, context: &Context) -> Result<(), Failure> {
    match command {
        SandboxCommand::Prepare(args) => prepare(args, context).await,
        SandboxCommand::List(args) => list(args, context).await,
        SandboxCommand::Show(args) => show(args, context).await,
        SandboxCommand::Remove(args) => remove(args, context).await,
    }
}

async fn prepare(args: SandboxPrepareArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let prepare = PrepareSandbox {
        workspace_id: workspace.workspace_id,
        at: SandboxRef {
            run_id: args.run,
            agent_id: args.agent,
        },
        files: args.files,
        allow: args.allow,
        exclude: args.exclude,
        may_create: args.may_create,
    };
    let detail = client.change(prepare).await?;
    let output = context.output;
    output.object(schemas::SANDBOX_PREPARE, &detail)?;
    let info = &detail.info;
    output.data(format!(
        "Prepared {} ({}) for {} in {}",
        text::count(info.files as u64, "file"),
        text::bytes(info.bytes),
        info.at.agent_id,
        detail.work_dir.display()
    ))?;
    let SandboxRef { run_id, agent_id } = &info.at;
    output.note(format!(
        "After the work: {}",
        context.command(&format!("proposal create {run_id} {agent_id}"))
    ));
    Ok(())
}

async fn list(args: SandboxListArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let list = ListSandboxes {
        workspace_id: workspace.workspace_id.clone(),
        run_id: args.run.clone(),
        after: None,
        limit: None,
    };
    let mut sandboxes = client.all(list).await?;
    if sandboxes.is_empty() {
        names::check_run(args.run.as_ref(), &mut client, &workspace.workspace_id).await?;
    }
    sandboxes.sort_by(|one, other| (one.created_at, &one.at).cmp(&(other.created_at, &other.at)));
    let output = context.output;
    output.object(schemas::SANDBOX_LIST, &json!({ "sandboxes": sandboxes }))?;
    if sandboxes.is_empty() {
        return output.data("No sandboxes.");
    }
    output.data(table_of(&sandboxes, text::now()).render(output.canvas()))
}

fn table_of(sandboxes: &[SandboxInfo], now: Timestamp) -> Table {
    let mut table = Table::new([
        Column::new("RUN").cut(),
        Column::new("AGENT").cut(),
        Column::new("FILES").below(2, "files"),
        Column::new("SIZE").below(3, "size"),
        Column::new("PREPARED").below(1, "prepared"),
        Column::new("PROPOSAL"),
    ]);
    for info in sandboxes {
        if let Some(problem) = &info.problem {
            table.row([
                Cell::from(&info.at.run_id),
                Cell::from(&info.at.agent_id),
                "".into(),
                "".into(),
                Cell::styled("damaged", style::BAD),
                text::one_line(problem).into(),
            ]);
            continue;
        }
        table.row([
            Cell::from(&info.at.run_id),
            Cell::from(&info.at.agent_id),
            info.files.to_string().into(),
            text::bytes(info.bytes).into(),
            info.created_at
                .map_or_else(String::new, |at| format!("{} ago", text::age(at, now)))
                .into(),
            info.proposal
                .map_or("none", |state| state.as_str())
                .to_owned()
                .into(),
        ]);
    }
    table
}

async fn show(args: SandboxShowArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let show = ShowSandbox {
        workspace_id: workspace.workspace_id,
        at: SandboxRef {
            run_id: args.run,
            agent_id: args.agent,
        },
    };
    let detail = client.query(show).await?;
    let output = context.output;
    output.object(schemas::SANDBOX_SHOW, &detail)?;
    output.paged(&described(&detail, context))
}

fn described(detail: &SandboxDetail, context: &Context) -> String {
    let (info, canvas) = (&detail.info, context.output.canvas());
    let mut table = Table::of_fields();
    table.field("Run", Cell::from(&info.at.run_id));
    table.field("Agent", Cell::from(&info.at.agent_id));
    if let Some(at) = info.created_at {
        table.field("Prepared", text::clock(at));
    }
    let head = detail.base.git_head.as_deref();
    table.field("Git head", head.unwrap_or("none").to_owned());
    table.field("Work", detail.work_dir.display().to_string());
    table.field(
        "New files",
        match detail.may_create.join(", ") {
            nowhere if nowhere.is_empty() => "nowhere".to_owned(),
            below => format!("in {below}"),
        },
    );
    let state = info.proposal.map_or("none", |state| state.as_str());
    table.field("Proposal", state.to_owned());
    let mut out = table.render(canvas);
    let mut given = Table::new([
        Column::new("GIVEN"),
        Column::new("MODE"),
        Column::new("SHA-256"),
    ]);
    for file in &detail.given {
        let digest = file.sha256.chars().take(12).collect::<String>();
        given.row([
            text::printable(&file.path).into(),
            file.mode.clone().into(),
            Cell::styled(digest, style::FAINT),
        ]);
    }
    out.push_str(&format!("\n{}", given.render(canvas)));
    if !detail.not_given.is_empty() {
        let mut not = Table::new([Column::new("NOT GIVEN"), Column::new("WHY")]);
        for left in &detail.not_given {
            not.row([
                text::printable(&left.path).into(),
                Cell::styled(text::printable(&left.reason), style::FAINT),
            ]);
        }
        out.push_str(&format!("\n{}", not.render(canvas)));
    }
    out
}

async fn remove(args: SandboxRemoveArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let at = SandboxRef {
        run_id: args.run,
        agent_id: args.agent,
    };
    let remove = RemoveSandbox {
        workspace_id: workspace.workspace_id,
        at: at.clone(),
        force: args.force,
    };
    client.change(remove).await?;
    context.output.object(schemas::SANDBOX_REMOVE, &at)?;
    let SandboxRef { run_id, agent_id } = &at;
    context
        .output
        .data(format!("Removed the sandbox of {agent_id} in run {run_id}"))
}
