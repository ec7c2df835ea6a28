//! Slack's own markup, from a text and its formatted ranges. Pure.
//!
//! Everything that a model wrote is escaped, so no text of it mentions a whole channel or breaks
//! the markup. Mentions of people and channels, and links, stay.

use goondan_protocol::service::{FormattedRange, TextFormat};

/// Separates a mark from a letter next to it, where Slack would not recognize the mark.
const GAP: char = '\u{200b}';

/// Delimiter of a code block.
const FENCE: &str = "```";

/// Renders a text with its ranges, which are measured in UTF-16 units. Of ranges that overlap
/// without being nested, the end of the later one is lost.
pub(super) fn rendered(text: &str, ranges: &[FormattedRange]) -> String {
    let mut starts = vec![0];
    let mut bytes = 0;
    for c in text.chars() {
        // A range never ends within a character.
        starts.extend(std::iter::repeat_n(bytes, c.len_utf16() - 1));
        bytes += c.len_utf8();
        starts.push(bytes);
    }
    let at = |unit: usize| starts.get(unit).copied().unwrap_or(text.len());
    let mut spans: Vec<Span<'_>> = ranges
        .iter()
        .map(|range| Span {
            start: at(range.offset),
            end: at(range.offset.saturating_add(range.length)),
            range,
        })
        .filter(|span| span.start < span.end)
        .collect();
    spans.sort_by_key(|span| (span.start, std::cmp::Reverse(span.end)));
    let mut out = String::with_capacity(text.len());
    let whole = (0, text.len());
    Renderer { text }.render(&spans, whole, &[], &mut out);
    out
}

#[derive(Debug, Clone, Copy)]
struct Span<'r> {
    start: usize,
    end: usize,
    range: &'r FormattedRange,
}

struct Renderer<'t> {
    text: &'t str,
}

