//! Renders Markdown as plain text with ranges of formatting, and splits it without breaking them.
//! No I/O.
//!
//! Ranges need no escaping, so no text of a model can break the markup of a message.

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
use serde::{Deserialize, Serialize};

use super::split::{Measure, cut};

/// Text of a horizontal rule.
const RULE: &str = "———";

/// Gap between the columns of a table.
const TABLE_GAP: &str = "  ";

/// Schemes of links that a service accepts. Other links show their address as text.
const LINK_SCHEMES: [&str; 4] = ["https://", "http://", "mailto:", "tg://"];

/// Formatting of a range of text, as Telegram names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TextFormat {
    /// Bold.
    Bold,
    /// Italic.
    Italic,
    /// Struck through.
    Strikethrough,
    /// Code within a line.
    Code,
    /// A block of code.
    Pre,
    /// A quotation.
    Blockquote,
    /// A link, whose target is [`FormattedRange::url`].
    TextLink,
}

/// A formatted range of a text, measured in UTF-16 units.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormattedRange {
    /// Its formatting.
    #[serde(rename = "type")]
    pub format: TextFormat,
    /// Its start.
    pub offset: usize,
    /// Its length.
    pub length: usize,
    /// Target of a link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Language of a code block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
}

/// A text and its formatted ranges.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FormattedText {
    pub(super) text: String,
    pub(super) ranges: Vec<FormattedRange>,
}

fn units(text: &str) -> usize {
    Measure::Utf16.of(text)
}

impl FormattedText {
    /// Renders Markdown. A text that would become empty, such as only a link definition, stays as
    /// it is.
    pub(super) fn from_markdown(markdown: &str) -> Self {
        let options =
            Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
        let mut renderer = Renderer::default();
        for event in Parser::new_ext(markdown, options) {
            renderer.take(event);
        }
        let rendered = renderer.finish();
        if rendered.text.trim().is_empty() {
            return Self {
                text: markdown.to_owned(),
                ranges: Vec::new(),
            };
        }
        rendered
    }

    /// Splits the text into parts of at most `limit` UTF-16 units, preferably between paragraphs,
    /// lines, sentences or words. A range that is split continues in the next part.
    pub(super) fn split(self, limit: usize) -> Vec<Self> {
        let mut parts = Vec::new();
        let mut rest = self.text.as_str();
        let mut start = 0;
        loop {
            let is_last = units(rest) <= limit;
            let end = if is_last {
                rest.len()
            } else {
                cut(rest, limit, Measure::Utf16)
            };
            let (part, left) = rest.split_at(end);
            let shown = if is_last { part } else { part.trim_end() };
            if !shown.trim().is_empty() || (is_last && parts.is_empty()) {
                parts.push(self.part(shown, start));
            }
            if is_last {
                return parts;
            }
            let next = start + units(part);
            // In code, leading white space is significant.
            let is_in_code = self.ranges.iter().any(|range| {
                range.format == TextFormat::Pre
                    && (range.offset..range.offset + range.length).contains(&next)
            });
            rest = if is_in_code {
                left.trim_start_matches('\n')
            } else {
                left.trim_start()
            };
            start = next + units(left) - units(rest);
        }
    }

    /// The part of the text that begins at `start`, with the ranges that overlap it.
    fn part(&self, text: &str, start: usize) -> Self {
        let end = start + units(text);
        let overlapping = self.ranges.iter().filter_map(|range| {
            let from = range.offset.max(start);
            let to = (range.offset + range.length).min(end);
            (from < to).then(|| FormattedRange {
                offset: from - start,
                length: to - from,
                ..range.clone()
            })
        });
        Self {
            text: text.to_owned(),
            ranges: overlapping.collect(),
        }
    }
}

/// A range whose end is not known yet.
#[derive(Debug)]
struct OpenRange {
    offset: usize,
    /// Target of a link or an image.
    url: Option<String>,
}

#[derive(Debug, Default)]
struct Renderer {
    text: String,
    /// Length of `text` in UTF-16 units.
    length: usize,
    ranges: Vec<FormattedRange>,
    open: Vec<OpenRange>,
    /// Next number of each open list; none for lists without numbers.
    lists: Vec<Option<u64>>,
    quotes: usize,
    /// Line breaks before the next text.
    breaks: usize,
    /// True at the start of a list item or a quotation, where a block needs no separation.
    is_at_start: bool,
    /// Code of the open block, and its language.
    code: Option<(String, Option<String>)>,
    /// Rows of the open table.
    table: Option<Vec<Vec<String>>>,
}

