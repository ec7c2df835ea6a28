//! `gdn conversation bundle rehearse`: replays the latest turns with a changeset or revision before it is activated.

use std::collections::BTreeSet;

use clap::Args;
use goondan_protocol::control::RehearseBundle;
use goondan_protocol::ids::{InstanceKey, RehearsalSubject, ToolName};
use goondan_protocol::rehearsal::{
    DEFAULT_REHEARSAL_TURNS, Rehearsal, RehearsalFinding, RehearsedTurn, RequestPart,
    ToolDifferences,
};

use super::{command_for, command_of};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::style;
use crate::output::table::{Cell, Column, Table};
use crate::output::text;
use crate::schemas;

#[derive(Debug, Args)]
pub(crate) struct BundleRehearseArgs {
    /// The changeset or the revision
    #[arg(value_name = "CHANGE")]
    subject: RehearsalSubject,
    /// Number of latest turns to replay
    #[arg(long, value_name = "COUNT", default_value_t = DEFAULT_REHEARSAL_TURNS,
        value_parser = clap::value_parser!(u32).range(1..))]
    turns: u32,
    /// The conversation [default: the swarm's `instanceKey`, or `main`]
    #[arg(long, value_name = "KEY")]
    key: Option<InstanceKey>,
}

pub(super) async fn rehearse(args: BundleRehearseArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let key = workspace.conversation(args.key);
    let rehearse = RehearseBundle {
        instance_key: key.clone(),
        workspace_id: workspace.workspace_id,
        subject: args.subject.clone(),
        turns: Some(args.turns),
    };
    // `change` has no short timeout: modules may have to start.
    let rehearsal = client.change(rehearse).await?;
    print(&rehearsal, context)?;
    verdict(&rehearsal, &args.subject, &key, context)
}

fn print(rehearsal: &Rehearsal, context: &Context) -> Result<(), Failure> {
    let output = context.output;
    output.object(schemas::BUNDLE_REHEARSE, rehearsal)?;
    let mut page = summary(rehearsal).render(output.canvas());
    for problem in rehearsal.problems.iter().filter(|it| it.contains('\n')) {
        page.push_str(&format!("\n{}\n", text::printable(problem)));
    }
    if !rehearsal.prompt.is_empty() {
        page.push_str(&format!("\n{}", text::printable(&rehearsal.prompt)));
    }
    if !rehearsal.turns.is_empty() {
        let turns = turns_of(&rehearsal.turns).render(output.canvas());
        page.push_str(&format!("\n{turns}"));
    }
    let found = rehearsal.turns.iter();
    let found = found.flat_map(|turn| turn.findings.iter().map(move |finding| (turn, finding)));
    let found: Vec<_> = found.collect();
    if !found.is_empty() {
        let findings = findings_of(&found).render(output.canvas());
        page.push_str(&format!("\n{findings}"));
    }
    output.paged(page.trim_end())
}

/// Differences that do not depend on a turn.
fn summary(rehearsal: &Rehearsal) -> Table {
    let mut table = Table::of_fields();
    if let Some(id) = &rehearsal.changeset_id {
        table.field("Changeset", Cell::from(id));
    }
    let revision = rehearsal.revision.as_ref();
    table.field(
        "Revision",
        revision.map_or_else(|| "not committed yet".to_owned(), ToString::to_string),
    );
    table.field("Compared with", rehearsal.against.to_string());
    for problem in &rehearsal.problems {
        table.field("Problem", Cell::styled(text::one_line(problem), style::BAD));
    }
    if let Some(model) = &rehearsal.model {
        let became = format!("{} instead of {}", model.after, model.before);
        table.field("Model", text::printable(&became));
    }
    for (title, names) in tools_of(&rehearsal.tools) {
        let names: Vec<&str> = names.iter().map(ToolName::as_str).collect();
        if !names.is_empty() {
            table.field(title, names.join(", "));
        }
    }
    let is_same = rehearsal.problems.is_empty()
        && rehearsal.model.is_none()
        && rehearsal.prompt.is_empty()
        && rehearsal.tools.is_none();
    if is_same {
        table.field("Differs", "in neither prompt, model nor tools".to_owned());
    }
    if rehearsal.turns.is_empty() && rehearsal.problems.is_empty() {
        table.field("Turns", "not recorded".to_owned());
    }
    for note in &rehearsal.notes {
        table.field("Note", Cell::styled(text::one_line(note), style::FAINT));
    }
    table
}

