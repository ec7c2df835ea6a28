//! `gdn proposal …`: review and apply the changes that workers submit.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, Subcommand};
use goondan_protocol::control::{
    ApplyProposal, CommentProposal, CreateProposal, DiffProposal, ListProposals, MergeProposal,
    ProposalApplied, ProposalDetail, ProposalInfo, ProposalRefusal, ProposalState, RejectProposal,
    RevertProposal, ReviewProposal, SandboxRef, ShowProposal, UncommentProposal,
};
use goondan_protocol::ids::{EventId, RunId, WorkerId, WorkspaceId};
use goondan_protocol::time::Timestamp;
use serde_json::json;

use super::confirm::confirm;
use super::sandbox::SandboxCommand;
use super::{names, sandbox};
use crate::client::Client;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::style;
use crate::output::table::{Canvas, Cell, Column, Table};
use crate::output::text;
use crate::schemas;

mod patch;
mod review;

/// Create, review, apply and revert workers' changes
#[derive(Debug, Subcommand)]
pub(crate) enum ProposalCommand {
    /// Create a proposal from a worker's changes in its sandbox
    #[command(after_help = "\
Examples:
  gdn proposal create r1 coder
  gdn proposal create r1 coder --notes 'parser rewritten' --summary \"$(cat SUMMARY.md)\"

Without `--summary` and `--test-log`, uses `summary.md` and `test.log` from the worker's `proposal`
directory. Replaces an earlier proposal that was not applied.")]
    Create(ProposalCreateArgs),
    /// List proposals
    #[command(after_help = "\
Examples:
  gdn proposal list
  gdn proposal list --json | jq -r '.proposals[] | select(.state == \"open\") | .agentId'")]
    List(ProposalListArgs),
    /// Show a proposal for review: author, changes and test results
    #[command(after_help = "\
Examples:
  gdn proposal show r1 coder
  GDN_PAGER= gdn proposal show r1 coder        without a pager")]
    Show(ProposalAtArgs),
    /// Print the patch in git format
    #[command(after_help = "\
Examples:
  gdn proposal diff r1 coder | git apply --check
  gdn proposal diff r1 coder > changes.patch")]
    Diff(ProposalAtArgs),
    /// Check if a proposal can be applied, and why not
    #[command(after_help = "\
Examples:
  gdn proposal check r1 coder
  gdn proposal check r1 coder --json | jq '.refusals[]'

Exits with 10 if the proposal cannot be applied.")]
    Check(ProposalAtArgs),
    /// Apply a proposal atomically
    #[command(after_help = "\
Examples:
  gdn proposal apply r1 coder
  gdn proposal apply r1 coder --yes

Shows the proposal and asks, unless you use `--yes`. Your own edits are never overwritten:
in that case, the proposal is refused with all reasons.")]
    Apply(ProposalApplyArgs),
    /// Merge a stale proposal with the current files into a new proposal
    #[command(after_help = "\
Examples:
  gdn proposal merge r1 coder
  gdn proposal merge r1 coder --into coder-2
  gdn proposal merge r1 coder --json | jq -r '.conflicts[].path'

Merges your changed lines with the worker's. Review and apply the new proposal like any other; the old
one stays unchanged. On conflicts, prints every conflicting file, creates nothing, and exits with 10.")]
    Merge(ProposalMergeArgs),
    /// Comment on a file of a proposal, or on one of its lines
    #[command(after_help = "\
Examples:
  gdn proposal comment fix-the-login coder src/login.ts:12 'Use the constant.'
  gdn proposal comment fix-the-login coder src/login.ts:8 'Why is this gone?' --old
  gdn proposal comment fix-the-login coder docs/api.md 'Add an example.'

The agent of a task receives all open comments with the next `gdn task rework`.")]
    Comment(ProposalCommentArgs),
    /// List the comments on a proposal and on earlier ones in its sandbox
    #[command(after_help = "\
Examples:
  gdn proposal comments fix-the-login coder
  gdn proposal comments fix-the-login coder --json | jq '.comments[] | select(.state == \"open\")'")]
    Comments(ProposalAtArgs),
    /// Remove a comment that was not sent to the agent
    #[command(after_help = "\
Examples:
  gdn proposal uncomment fix-the-login coder 2")]
    Uncomment(ProposalUncommentArgs),
    /// Reject a proposal
    #[command(after_help = "\
Examples:
  gdn proposal reject r1 coder --reason 'keep the old API'")]
    Reject(ProposalRejectArgs),
    /// Revert an applied proposal atomically
    #[command(after_help = "\
Examples:
  gdn proposal revert r1 coder --yes

Refused if a file has changed since.")]
    Revert(ProposalRevertArgs),
    #[command(subcommand)]
    Sandbox(SandboxCommand),
}