impl Renderer {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(said) => self.say(&said),
            Event::Html(said) | Event::InlineHtml(said) => self.say(said.trim_end_matches('\n')),
            Event::InlineMath(said) | Event::DisplayMath(said) | Event::FootnoteReference(said) => {
                self.say(&said);
            }
            Event::Code(said) if self.table.is_some() => self.say(&said),
            Event::Code(said) => {
                self.begin(None);
                self.say(&said);
                self.finish_range(TextFormat::Code, None);
            }
            Event::SoftBreak | Event::HardBreak => self.breaks = self.breaks.max(1),
            Event::Rule => {
                self.separate();
                self.say(RULE);
                self.end_block();
            }
            Event::TaskListMarker(is_done) => self.say(if is_done { "☑ " } else { "☐ " }),
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph
            | Tag::HtmlBlock
            | Tag::FootnoteDefinition(_)
            | Tag::DefinitionList
            | Tag::DefinitionListTitle
            | Tag::DefinitionListDefinition => self.separate(),
            Tag::Heading { .. } => {
                self.separate();
                self.begin(None);
            }
            Tag::BlockQuote(_) => {
                self.separate();
                // Quotations cannot be nested.
                if self.quotes == 0 {
                    self.begin(None);
                }
                self.quotes += 1;
                self.is_at_start = true;
            }
            Tag::CodeBlock(kind) => {
                self.separate();
                let language = match kind {
                    CodeBlockKind::Fenced(language) => {
                        language.split_whitespace().next().map(str::to_owned)
                    }
                    CodeBlockKind::Indented => None,
                };
                self.code = Some((String::new(), language));
            }
            Tag::List(first) => {
                if self.lists.is_empty() {
                    self.separate();
                } else {
                    self.breaks = self.breaks.max(1);
                }
                self.lists.push(first);
            }
            Tag::Item => self.item(),
            Tag::Table(_) => {
                self.separate();
                self.table = Some(Vec::new());
            }
            Tag::TableHead | Tag::TableRow => {
                if let Some(rows) = &mut self.table {
                    rows.push(Vec::new());
                }
            }
            Tag::TableCell => {
                if let Some(row) = self.table.as_mut().and_then(|rows| rows.last_mut()) {
                    row.push(String::new());
                }
            }
            Tag::Emphasis | Tag::Strong | Tag::Strikethrough => self.begin(None),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.begin(Some(dest_url.into_string()));
            }
            Tag::Superscript | Tag::Subscript | Tag::MetadataBlock(_) => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph
            | TagEnd::HtmlBlock
            | TagEnd::FootnoteDefinition
            | TagEnd::DefinitionList
            | TagEnd::DefinitionListTitle
            | TagEnd::DefinitionListDefinition => self.end_block(),
            TagEnd::Heading(_) => {
                self.finish_range(TextFormat::Bold, None);
                self.end_block();
            }
            TagEnd::BlockQuote(_) => {
                self.quotes = self.quotes.saturating_sub(1);
                if self.quotes == 0 {
                    self.finish_range(TextFormat::Blockquote, None);
                }
                self.end_block();
            }
            TagEnd::CodeBlock => {
                if let Some((code, language)) = self.code.take() {
                    self.preformatted(code.trim_end_matches('\n'), language);
                }
            }
            TagEnd::List(_) => {
                self.lists.pop();
                self.is_at_start = false;
                self.breaks = if self.lists.is_empty() { 2 } else { 1 };
            }
            TagEnd::Item => {
                self.is_at_start = false;
                self.breaks = 1;
            }
            TagEnd::Table => {
                if let Some(rows) = self.table.take() {
                    self.preformatted(&aligned(&rows), None);
                }
            }
            TagEnd::Emphasis => self.finish_range(TextFormat::Italic, None),
            TagEnd::Strong => self.finish_range(TextFormat::Bold, None),
            TagEnd::Strikethrough => self.finish_range(TextFormat::Strikethrough, None),
            TagEnd::Link | TagEnd::Image => self.finish_link(),
            TagEnd::TableHead
            | TagEnd::TableRow
            | TagEnd::TableCell
            | TagEnd::Superscript
            | TagEnd::Subscript
            | TagEnd::MetadataBlock(_) => {}
        }
    }

    /// Separates the next block from the text before it.
    fn separate(&mut self) {
        if !self.is_at_start {
            let breaks = if self.lists.is_empty() { 2 } else { 1 };
            self.breaks = self.breaks.max(breaks);
        }
    }

    fn end_block(&mut self) {
        self.is_at_start = false;
        self.breaks = if self.lists.is_empty() { 2 } else { 1 };
    }

    fn item(&mut self) {
        self.breaks = self.breaks.clamp(1, 2);
        let bullet = match self.lists.last_mut() {
            Some(Some(number)) => {
                let bullet = format!("{number}. ");
                *number = number.saturating_add(1);
                bullet
            }
            Some(None) | None => "• ".to_owned(),
        };
        self.say(&bullet);
        self.is_at_start = true;
    }

    /// Writes the pending line breaks. Lines of nested lists are indented.
    fn flush(&mut self) {
        let breaks = std::mem::take(&mut self.breaks);
        if self.text.is_empty() {
            return;
        }
        let depth = self.lists.len().saturating_sub(1);
        for _ in 0..breaks {
            self.push("\n");
        }
        if breaks > 0 {
            self.push(&"  ".repeat(depth));
        }
    }

    fn push(&mut self, said: &str) {
        self.text.push_str(said);
        self.length += units(said);
    }

    fn say(&mut self, said: &str) {
        if let Some((code, _)) = &mut self.code {
            return code.push_str(said);
        }
        let rows = self.table.as_mut().and_then(|rows| rows.last_mut());
        if let Some(cell) = rows.and_then(|row| row.last_mut()) {
            return cell.push_str(said);
        }
        if !said.is_empty() {
            self.flush();
            self.is_at_start = false;
            self.push(said);
        }
    }

    fn begin(&mut self, url: Option<String>) {
        if self.table.is_none() {
            self.flush();
        }
        let offset = self.length;
        self.open.push(OpenRange { offset, url });
    }

    fn finish_range(&mut self, format: TextFormat, language: Option<String>) {
        if let Some(open) = self.open.pop() {
            self.add(format, open.offset, None, language);
        }
    }

    /// Adds a range that ends here, unless it is empty.
    fn add(
        &mut self,
        format: TextFormat,
        offset: usize,
        url: Option<String>,
        language: Option<String>,
    ) {
        let length = self.length.saturating_sub(offset);
        if length > 0 {
            self.ranges.push(FormattedRange {
                format,
                offset,
                length,
                url,
                language,
            });
        }
    }

    fn finish_link(&mut self) {
        let Some(OpenRange { offset, url }) = self.open.pop() else {
            return;
        };
        let url = url.unwrap_or_default();
        if url.is_empty() {
            return;
        }
        if self.table.is_some() {
            return self.say(&format!(" ({url})"));
        }
        let start = self.text.char_indices().scan(0, |at, (index, c)| {
            let unit = *at;
            *at += c.len_utf16();
            Some((unit, index))
        });
        let mut start = start.filter(|(unit, _)| *unit == offset);
        let shown = start.next().and_then(|(_, at)| self.text.get(at..));
        let shown = shown.unwrap_or_default().to_owned();
        let is_known = LINK_SCHEMES.iter().any(|scheme| {
            let start = url.get(..scheme.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        });
        match (shown.is_empty(), is_known) {
            (true, _) => self.say(&url),
            // The service recognizes the address itself.
            (false, _) if shown == url => {}
            (false, true) => self.add(TextFormat::TextLink, offset, Some(url), None),
            (false, false) => self.say(&format!(" ({url})")),
        }
    }

    fn preformatted(&mut self, text: &str, language: Option<String>) {
        if !text.is_empty() {
            self.begin(None);
            self.push(text);
            self.finish_range(TextFormat::Pre, language);
        }
        self.end_block();
    }

    fn finish(mut self) -> FormattedText {
        let length = units(self.text.trim_end());
        self.text.truncate(self.text.trim_end().len());
        let whole = FormattedText {
            text: self.text,
            ranges: self.ranges,
        };
        let mut kept = whole.part(&whole.text, 0);
        // Outer ranges precede the ranges that they contain.
        kept.ranges
            .sort_by_key(|range| (range.offset, length - range.length));
        kept
    }
}