impl Renderer<'_> {
    fn slice(&self, start: usize, end: usize) -> &str {
        self.text.get(start..end).unwrap_or_default()
    }

    /// Renders a part of the text with the spans that begin in it, within these formats.
    fn render(
        &self,
        spans: &[Span<'_>],
        (start, end): (usize, usize),
        within: &[TextFormat],
        out: &mut String,
    ) {
        let mut at = start;
        let mut rest = spans;
        while let Some((span, later)) = rest.split_first() {
            rest = later;
            if span.start >= end {
                break;
            }
            if span.start < at {
                continue;
            }
            out.push_str(&escaped(self.slice(at, span.start)));
            let span_end = span.end.min(end);
            self.span(span, span_end, (later, within), out);
            at = span_end;
        }
        out.push_str(&escaped(self.slice(at, end)));
    }

    fn span(
        &self,
        span: &Span<'_>,
        end: usize,
        (inner, within): (&[Span<'_>], &[TextFormat]),
        out: &mut String,
    ) {
        let format = span.range.format;
        let said = self.slice(span.start, end);
        let formats = [within, &[format]].concat();
        match format {
            TextFormat::Code if said.contains(['`', '\n']) => out.push_str(&verbatim(said)),
            TextFormat::Code => self.mark(span.start, end, "`", &verbatim(said), out),
            TextFormat::Pre => {
                let code = verbatim(said).replace(FENCE, &format!("`{GAP}`{GAP}`"));
                let is_at_line = out.is_empty() || out.ends_with('\n');
                out.push_str(if is_at_line { "" } else { "\n" });
                out.push_str(&format!("{FENCE}\n{code}\n{FENCE}"));
            }
            TextFormat::TextLink => {
                let url = span.range.url.as_deref().unwrap_or_default();
                match link(url) {
                    Some(url) => {
                        let label = verbatim(said).replace('|', "¦").replace('\n', " ");
                        out.push_str(&format!("<{url}|{label}>"));
                    }
                    None => {
                        self.render(inner, (span.start, end), &formats, out);
                        out.push_str(&escaped(&format!(" ({url})")));
                    }
                }
            }
            TextFormat::Blockquote => {
                let mut nested = String::new();
                self.render(inner, (span.start, end), &formats, &mut nested);
                let lines = nested.lines().map(|line| format!("> {line}"));
                out.push_str(&lines.collect::<Vec<_>>().join("\n"));
            }
            TextFormat::Bold => self.styled(span, end, "*", (inner, within), out),
            TextFormat::Italic => self.styled(span, end, "_", (inner, within), out),
            TextFormat::Strikethrough => self.styled(span, end, "~", (inner, within), out),
        }
    }

    fn styled(
        &self,
        span: &Span<'_>,
        end: usize,
        mark: &str,
        (inner, within): (&[Span<'_>], &[TextFormat]),
        out: &mut String,
    ) {
        let format = span.range.format;
        let formats = [within, &[format]].concat();
        let mut nested = String::new();
        self.render(inner, (span.start, end), &formats, &mut nested);
        // A mark within the same mark would end it.
        if within.contains(&format) {
            out.push_str(&nested);
        } else {
            self.mark(span.start, end, mark, &nested, out);
        }
    }

    /// Puts marks around each line of a text, without the white space at its ends.
    fn mark(&self, start: usize, end: usize, mark: &str, inner: &str, out: &mut String) {
        let is_letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        if is_letter(self.slice(0, start).chars().next_back()) {
            out.push(GAP);
        }
        for (number, line) in inner.split('\n').enumerate() {
            if number > 0 {
                out.push('\n');
            }
            let bare = line.trim();
            let (before, after) = line.split_once(bare).unwrap_or((line, ""));
            if bare.is_empty() {
                out.push_str(line);
            } else {
                out.push_str(&format!("{before}{mark}{bare}{mark}{after}"));
            }
        }
        if is_letter(self.slice(end, self.text.len()).chars().next()) {
            out.push(GAP);
        }
    }
}

/// An address that Slack accepts in a link.
fn link(url: &str) -> Option<String> {
    let schemes = ["https://", "http://", "mailto:"];
    let is_known = schemes.iter().any(|scheme| {
        let start = url.get(..scheme.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    });
    is_known.then(|| {
        let clean = url.chars().map(|c| match c {
            '<' => "%3C".to_owned(),
            '>' => "%3E".to_owned(),
            '|' => "%7C".to_owned(),
            '&' => "&amp;".to_owned(),
            c if c.is_whitespace() || c.is_control() => "%20".to_owned(),
            c => c.to_string(),
        });
        clean.collect()
    })
}

/// Escapes a text, so that no part is a mention, a command or a link.
pub(super) fn verbatim(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// Escapes Slack's special mentions, so that no user can make an agent notify a whole channel.
/// Mentions of people and channels, and links, stay intact.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['&', '<', '>']) {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        if let Some(token) = token_at(from) {
            out.push_str(token);
            rest = from.strip_prefix(token).unwrap_or_default();
            continue;
        }
        let mut chars = from.chars();
        out.push_str(match chars.next() {
            Some('&') => "&amp;",
            Some('<') => "&lt;",
            _ => "&gt;",
        });
        rest = chars.as_str();
    }
    out.push_str(rest);
    out
}

/// The mention or link at the start of a text.
fn token_at(text: &str) -> Option<&str> {
    let end = text.find('>')?;
    let inner = text.get(1..end)?;
    let kinds = ["@U", "@W", "#C", "https://", "http://", "mailto:"];
    let is_token = text.starts_with('<')
        && kinds.iter().any(|kind| inner.starts_with(kind))
        && !inner.contains(['<', '\n']);
    is_token.then(|| text.get(..=end)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(format: TextFormat, offset: usize, length: usize) -> FormattedRange {
        FormattedRange {
            format,
            offset,
            length,
            url: None,
            language: None,
        }
    }

    fn linked(url: &str, length: usize) -> FormattedRange {
        FormattedRange {
            url: Some(url.to_owned()),
            ..range(TextFormat::TextLink, 0, length)
        }
    }

    #[test]
    fn mentions_and_links_stay_and_nothing_else_means_anything() {
        for (said, written) in [
            ("a < b && c > d", "a &lt; b &amp;&amp; c &gt; d"),
            ("<!channel> <!here|x>", "&lt;!channel&gt; &lt;!here|x&gt;"),
            ("<@U12> and <#C34>", "<@U12> and <#C34>"),
            (
                "see <https://x.org/?a=1&b|this>",
                "see <https://x.org/?a=1&b|this>",
            ),
            (
                "<https://x <!channel>>",
                "&lt;https://x &lt;!channel&gt;&gt;",
            ),
            ("<", "&lt;"),
        ] {
            assert_eq!(escaped(said), written);
        }
    }

    #[test]
    fn conn_2_formatted_ranges_become_marks_of_slack() {
        use TextFormat::{Blockquote, Bold, Code, Italic, Pre, Strikethrough, TextLink};
        for (text, ranges, written) in [
            ("a bold b", vec![range(Bold, 2, 4)], "a *bold* b"),
            (
                "both",
                vec![range(Italic, 0, 4), range(Bold, 0, 4)],
                "_*both*_",
            ),
            (
                "in bold",
                vec![range(Bold, 0, 7), range(Italic, 3, 4)],
                "*in _bold_*",
            ),
            ("굵게는", vec![range(Bold, 0, 2)], "*굵게*\u{200b}는"),
            ("😀 no", vec![range(Strikethrough, 3, 2)], "😀 ~no~"),
            ("one\ntwo ", vec![range(Bold, 0, 8)], "*one*\n*two* "),
            ("a < b", vec![range(Code, 0, 5)], "`a &lt; b`"),
            ("a`b", vec![range(Code, 0, 3)], "a`b"),
            ("<@U1>", vec![range(Code, 0, 5)], "`&lt;@U1&gt;`"),
            (
                "see\nx && y",
                vec![range(Pre, 4, 6)],
                "see\n```\nx &amp;&amp; y\n```",
            ),
            (
                "a```b",
                vec![range(Pre, 0, 5)],
                "```\na`\u{200b}`\u{200b}`b\n```",
            ),
            (
                "said\nso",
                vec![range(Blockquote, 0, 7), range(Bold, 0, 4)],
                "> *said*\n> so",
            ),
            (
                "the page",
                vec![linked("https://x.org/?a=1&b=<2>|", 8)],
                "<https://x.org/?a=1&amp;b=%3C2%3E%7C|the page>",
            ),
            (
                "a|b > c",
                vec![linked("mailto:a@x.org", 7)],
                "<mailto:a@x.org|a¦b &gt; c>",
            ),
            ("page", vec![linked("tg://x", 4)], "page (tg://x)"),
            (
                "<!channel> <@U1>",
                vec![range(Bold, 0, 16)],
                "*&lt;!channel&gt; <@U1>*",
            ),
            // Ranges that fit nothing.
            (
                "abc",
                vec![range(Bold, 5, 2), range(Bold, 1, usize::MAX)],
                "a\u{200b}*bc*",
            ),
            (
                "abcd",
                vec![range(Bold, 0, 3), range(Italic, 2, 2)],
                "*ab\u{200b}_c_\u{200b}*\u{200b}d",
            ),
            ("x", vec![range(TextLink, 0, 1)], "x ()"),
        ] {
            assert_eq!(rendered(text, &ranges), written, "{text}");
        }
    }
}
