//! Ranges of YAML values in their text, which parsing to values loses.

use std::ops::Range;

use granit_parser::{Event, Parser, ScalarStyle, StructureStyle};

/// A value in a text. Its range excludes anchor, tag, trailing spaces and comments.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) start: usize,
    pub(super) end: usize,
    /// True for a collection in braces or brackets.
    pub(super) is_flow: bool,
    pub(super) shape: Shape,
}

#[derive(Debug)]
pub(super) enum Shape {
    /// A value without text, as after `name:`.
    Empty,
    Scalar,
    Alias,
    Mapping(Vec<(Part, Part)>),
    List(Vec<Part>),
}

/// The root values of all documents; `None` if the text is not valid YAML. Documents without a
/// value are skipped.
pub(super) fn documents(text: &str) -> Option<Vec<Part>> {
    let mut roots = Vec::new();
    let mut open: Vec<OpenPart> = Vec::new();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.ok()?;
        let range = span.byte_range()?;
        let part = match event {
            Event::Alias(_) => Part::leaf(text, range, Shape::Alias),
            Event::Scalar(_, ScalarStyle::Literal | ScalarStyle::Folded, ..) => {
                let start = block_start(text, range.start);
                Part::leaf(text, start..range.end, Shape::Scalar)
            }
            Event::Scalar(..) => Part::leaf(text, range, Shape::Scalar),
            Event::MappingStart(style, ..) => {
                open.push(OpenPart::new(&range, style, Shape::Mapping(Vec::new())));
                continue;
            }
            Event::SequenceStart(style, ..) => {
                open.push(OpenPart::new(&range, style, Shape::List(Vec::new())));
                continue;
            }
            Event::MappingEnd | Event::SequenceEnd => open.pop()?.close(text, &range),
            _ => continue,
        };
        match open.last_mut() {
            Some(around) => around.take(part, text),
            None => roots.push(part),
        }
    }
    roots.retain(|root| !root.is_null(text));
    Some(roots)
}

/// The comment in a part of a line without values.
fn comment_of(line: &str) -> Option<&str> {
    let begins = |at: &usize| {
        let before = line.get(..*at).unwrap_or_default();
        before.is_empty() || before.ends_with([' ', '\t'])
    };
    let at = line.match_indices('#').map(|(at, _)| at).find(begins)?;
    line.get(at..)
}

/// The place of the `|` or `>` before the content of a block scalar, where the parser begins it.
fn block_start(text: &str, content: usize) -> usize {
    let before = text.get(..content).unwrap_or_default().trim_end();
    let line = before.rfind('\n').map_or(0, |end| end + 1);
    let head = before.get(line..).unwrap_or_default();
    let begins = |(at, _): &(usize, &str)| {
        let rest = head.get(at + 1..).unwrap_or_default();
        let rest = rest.trim_start_matches(|c: char| matches!(c, '+' | '-') || c.is_ascii_digit());
        rest.is_empty() || rest.trim_start().starts_with('#')
    };
    let mut marks = head.match_indices(['|', '>']);
    marks.find(begins).map_or(content, |(at, _)| line + at)
}

impl Part {
    fn leaf(text: &str, range: Range<usize>, shape: Shape) -> Self {
        let (start, written) = (range.start, text.get(range).unwrap_or_default());
        Self {
            start,
            end: start + written.trim_end().len(),
            is_flow: false,
            shape: match written.is_empty() {
                true => Shape::Empty,
                false => shape,
            },
        }
    }