/// The rows of a table, with columns of equal width and a line below the head.
fn aligned(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count)
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let line = |cells: Vec<String>| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| {
            let missing = width.saturating_sub(cell.chars().count());
            format!("{cell}{}", " ".repeat(missing))
        });
        let padded: Vec<String> = padded.collect();
        padded.join(TABLE_GAP).trim_end().to_owned()
    };
    let mut lines: Vec<String> = rows.iter().map(|row| line(row.clone())).collect();
    if lines.len() > 1 {
        let rule = widths.iter().map(|width| "-".repeat(*width)).collect();
        lines.insert(1, line(rule));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The text, and each range as `type:text`, or `type:text→url`.
    fn shown(markdown: &str) -> (String, Vec<String>) {
        let formatted = FormattedText::from_markdown(markdown);
        let ranges = formatted.ranges.iter().map(|it| described(&formatted, it));
        (formatted.text.clone(), ranges.collect())
    }

    fn described(whole: &FormattedText, range: &FormattedRange) -> String {
        let units: Vec<u16> = whole.text.encode_utf16().collect();
        let part = &units[range.offset..range.offset + range.length];
        let part = String::from_utf16(part).unwrap();
        let kind = serde_json::to_value(range.format).unwrap();
        let kind = kind.as_str().unwrap().to_owned();
        match (&range.url, &range.language) {
            (Some(url), _) => format!("{kind}:{part}→{url}"),
            (None, Some(language)) => format!("{kind}({language}):{part}"),
            (None, None) => format!("{kind}:{part}"),
        }
    }

    #[test]
    fn conn_2_markdown_becomes_text_with_ranges() {
        for (markdown, text, ranges) in [
            ("plain", "plain", vec![]),
            ("a **b** c", "a b c", vec!["bold:b"]),
            ("😀 *é*", "😀 é", vec!["italic:é"]),
            ("**a *b***", "a b", vec!["bold:a b", "italic:b"]),
            (
                "~~old~~ `x<y`",
                "old x<y",
                vec!["strikethrough:old", "code:x<y"],
            ),
            ("# Title\n\nText", "Title\n\nText", vec!["bold:Title"]),
            ("one\ntwo\n\nthree", "one\ntwo\n\nthree", vec![]),
            (
                "* a\n* b\n  1. c\n  2. d\n\nend",
                "• a\n• b\n  1. c\n  2. d\n\nend",
                vec![],
            ),
            ("3. c\n4. d", "3. c\n4. d", vec![]),
            ("- [x] done\n- [ ] open", "• ☑ done\n• ☐ open", vec![]),
            (
                "Look:\n```rust\nfn a() {}\n\nfn b() {}\n```\nend",
                "Look:\n\nfn a() {}\n\nfn b() {}\n\nend",
                vec!["pre(rust):fn a() {}\n\nfn b() {}"],
            ),
            (
                "a\n> said\n> so\n\nno",
                "a\n\nsaid\nso\n\nno",
                vec!["blockquote:said\nso"],
            ),
            (
                "[here](https://x.example/a_b)",
                "here",
                vec!["text_link:here→https://x.example/a_b"],
            ),
            ("<https://x.example>", "https://x.example", vec![]),
            ("[doc](../a.md)", "doc (../a.md)", vec![]),
            (
                "![](https://x.example/i.png)",
                "https://x.example/i.png",
                vec![],
            ),
            (
                "| a | b |\n| - | - |\n| 1 | `two` |",
                "a  b\n-  ---\n1  two",
                vec!["pre:a  b\n-  ---\n1  two"],
            ),
            ("a\n\n---\n\nb", "a\n\n———\n\nb", vec![]),
            ("a <b>c</b> & d &lt;", "a <b>c</b> & d <", vec![]),
            (
                "snake_case_name 2*3*4",
                "snake_case_name 234",
                vec!["italic:3"],
            ),
            (r"\*not bold\* 1 \_ 2", "*not bold* 1 _ 2", vec![]),
            ("[a]: https://x.example", "[a]: https://x.example", vec![]),
        ] {
            let (found, found_ranges) = shown(markdown);
            assert_eq!(found, text, "{markdown}");
            assert_eq!(found_ranges, ranges, "{markdown}");
        }
    }

    #[test]
    fn conn_2_split_text_keeps_its_formatting() {
        let code: String = (0..40).map(|n| format!("    line {n}\n")).collect();
        let markdown = format!("**Look** here:\n```rust\n{code}```\n*That* is it.");
        let parts = FormattedText::from_markdown(&markdown).split(120);
        assert!(parts.len() > 3);
        assert_eq!(described(&parts[0], &parts[0].ranges[0]), "bold:Look");
        for (number, part) in parts.iter().enumerate() {
            assert!(units(&part.text) <= 120, "{part:?}");
            let mut ranges = part.ranges.iter();
            let code = ranges.find(|it| it.format == TextFormat::Pre);
            assert_eq!(code.is_some(), part.text.contains("line"), "{part:?}");
            if let Some(code) = code {
                let shown = described(part, code);
                assert!(shown.starts_with("pre(rust):    line"), "{number} {shown}");
            }
        }
        let last = parts.last().unwrap();
        let italic = last
            .ranges
            .iter()
            .find(|it| it.format == TextFormat::Italic);
        assert_eq!(described(last, italic.unwrap()), "italic:That");
    }

    proptest! {
        #[test]
        fn conn_2_ranges_of_any_text_lie_within_its_parts(
            markdown in r"([a-z😀 \n*_`~>#|\[\]()-]|https://x\.y){0,200}",
            limit in 1_usize..60,
        ) {
            let whole = FormattedText::from_markdown(&markdown);
            for part in whole.split(limit) {
                let length = units(&part.text);
                prop_assert!(length <= limit.max(2));
                for range in &part.ranges {
                    prop_assert!(range.length > 0 && range.offset + range.length <= length);
                }
            }
        }
    }
}