/// Selects one proposal.
#[derive(Debug, Args)]
pub(crate) struct ProposalAtArgs {
    /// The run
    #[arg(value_name = "RUN")]
    run: RunId,
    /// The worker
    #[arg(value_name = "AGENT")]
    agent: WorkerId,
}

#[derive(Debug, Args)]
pub(crate) struct ProposalCreateArgs {
    #[command(flatten)]
    at: ProposalAtArgs,
    /// Author and reason, in a line or two
    #[arg(long, value_name = "TEXT", default_value = "")]
    notes: String,
    /// Description of the changes and their reason, as Markdown
    #[arg(long, value_name = "TEXT")]
    summary: Option<String>,
    /// Test results
    #[arg(long, value_name = "TEXT")]
    test_log: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ProposalListArgs {
    /// Only proposals of this run
    #[arg(long, value_name = "RUN")]
    run: Option<RunId>,
}

#[derive(Debug, Args)]
pub(crate) struct ProposalApplyArgs {
    #[command(flatten)]
    at: ProposalAtArgs,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
    /// Apply even if the git head or unchanged input files have changed
    #[arg(long)]
    allow_moved_base: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ProposalMergeArgs {
    #[command(flatten)]
    at: ProposalAtArgs,
    /// Worker of the new proposal [default: AGENT-merged]
    #[arg(long, value_name = "NAME")]
    into: Option<WorkerId>,
}

#[derive(Debug, Args)]
pub(crate) struct ProposalCommentArgs {
    #[command(flatten)]
    at: ProposalAtArgs,
    /// File, and line after the change
    #[arg(value_name = "PATH[:LINE]")]
    place: String,
    /// The comment
    #[arg(value_name = "TEXT")]
    text: String,
    /// The line is one from before the change
    #[arg(long)]
    old: bool,
    /// Id of the comment: a known id is not added again
    #[arg(long, value_name = "ID")]
    comment_id: Option<EventId>,
}

#[derive(Debug, Args)]
pub(crate) struct ProposalUncommentArgs {
    #[command(flatten)]
    at: ProposalAtArgs,
    /// Number of the comment
    #[arg(value_name = "NUMBER")]
    number: u32,
}

#[derive(Debug, Args)]
pub(crate) struct ProposalRejectArgs {
    #[command(flatten)]
    at: ProposalAtArgs,
    /// Reason for the author
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
}

#[derive(Debug, Args)]
pub(crate) struct ProposalRevertArgs {
    #[command(flatten)]
    at: ProposalAtArgs,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
}

impl ProposalAtArgs {
    fn named(self) -> SandboxRef {
        SandboxRef {
            run_id: self.run,
            agent_id: self.agent,
        }
    }
}

pub(crate) async fn run(command: ProposalCommand, context: &Context) -> Result<(), Failure> {
    match command {
        ProposalCommand::Create(args) => create(args, context).await,
        ProposalCommand::List(args) => list(args, context).await,
        ProposalCommand::Show(args) => show(args, context).await,
        ProposalCommand::Diff(args) => diff(args, context).await,
        ProposalCommand::Check(args) => check(args, context).await,
        ProposalCommand::Apply(args) => apply(args, context).await,
        ProposalCommand::Merge(args) => merge(args, context).await,
        ProposalCommand::Comment(args) => comment(args, context).await,
        ProposalCommand::Comments(args) => comments(args, context).await,
        ProposalCommand::Uncomment(args) => uncomment(args, context).await,
        ProposalCommand::Reject(args) => reject(args, context).await,
        ProposalCommand::Revert(args) => revert(args, context).await,
        ProposalCommand::Sandbox(args) => sandbox::run(args, context).await,
    }
}

async fn create(args: ProposalCreateArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let create = CreateProposal {
        workspace_id: workspace.workspace_id,
        at: args.at.named(),
        notes: args.notes,
        summary: args.summary,
        test_log: args.test_log,
    };
    let detail = client.change(create).await?;
    let output = context.output;
    output.object(schemas::PROPOSAL_CREATE, &detail)?;
    output.data(review::files_of(&detail, output.out))?;
    let SandboxRef { run_id, agent_id } = &detail.info.at;
    let show = context.command(&format!("proposal show {run_id} {agent_id}"));
    output.note(format!("Review it: {show}"));
    Ok(())
}

async fn list(args: ProposalListArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let list = ListProposals {
        workspace_id: workspace.workspace_id.clone(),
        run_id: args.run.clone(),
        after: None,
        limit: None,
    };
    let mut proposals = client.all(list).await?;
    if proposals.is_empty() {
        names::check_run(args.run.as_ref(), &mut client, &workspace.workspace_id).await?;
    }
    proposals.sort_by(|one, other| (one.created_at, &one.at).cmp(&(other.created_at, &other.at)));
    let output = context.output;
    output.object(schemas::PROPOSAL_LIST, &json!({ "proposals": proposals }))?;
    if proposals.is_empty() {
        return output.data("No proposals.");
    }
    output.data(table_of(&proposals, text::now()).render(output.canvas()))
}

fn table_of(proposals: &[ProposalInfo], now: Timestamp) -> Table {
    let mut table = Table::new([
        Column::new("RUN").cut(),
        Column::new("AGENT").cut(),
        Column::new("STATE"),
        Column::new("FILES").below(2, "files"),
        Column::new("CREATED").below(1, "created"),
        Column::new("NOTES").below(3, ""),
    ]);
    for info in proposals {
        if let Some(problem) = &info.problem {
            table.row([
                Cell::from(&info.at.run_id),
                Cell::from(&info.at.agent_id),
                Cell::styled("damaged", style::BAD),
                "".into(),
                format!("{} ago", text::age(info.created_at, now)).into(),
                text::one_line(problem).into(),
            ]);
            continue;
        }
        table.row([
            Cell::from(&info.at.run_id),
            Cell::from(&info.at.agent_id),
            Cell::styled(info.state.as_str(), review::style_of(info.state)),
            info.changed_files.to_string().into(),
            format!("{} ago", text::age(info.created_at, now)).into(),
            text::one_line(&info.notes).into(),
        ]);
    }
    table
}

/// Reads a proposal with its complete patch.
pub(super) async fn read(
    client: &mut Client,
    workspace_id: &WorkspaceId,
    at: &SandboxRef,
) -> Result<(ProposalDetail, Vec<u8>), Failure> {
    let show = ShowProposal {
        workspace_id: workspace_id.clone(),
        at: at.clone(),
    };
    let detail = client.query(show).await?;
    let mut patch = Vec::new();
    let mut offset = Some(0);
    while let Some(from) = offset {
        let diff = DiffProposal {
            workspace_id: workspace_id.clone(),
            at: at.clone(),
            offset: from,
        };
        let part = client.query(diff).await?;
        let bytes = STANDARD.decode(&part.data).map_err(|error| {
            let hint = "this is a bug in goondan; for details: `gdn logs --all`";
            Failure::new(
                Exit::Internal,
                format!("the patch is not valid base64: {error}"),
                hint,
            )
        })?;
        patch.extend(bytes);
        offset = part.next.filter(|next| *next > from);
    }
    Ok((detail, patch))
}

async fn show(args: ProposalAtArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let (detail, patch) = read(&mut client, &workspace.workspace_id, &args.named()).await?;
    let output = context.output;
    output.object(schemas::PROPOSAL_SHOW, &detail)?;
    output.paged(&review::review_of(&detail, &patch, output.canvas()))?;
    if detail.info.state == ProposalState::Open && detail.delivered_as.is_none() {
        let SandboxRef { run_id, agent_id } = &detail.info.at;
        if detail.repository.is_some() {
            let approve = context.command(&format!("task approve {run_id}"));
            output.note(format!("\nApprove its task: {approve}"));
            return Ok(());
        }
        let apply = context.command(&format!("proposal apply {run_id} {agent_id}"));
        let reject = context.command(&format!("proposal reject {run_id} {agent_id}"));
        output.note(format!("\nApply it:   {apply}\nReject it:  {reject}"));
    }
    Ok(())
}

/// A proposal for review.
pub(super) fn shown(detail: &ProposalDetail, patch: &[u8], canvas: Canvas) -> String {
    review::review_of(detail, patch, canvas)
}

async fn diff(args: ProposalAtArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let (detail, patch) = read(&mut client, &workspace.workspace_id, &args.named()).await?;
    let output = context.output;
    if output.is_json() {
        let mut object = json!({ "digest": detail.info.digest, "patch": STANDARD.encode(&patch) });
        if let Some(fields) = object
            .as_object_mut()
            .filter(|_| !detail.comments.is_empty())
        {
            fields.insert("comments".to_owned(), json!(detail.comments));
        }
        return output.object(schemas::PROPOSAL_DIFF, &object);
    }
    output.bytes(&patch)?;
    // The patch itself must stay applicable.
    if !detail.comments.is_empty() {
        let comments = review::comments_of(&detail, output.err);
        output.note(format!("\nComments:\n{comments}"));
    }
    Ok(())
}

async fn check(args: ProposalAtArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let review = ReviewProposal {
        workspace_id: workspace.workspace_id,
        at: args.named(),
    };
    let found = client.change(review).await?;
    let output = context.output;
    output.object(schemas::PROPOSAL_CHECK, &found)?;
    if found.can_apply {
        return output.data("The proposal can be applied.");
    }
    output.data(review::refusals_of(&found.refusals, output.canvas()))?;
    let SandboxRef { run_id, agent_id } = &found.proposal.at;
    let hint = if found.refusals.iter().all(ProposalRefusal::is_overridable) {
        let apply = format!("proposal apply {run_id} {agent_id} --allow-moved-base");
        format!("to apply it anyway: `{}`", context.command(&apply))
    } else if found.refusals.iter().all(ProposalRefusal::is_stale) {
        let merge = format!("proposal merge {run_id} {agent_id}");
        format!(
            "merge it with the current files into a new proposal: `{}`",
            context.command(&merge)
        )
    } else {
        format!(
            "prepare a new sandbox with the current files: `{}`",
            context.command("proposal sandbox prepare --run RUN --agent AGENT FILE")
        )
    };
    Err(Failure::new(
        Exit::Conflict,
        "the proposal cannot be applied",
        hint,
    ))
}

async fn apply(args: ProposalApplyArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let workspace_id = workspace.workspace_id;
    let at = args.at.named();
    let SandboxRef { run_id, agent_id } = &at;
    let mut digest = None;
    if !args.yes {
        let show = ShowProposal {
            workspace_id: workspace_id.clone(),
            at: at.clone(),
        };
        let detail = client.query(show).await?;
        context
            .output
            .note(review::files_of(&detail, context.output.err));
        let question = format!(
            "Apply {} of {agent_id} to {}?",
            text::count(detail.info.changed_files as u64, "change"),
            workspace.project_root.display()
        );
        let moved = if args.allow_moved_base {
            " --allow-moved-base"
        } else {
            ""
        };
        let command = format!("proposal apply {run_id} {agent_id}{moved} --yes");
        confirm(context, &question, &command)?;
        // Apply exactly the proposal that was shown.
        digest = Some(detail.info.digest);
    }
    let apply = ApplyProposal {
        workspace_id,
        at: at.clone(),
        digest,
        allow_moved_base: args.allow_moved_base,
    };
    let applied = client.change(apply).await?;
    print_applied(&applied, schemas::PROPOSAL_APPLY, "Applied", context)?;
    let revert = context.command(&format!("proposal revert {run_id} {agent_id}"));
    context.output.note(format!("To revert it: {revert}"));
    Ok(())
}

fn print_applied(
    applied: &ProposalApplied,
    schema: &str,
    done: &str,
    context: &Context,
) -> Result<(), Failure> {
    let output = context.output;
    output.object(schema, applied)?;
    let count = text::count(applied.files.len() as u64, "file");
    let mut lines = format!("{done} {count}\n");
    for path in &applied.files {
        lines.push_str(&format!("  {}\n", text::printable(path)));
    }
    for aside in &applied.kept {
        let line = format!(
            "  the content written to {} in the meantime is in {}",
            text::printable(&aside.path),
            aside.at.display()
        );
        lines.push_str(&format!("{}\n", output.out.paint(style::WARN, &line)));
    }
    output.data(lines)
}

async fn merge(args: ProposalMergeArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let at = args.at.named();
    let merge = MergeProposal {
        workspace_id: workspace.workspace_id,
        at: at.clone(),
        into: args.into,
    };
    let merged = client.change(merge).await?;
    let output = context.output;
    output.object(schemas::PROPOSAL_MERGE, &merged)?;
    let Some(detail) = merged.proposal else {
        output.data(review::refusals_of(&merged.conflicts, output.canvas()))?;
        let SandboxRef { run_id, agent_id } = &at;
        let hint = format!(
            "resolve the conflicts by hand, from the patch: `{}`; or prepare a new sandbox with the current files: `{}`",
            context.command(&format!("proposal diff {run_id} {agent_id}")),
            context.command("proposal sandbox prepare --run RUN --agent AGENT FILE")
        );
        let count = text::count(merged.conflicts.len() as u64, "file");
        return Err(Failure::new(
            Exit::Conflict,
            format!("the proposal cannot be merged: {count} in conflict; nothing was created"),
            hint,
        ));
    };
    let SandboxRef { run_id, agent_id } = &detail.info.at;
    output.data(format!(
        "Merged into a new proposal, of {agent_id} in run {run_id}\n{}{}",
        review::files_of(&detail, output.out),
        review::lines_of_both(&detail, output.out)
    ))?;
    let show = context.command(&format!("proposal show {run_id} {agent_id}"));
    let apply = context.command(&format!("proposal apply {run_id} {agent_id}"));
    let reject = context.command(&format!("proposal reject {} {}", at.run_id, at.agent_id));
    output.note(format!(
        "Review it:           {show}\nApply it:            {apply}\nReject the old one:  {reject}"
    ));
    Ok(())
}

/// Splits `PATH:LINE`; without a line, the whole text is the path.
fn path_and_line(place: &str) -> (&str, Option<u32>) {
    let split = place.rsplit_once(':').filter(|(path, _)| !path.is_empty());
    match split.and_then(|(path, line)| Some((path, line.parse().ok()?))) {
        Some((path, line)) => (path, Some(line)),
        None => (place, None),
    }
}

async fn comment(args: ProposalCommentArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let (path, line) = path_and_line(&args.place);
    let at = args.at.named();
    let comment = CommentProposal {
        workspace_id: workspace.workspace_id,
        at: at.clone(),
        path: path.to_owned(),
        line,
        old: args.old,
        text: args.text,
        digest: None,
        comment_id: args.comment_id,
    };
    let made = client.change(comment).await?;
    let output = context.output;
    output.object(schemas::PROPOSAL_COMMENT, &made)?;
    output.data(review::comment_lines(&made, output.out))?;
    let SandboxRef { run_id, agent_id } = &at;
    let remove = format!("proposal uncomment {run_id} {agent_id} {}", made.number);
    output.note(format!("To remove it: {}", context.command(&remove)));
    Ok(())
}

async fn comments(args: ProposalAtArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let show = ShowProposal {
        workspace_id: workspace.workspace_id,
        at: args.named(),
    };
    let detail = client.query(show).await?;
    let output = context.output;
    output.object(
        schemas::PROPOSAL_COMMENTS,
        &json!({ "digest": detail.info.digest, "comments": detail.comments }),
    )?;
    if detail.comments.is_empty() {
        return output.data("No comments.");
    }
    output.data(review::comments_of(&detail, output.out))
}

async fn uncomment(args: ProposalUncommentArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let number = args.number;
    let uncomment = UncommentProposal {
        workspace_id: workspace.workspace_id,
        at: args.at.named(),
        number,
    };
    client.change(uncomment).await?;
    let output = context.output;
    output.object(schemas::PROPOSAL_UNCOMMENT, &json!({ "number": number }))?;
    output.data(format!("Removed comment {number}"))
}

async fn reject(args: ProposalRejectArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let reject = RejectProposal {
        workspace_id: workspace.workspace_id,
        at: args.at.named(),
        reason: args.reason,
    };
    let info = client.change(reject).await?;
    context.output.object(schemas::PROPOSAL_REJECT, &info)?;
    let SandboxRef { run_id, agent_id } = &info.at;
    context.output.data(format!(
        "Rejected the proposal of {agent_id} in run {run_id}"
    ))
}

async fn revert(args: ProposalRevertArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let at = args.at.named();
    if !args.yes {
        let SandboxRef { run_id, agent_id } = &at;
        let root = workspace.project_root.display();
        let question = format!("Revert the changes of {agent_id} in {root}?");
        confirm(
            context,
            &question,
            &format!("proposal revert {run_id} {agent_id} --yes"),
        )?;
    }
    let revert = RevertProposal {
        workspace_id: workspace.workspace_id,
        at,
    };
    let reverted = client.change(revert).await?;
    print_applied(&reverted, schemas::PROPOSAL_REVERT, "Reverted", context)
}

#[cfg(test)]
mod tests {
    use super::path_and_line;

    #[test]
    fn place_of_a_comment_is_a_path_and_perhaps_a_line() {
        assert_eq!(path_and_line("src/a.rs:12"), ("src/a.rs", Some(12)));
        assert_eq!(path_and_line("src/a.rs"), ("src/a.rs", None));
        assert_eq!(path_and_line("a:b"), ("a:b", None));
        assert_eq!(path_and_line("a:1:2"), ("a:1", Some(2)));
        assert_eq!(path_and_line(":12"), (":12", None));
    }
}
