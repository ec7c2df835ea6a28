//! Readable form of a change: a patch for `git apply`, and a summary line for each file.

use goondan_trees::RelativePath;
use goondan_trees::diff::file_patch;

use crate::limits::{DIFF_BYTES_MAX, SUMMARY_FILES_MAX};
use crate::tree::{Tree, changed_paths};

/// Returns the patch of all changed files, truncated at [`DIFF_BYTES_MAX`].
pub(crate) fn diff(before: &Tree, after: &Tree) -> String {
    let mut out = String::new();
    for path in changed_paths(before, after) {
        let text = |tree: &Tree| tree.get(&path).cloned().flatten();
        let (was, is) = (text(before), text(after));
        let bytes = |text: &'_ Option<String>| text.as_ref().map(|text| text.as_bytes().to_vec());
        let patch = RelativePath::new(path.as_bytes()).ok().and_then(|name| {
            let (was, is) = (bytes(&was), bytes(&is));
            file_patch(&name, was.as_deref(), is.as_deref()).ok()
        });
        match patch {
            Some(patch) => out.push_str(&String::from_utf8_lossy(&patch)),
            None => out.push_str(&format!("{path}: content not shown\n")),
        }
        if out.len() > DIFF_BYTES_MAX {
            let cut = out.floor_char_boundary(DIFF_BYTES_MAX);
            out.truncate(cut);
            out.push_str("\n(the rest is left out)\n");
            break;
        }
    }
    out
}

/// Returns the diff of a text from its first hunk on; empty if equal. Truncated at
/// [`DIFF_BYTES_MAX`].
#[must_use]
pub fn text_diff(name: &str, before: &str, after: &str) -> String {
    let tree = |text: &str| Tree::from([(name.to_owned(), Some(text.to_owned()))]);
    let patch = diff(&tree(before), &tree(after));
    let hunks = patch.find("@@").and_then(|at| patch.get(at..));
    hunks.unwrap_or_default().to_owned()
}

/// Returns a line for each changed file, for the first [`SUMMARY_FILES_MAX`] files.
pub(crate) fn summary(before: &Tree, after: &Tree) -> Vec<String> {
    let line = |path: String| {
        let what = match (before.contains_key(&path), after.contains_key(&path)) {
            (false, _) => "added",
            (_, false) => "removed",
            _ => "changed",
        };
        format!("{path} {what}")
    };
    let changed = changed_paths(before, after);
    let more = changed.len().saturating_sub(SUMMARY_FILES_MAX);
    let mut lines: Vec<String> = changed
        .into_iter()
        .take(SUMMARY_FILES_MAX)
        .map(line)
        .collect();
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines
}
