//! Formats an agent's own configuration and the results of its changesets for models.

use goondan_protocol::bundle::{BundleAskResult, BundleStatus, ChangesetInfo, ChangesetState};

use crate::tool_call::ToolOutcome;

/// Maximum number of changesets shown to the model.
const CHANGESETS_TOLD: usize = 10;

/// Formats an answer for the model.
pub(super) fn outcome_of(told: &BundleAskResult) -> ToolOutcome {
    let mut out = String::new();
    if let Some(changeset) = &told.changeset {
        out.push_str(&line_of(changeset));
    }
    if let Some(workdir) = &told.workdir {
        push(&mut out, &format!("working copy: {}", workdir.display()));
    }
    for file in &told.files {
        push(&mut out, &format!("- {file}"));
    }
    if let Some(diff) = &told.diff {
        let shown = if diff.is_empty() {
            "it changes nothing"
        } else {
            diff
        };
        push(&mut out, shown);
    }
    if let Some(status) = &told.status {
        push(&mut out, &text_of(status));
    }
    let is_rejected = |it: &ChangesetInfo| it.state == ChangesetState::Rejected;
    // Viewing the diff of a rejected changeset is not a failure.
    if told.diff.is_none() && told.changeset.as_ref().is_some_and(is_rejected) {
        ToolOutcome::error(format!("E_CHANGESET_REJECTED: {out}"))
    } else {
        ToolOutcome::ok(out)
    }
}

fn push(out: &mut String, line: &str) {
    if !out.is_empty() {
        out.push('\n');
    }
    out.push_str(line);
}

fn line_of(changeset: &ChangesetInfo) -> String {
    let id = &changeset.changeset_id;
    let mut line = format!("changeset {id}: {}", changeset.state.as_str());
    if !changeset.summary.is_empty() {
        line.push_str(&format!(" ({})", changeset.summary.join(", ")));
    }
    if let (ChangesetState::Committed, Some(revision)) = (changeset.state, &changeset.revision) {
        line.push_str(&format!("; revision {revision}, from your next step on"));
    }
    if !changeset.detail.is_empty() {
        line.push_str(&format!(": {}", changeset.detail));
    }
    line
}

fn text_of(status: &BundleStatus) -> String {
    let mut out = format!("active revision: {}", status.active);
    let is_project = status.active == status.base;
    if is_project {
        out.push_str(" (the project as a person wrote it)");
    }
    if status.head != status.active {
        push(
            &mut out,
            &format!("from your next step on: {}", status.head),
        );
    }
    if let Some(probation) = &status.probation {
        let (turns, failures) = (probation.turns, probation.failures);
        push(
            &mut out,
            &format!("on probation: {turns} turns completed, {failures} failures"),
        );
    }
    for file in &status.files {
        push(&mut out, &format!("yours: {}", file.path));
    }
    for file in &status.conflicts {
        push(
            &mut out,
            &format!("a person also changed {file}, and that version is used"),
        );
    }
    if let Some(problem) = &status.problem {
        push(&mut out, problem);
    }
    for changeset in status.changesets.iter().take(CHANGESETS_TOLD) {
        push(&mut out, &line_of(changeset));
    }
    out
}
