//! Texts about proposals for users.

use std::ops::Range;

use goondan_protocol::control::{ProposalRefusal, ProposedChange};
use goondan_trees::merge::ConflictReason;

/// Summary of a proposal without one from its worker.
pub(crate) fn made_summary(changed: &[ProposedChange]) -> String {
    let mut text = "# What changed\n\n".to_owned();
    for change in changed {
        let (status, path) = (change.status.as_str(), &change.path);
        text.push_str(&format!("- {status} `{path}`\n"));
    }
    text
}

/// The reason that a path cannot be merged: "ours" is the project, "theirs" the proposal.
pub(crate) fn contradiction(reason: &ConflictReason) -> String {
    let text = match reason {
        ConflictReason::Lines { ours } => {
            let lines: Vec<String> = ours.iter().map(lines_in_words).collect();
            return format!(
                "the project and the proposal both changed the same lines: in the project {}",
                lines.join(", ")
            );
        }
        ConflictReason::Binary => {
            "the project and the proposal both changed it, and its lines cannot be compared"
        }
        ConflictReason::AddedTwice => {
            "it is new in the project and in the proposal, with different content"
        }
        ConflictReason::DeletedByUs => "it was deleted in the project, and the proposal changes it",
        ConflictReason::DeletedByThem => {
            "it was changed in the project, and the proposal deletes it"
        }
        ConflictReason::Links => "the project and the proposal both changed the link's target",
        ConflictReason::Kinds => "its file type differs between the project and the proposal",
        ConflictReason::Modes => "the project and the proposal both changed its permission bits",
        ConflictReason::InTheWay { of } => {
            return format!("`{of}` is a directory on one side only");
        }
        ConflictReason::Twins { other } => {
            return format!("it differs from `{other}` only in case");
        }
    };
    text.to_owned()
}

fn lines_in_words(lines: &Range<usize>) -> String {
    match lines.len() {
        0 => format!("before line {}", lines.start + 1),
        1 => format!("line {}", lines.start + 1),
        _ => format!("lines {} to {}", lines.start + 1, lines.end),
    }
}

/// Detail of an event, with the agent that caused it.
pub(crate) fn with_agent(mut detail: String, by: Option<&str>) -> String {
    if let Some(by) = by {
        detail.push_str("; by ");
        detail.push_str(by);
    }
    detail
}

/// Result of a review in one line.
pub(crate) fn verdict(refusals: &[ProposalRefusal]) -> String {
    match refusals {
        [] => "it can be applied".to_owned(),
        [one] => format!("refused: {}", refusal_text(one)),
        [first, rest @ ..] => format!(
            "refused: {}, and {} more reasons",
            refusal_text(first),
            rest.len()
        ),
    }
}

fn refusal_text(refusal: &ProposalRefusal) -> String {
    match &refusal.path {
        Some(path) => format!("{path}: {}", refusal.reason),
        None => refusal.reason.clone(),
    }
}
