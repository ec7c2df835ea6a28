//! What is written for people beside a proposal.

use goondan_protocol::control::{ProposedChange, Refusal};

/// A summary for a proposal whose worker wrote none.
pub(crate) fn made_summary(changed: &[ProposedChange]) -> String {
    let mut text = "# What changed\n\n".to_owned();
    for change in changed {
        let (status, path) = (change.status.as_str(), &change.path);
        text.push_str(&format!("- {status} `{path}`\n"));
    }
    text
}

/// What a review found, in a line.
pub(crate) fn verdict(refusals: &[Refusal]) -> String {
    match refusals {
        [] => "it can be applied".to_owned(),
        [one] => format!("refused: {}", told(one)),
        [first, rest @ ..] => format!("refused: {}, and {} more reasons", told(first), rest.len()),
    }
}

fn told(refusal: &Refusal) -> String {
    match &refusal.path {
        Some(path) => format!("{path}: {}", refusal.reason),
        None => refusal.reason.clone(),
    }
}