    pub(super) fn text<'t>(&self, text: &'t str) -> &'t str {
        text.get(self.start..self.end).unwrap_or_default()
    }

    /// Comments within the value, each from its `#` to the end of its line.
    pub(super) fn comments<'t>(&self, text: &'t str) -> Vec<&'t str> {
        let mut leaves = Vec::new();
        self.add_leaves(&mut leaves);
        leaves.push(self.end..self.end);
        let mut comments = Vec::new();
        let mut at = self.start;
        for leaf in leaves {
            let between = text.get(at..leaf.start).unwrap_or_default();
            comments.extend(between.split('\n').filter_map(comment_of));
            at = leaf.end;
        }
        comments
    }

    /// Adds the ranges of keys and values that hold no others.
    fn add_leaves(&self, leaves: &mut Vec<Range<usize>>) {
        match &self.shape {
            Shape::Mapping(parts) => {
                for (key, value) in parts {
                    key.add_leaves(leaves);
                    value.add_leaves(leaves);
                }
            }
            Shape::List(parts) => parts.iter().for_each(|part| part.add_leaves(leaves)),
            Shape::Empty | Shape::Scalar | Shape::Alias => leaves.push(self.start..self.end),
        }
    }

    fn is_null(&self, text: &str) -> bool {
        let is_word = || ["~", "null", "Null", "NULL"].contains(&self.text(text));
        match self.shape {
            Shape::Empty => true,
            Shape::Scalar => is_word(),
            Shape::Alias | Shape::Mapping(_) | Shape::List(_) => false,
        }
    }

    /// The end of the last value in a collection.
    fn last_end(&self) -> Option<usize> {
        match &self.shape {
            Shape::Mapping(entries) => entries.last().map(|(_, value)| value.end),
            Shape::List(items) => items.last().map(|item| item.end),
            Shape::Empty | Shape::Scalar | Shape::Alias => None,
        }
    }
}

/// A collection whose end is not read yet.
struct OpenPart {
    part: Part,
    /// A key whose value is not read yet.
    key: Option<Part>,
}

impl OpenPart {
    fn new(range: &Range<usize>, style: StructureStyle, shape: Shape) -> Self {
        let part = Part {
            start: range.start,
            end: range.end,
            is_flow: style == StructureStyle::Flow,
            shape,
        };
        Self { part, key: None }
    }

    fn take(&mut self, mut part: Part, text: &str) {
        match &mut self.part.shape {
            Shape::List(items) => items.push(part),
            Shape::Mapping(entries) => match self.key.take() {
                None => self.key = Some(part),
                Some(key) => {
                    if matches!(part.shape, Shape::Empty) {
                        // The parser places an empty value at the next token.
                        let rest = text.get(key.end..).unwrap_or_default();
                        let spaces = rest.len() - rest.trim_start().len();
                        let has_colon = rest.trim_start().starts_with(':');
                        part.start = key.end + if has_colon { spaces + 1 } else { 0 };
                        part.end = part.start;
                    }
                    entries.push((key, part));
                }
            },
            Shape::Empty | Shape::Scalar | Shape::Alias => {}
        }
    }

    /// The parser ends a block collection at the next token, after any comments.
    fn close(mut self, text: &str, end: &Range<usize>) -> Part {
        let has_braces = text
            .get(self.part.start..)
            .is_some_and(|text| self.part.is_flow && text.starts_with(['{', '[']));
        self.part.end = match self.part.last_end() {
            Some(last) if !has_braces => last,
            Some(_) | None => end.end,
        };
        self.part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text of each value without further values in it.
    fn leaves(text: &str) -> Vec<String> {
        fn add(part: &Part, text: &str, leaves: &mut Vec<String>) {
            match &part.shape {
                Shape::Mapping(entries) => {
                    for (key, value) in entries {
                        add(key, text, leaves);
                        add(value, text, leaves);
                    }
                }
                Shape::List(items) => items.iter().for_each(|item| add(item, text, leaves)),
                Shape::Empty | Shape::Scalar | Shape::Alias => {
                    leaves.push(part.text(text).to_owned());
                }
            }
        }
        let mut found = Vec::new();
        for document in documents(text).unwrap() {
            add(&document, text, &mut found);
        }
        found
    }

    #[test]
    fn values_have_the_range_of_their_text() {
        let text = "# first\na: 1 # one\nb:\n- &x \"two\" # 2\n- *x\nc: {d: 'three', e: }\nf: |\n  \
                    four\n  five\n\n# end\ng:\n";
        let expected = [
            "a",
            "1",
            "b",
            "\"two\"",
            "*x",
            "c",
            "d",
            "'three'",
            "e",
            "",
            "f",
            "|\n  four\n  five",
            "g",
            "",
        ];
        assert_eq!(leaves(text), expected);
    }

    #[test]
    fn collections_end_with_their_last_value() {
        let text = "a:\n  b:\n    c: [1,\n      2 ]\n  # end\n\n---\n---\nx: y\n";
        let found = documents(text).unwrap();
        let texts: Vec<_> = found.iter().map(|part| part.text(text)).collect();
        assert_eq!(texts, ["a:\n  b:\n    c: [1,\n      2 ]", "x: y"]);
        assert!(documents("a: [").is_none());
    }
}
