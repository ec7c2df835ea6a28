//! Differences between two texts as a unified diff.

use imara_diff::{Algorithm, Diff, InternedInput};

/// Number of context lines around a change.
const CONTEXT_LINES: u32 = 3;

/// Unified diff of a file's old and new text; empty if they are equal.
pub(crate) fn unified(path: &str, before: &str, after: &str) -> String {
    let input = InternedInput::new(before, after);
    let mut diff = Diff::compute(Algorithm::Histogram, &input);
    diff.postprocess_lines(&input);
    // Merge hunks that are close to each other.
    let mut parts: Vec<HunkPart> = Vec::new();
    for hunk in diff.hunks() {
        match parts.last_mut() {
            Some(last) if hunk.before.start <= last.before.end + 2 * CONTEXT_LINES => {
                last.before.end = hunk.before.end;
                last.after.end = hunk.after.end;
            }
            Some(_) | None => parts.push(HunkPart {
                before: hunk.before,
                after: hunk.after,
            }),
        }
    }
    if parts.is_empty() {
        return String::new();
    }
    let lines = |text: &str| -> Vec<String> {
        let lines = text.split_inclusive('\n');
        lines.map(str::to_owned).collect()
    };
    let (old, new) = (lines(before), lines(after));
    let mut out = format!("--- a/{path}\n+++ b/{path}\n");
    for part in parts {
        part.write(&old, &new, &diff, &mut out);
    }
    out
}

struct HunkPart {
    before: std::ops::Range<u32>,
    after: std::ops::Range<u32>,
}

impl HunkPart {
    fn write(&self, old: &[String], new: &[String], diff: &Diff, out: &mut String) {
        let len = |lines: &[String]| u32::try_from(lines.len()).unwrap_or(u32::MAX);
        let lead = CONTEXT_LINES.min(self.before.start);
        let tail = CONTEXT_LINES.min(len(old).saturating_sub(self.before.end));
        let (from, to) = (self.before.start - lead, self.before.end + tail);
        let (new_from, new_to) = (self.after.start - lead, self.after.end + tail);
        // An empty range is named by the line before it.
        let at = |from: u32, to: u32| if from == to { from } else { from + 1 };
        out.push_str(&format!(
            "@@ -{},{} +{},{} @@\n",
            at(from, to),
            to - from,
            at(new_from, new_to),
            new_to - new_from
        ));
        let mut line = |mark: char, lines: &[String], number: u32| {
            let text = usize::try_from(number).ok().and_then(|at| lines.get(at));
            let text = text.map_or("", String::as_str);
            out.push(mark);
            out.push_str(text);
            if !text.ends_with('\n') {
                out.push_str("\n\\ No newline at end of file\n");
            }
        };
        let (mut before, mut after) = (from, new_from);
        while before < to || after < new_to {
            if before < to && diff.is_removed(before) {
                line('-', old, before);
                before += 1;
            } else if after < new_to && diff.is_added(after) {
                line('+', new, after);
                after += 1;
            } else {
                line(' ', old, before);
                before += 1;
                after += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diff_hunks_have_context_and_distant_changes_are_separate() {
        let before: String = (1..=20).map(|n| format!("{n}\n")).collect();
        let after = before.replace("2\n3\n", "2\nthree\n").replace("19\n", "");
        let expected = "--- a/x.yaml\n+++ b/x.yaml\n@@ -1,6 +1,6 @@\n 1\n 2\n-3\n+three\n 4\n 5\n 6\n\
                        @@ -16,5 +16,4 @@\n 16\n 17\n 18\n-19\n 20\n";
        assert_eq!(unified("x.yaml", &before, &after), expected);
        assert_eq!(unified("x.yaml", &before, &before), "");
    }

    #[test]
    fn diff_marks_a_missing_newline_at_the_end() {
        let shown = unified("x", "a\nb", "a\nb\nc\n");
        let expected =
            "--- a/x\n+++ b/x\n@@ -1,2 +1,3 @@\n a\n-b\n\\ No newline at end of file\n+b\n+c\n";
        assert_eq!(shown, expected);
        let made = unified("x", "", "a\n");
        assert_eq!(made, "--- a/x\n+++ b/x\n@@ -0,0 +1,1 @@\n+a\n");
    }
}
