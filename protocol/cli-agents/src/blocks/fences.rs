//! Markdown code fences: their content is not part of the protocol (`PROTO-1`).

/// An open code fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fence {
    mark: u8,
    len: usize,
}

/// Tracks if lines are inside a code fence.
#[derive(Debug, Default)]
pub(super) struct Fences(Option<Fence>);

impl Fences {
    /// Processes the next line; returns true if it is a fence or inside one.
    pub(super) fn line(&mut self, line: &str) -> bool {
        let fence = fence_of(line);
        match (self.0, fence) {
            (None, Some((fence, rest))) => {
                // A backtick in the info string of a backtick fence makes it inline code instead.
                if fence.mark == b'`' && rest.contains('`') {
                    return false;
                }
                self.0 = Some(fence);
                true
            }
            (None, None) => false,
            (Some(open), Some((fence, rest))) => {
                // Shorter fences can be nested in longer ones, and a closing fence has no info
                // string.
                let closes = fence.mark == open.mark && fence.len >= open.len;
                if closes && rest.trim().is_empty() {
                    self.0 = None;
                }
                true
            }
            (Some(_), None) => true,
        }
    }

    /// Resets to outside of a fence.
    pub(super) fn reset(&mut self) {
        self.0 = None;
    }
}

/// Parses a fence at the beginning of a line, indented by at most three spaces, and the rest of the
/// line.
fn fence_of(line: &str) -> Option<(Fence, &str)> {
    const INDENT_MAX: usize = 3;
    const MARKS_MIN: usize = 3;
    let marks = line.trim_start_matches(' ');
    let mark = *marks.as_bytes().first()?;
    if line.len() - marks.len() > INDENT_MAX || !matches!(mark, b'`' | b'~') {
        return None;
    }
    let rest = marks.trim_start_matches(char::from(mark));
    let len = marks.len() - rest.len();
    (len >= MARKS_MIN).then_some((Fence { mark, len }, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inside(text: &str) -> String {
        let mut fences = Fences::default();
        let marks = text
            .lines()
            .map(|line| if fences.line(line) { '#' } else { '.' });
        marks.collect()
    }

    #[test]
    fn proto_1_fences_nest_by_their_length_and_mark() {
        assert_eq!(inside("a\n```rust\nb\n```\nc"), ".###.");
        assert_eq!(inside("````\n```\nb\n```\n````\nc"), "#####.");
        assert_eq!(inside("~~~\n```\n~~~\nc"), "###.");
        assert_eq!(inside("```\nb\n``` not closed\nc\n````\nd"), "#####.");
        assert_eq!(inside("```code``` in a line\nb"), "..");
        assert_eq!(inside("   ```\nb\n ```\n    ```\nc"), "###..");
        assert_eq!(inside("``\nb\n```\nfor ever"), "..##");
    }
}
