//! Paths that are rejected unless a user allows them (`BOX-2`), and validation of requested paths.

use goondan_protocol::secret_file::holds_secrets;
use goondan_trees::freeze::{EntryPolicy, Options, Reason};
use goondan_trees::limits::Limits;
use goondan_trees::{Excludes, RelativePath};

use crate::error::ProposalError;
use crate::limits::{SANDBOX_BYTES_MAX, SANDBOX_ENTRIES_MAX};

/// Paths omitted from sandboxes and proposals unless allowed by name. `.git` cannot be allowed.
const GUARDED: [&str; 4] = [".git", "node_modules/", "dist/", ".goondan*"];

/// Parses a path of a request.
pub(crate) fn path_of(text: &str) -> Result<RelativePath, ProposalError> {
    let trimmed = text.strip_prefix("./").unwrap_or(text);
    let trimmed = trimmed.strip_suffix('/').unwrap_or(trimmed);
    RelativePath::from_text(trimmed).map_err(|problem| {
        let is_git = |part: &str| part.eq_ignore_ascii_case(".git");
        let hint = if trimmed.split('/').any(is_git) {
            "omit it: `.git` is never copied, not even with `--allow`; a task with `--source project` \
             has a repository of its own"
        } else {
            "write its path relative to the project's directory, such as `src/main.rs`"
        };
        ProposalError::invalid(problem.to_string(), hint)
    })
}

/// The excludes: the guarded paths and `patterns`, except allowed paths.
pub(crate) fn excludes(
    patterns: &[String],
    allow: impl IntoIterator<Item = RelativePath>,
) -> Result<Excludes, ProposalError> {
    let guarded = GUARDED.iter().map(|pattern| (*pattern).to_owned());
    let all: Vec<String> = guarded.chain(patterns.iter().cloned()).collect();
    let excludes = Excludes::new(&all).map_err(|error| {
        ProposalError::invalid(error.to_string(), "write patterns as in `.gitignore`")
    })?;
    let excludes = excludes.rule(holds_secrets, "it looks like a file with secrets");
    Ok(excludes.except(allow))
}

/// Options for copying a sandbox's tree.
pub(crate) fn options(excludes: Excludes, special: EntryPolicy) -> Options {
    Options {
        excludes,
        outside_links: EntryPolicy::Refuse,
        special,
        limits: Limits::new(SANDBOX_ENTRIES_MAX, SANDBOX_BYTES_MAX),
    }
}

/// The reason that a path is omitted, for display.
pub(crate) fn in_words(reason: &Reason) -> String {
    match reason {
        Reason::Excluded(pattern) => format!("`{pattern}` excludes it"),
        Reason::Rule(what) => (*what).to_owned(),
        Reason::NotChosen => "it was not selected".to_owned(),
        Reason::Special => "it is not a file, directory or link".to_owned(),
        Reason::OutsideLink => "it is a link that leads out of the project".to_owned(),
        Reason::Unreadable => "the daemon's user has no right to read it".to_owned(),
        Reason::Sparse { .. } => "it is sparse, and longer than the limit".to_owned(),
    }
}

/// Rejects an explicitly requested path that is guarded and not allowed.
pub(crate) fn refuse_guarded(
    excludes: &Excludes,
    path: &RelativePath,
) -> Result<(), ProposalError> {
    let mut above = path.ancestors();
    above.push(path.clone());
    // The last component may be a directory or a file, so patterns for directories apply as well.
    for part in &above {
        if let Some(reason) = excludes.reason(part.as_bytes(), true) {
            return Err(ProposalError::invalid(
                format!("`{path}` is not copied: {}", in_words(&reason)),
                format!("to copy it anyway: `--allow {path}`"),
            ));
        }
    }
    Ok(())
}