fn tools_of(tools: &ToolDifferences) -> [(&'static str, &[ToolName]); 3] {
    [
        ("New tools", &tools.added),
        ("Removed tools", &tools.removed),
        ("Changed tools", &tools.changed),
    ]
}

fn turns_of(turns: &[RehearsedTurn]) -> Table {
    let mut table = Table::new([
        Column::new("TURN"),
        Column::new("STEPS"),
        Column::new("RESULT"),
        Column::new("DIFFERS").below(1, "differs"),
        Column::new("INPUT").below(2, ""),
    ]);
    for turn in turns {
        let (result, style) = match turn {
            turn if turn.breaks() => ("breaks", style::BAD),
            turn if turn.stopped.is_some() => ("incomplete", style::WARN),
            turn if !turn.findings.is_empty() => ("differs", style::WARN),
            _ => ("as recorded", style::GOOD),
        };
        table.row([
            Cell::from(&turn.turn_id),
            turn.steps.len().to_string().into(),
            Cell::styled(result, style),
            parts_of(turn).into(),
            text::one_line(turn.stopped.as_deref().unwrap_or(&turn.input)).into(),
        ]);
    }
    table
}

/// Parts of the turn's requests that differ, without duplicates.
fn parts_of(turn: &RehearsedTurn) -> String {
    let parts: BTreeSet<RequestPart> = turn
        .steps
        .iter()
        .flat_map(|step| step.differs.iter().copied())
        .collect();
    let words: Vec<&str> = parts.into_iter().map(RequestPart::as_str).collect();
    words.join(", ")
}

fn findings_of(found: &[(&RehearsedTurn, &RehearsalFinding)]) -> Table {
    let mut table = Table::new([
        Column::new("TURN"),
        Column::new("STEP"),
        Column::new("FINDING"),
        Column::new("TOOL").below(1, ""),
        Column::new("DETAIL").below(2, ""),
    ]);
    for (turn, finding) in found {
        let style = if finding.breaks {
            style::BAD
        } else {
            style::WARN
        };
        let tool = finding.tool_name.as_deref().unwrap_or_default();
        table.row([
            Cell::from(&turn.turn_id),
            finding.step.to_string().into(),
            Cell::styled(finding.what.as_str(), style),
            text::one_line(tool).into(),
            text::one_line(&finding.detail).into(),
        ]);
    }
    table
}

/// Fails with exit code 16 if something would not work.
fn verdict(
    rehearsal: &Rehearsal,
    subject: &RehearsalSubject,
    key: &InstanceKey,
    context: &Context,
) -> Result<(), Failure> {
    if !rehearsal.breaks {
        return Ok(());
    }
    let broken = rehearsal.turns.iter().filter(|turn| turn.breaks()).count();
    let message = match rehearsal.problems.first() {
        Some(problem) => {
            let problem = text::one_line(problem);
            format!("`{subject}` could not become active: {problem}")
        }
        None => {
            let count = u64::try_from(broken).unwrap_or(u64::MAX);
            let turns = text::count(count, "recorded turn");
            format!("{turns} would break with `{subject}`")
        }
    };
    let hint = match &rehearsal.changeset_id {
        Some(id) => format!(
            "reject it: {}",
            command_for(&format!("reject {id} --reason 'TEXT'"), key, context)
        ),
        None => format!("list the others: {}", command_of("status", key, context)),
    };
    Err(Failure::new(Exit::Degraded, message, hint))
}
