//! Writes a formatted text as HTML, as Matrix shows it. No I/O.
//!
//! Text is escaped, so only the ranges become markup.

use super::formatted_text::{FormattedRange, FormattedText, TextFormat};

/// Schemes of links that clients of Matrix show. Other links show their address as text.
const LINK_SCHEMES: [&str; 3] = ["https://", "http://", "mailto:"];

/// Line breaks around a block of HTML.
const BREAKS_OF_BLOCK: usize = 2;

/// The text as HTML; `None` if nothing in it is formatted.
pub(super) fn html(formatted: &FormattedText) -> Option<String> {
    if formatted.ranges.is_empty() {
        return None;
    }
    let mut writer = HtmlWriter::default();
    let mut ranges = formatted.ranges.iter().peekable();
    let mut unit = 0;
    for c in formatted.text.chars() {
        writer.close_until(unit);
        while let Some(range) = ranges.next_if(|range| range.offset <= unit) {
            writer.open(range);
        }
        writer.push(c);
        unit += c.len_utf16();
    }
    writer.close_until(usize::MAX);
    Some(writer.html)
}

#[derive(Debug, Default)]
struct HtmlWriter<'f> {
    html: String,
    /// Open ranges, the innermost last.
    open: Vec<&'f FormattedRange>,
    /// Line breaks before the next text.
    breaks: usize,
    is_after_block: bool,
}

fn end(range: &FormattedRange) -> usize {
    range.offset.saturating_add(range.length)
}

fn is_block(format: TextFormat) -> bool {
    matches!(format, TextFormat::Pre | TextFormat::Blockquote)
}

/// The target of a link that clients show.
fn target(range: &FormattedRange) -> Option<&str> {
    let url = range.url.as_deref()?;
    let is_shown = LINK_SCHEMES.iter().any(|scheme| {
        let start = url.get(..scheme.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    });
    is_shown.then_some(url)
}

impl<'f> HtmlWriter<'f> {
    /// Closes the ranges that end at or before `unit`.
    fn close_until(&mut self, unit: usize) {
        let mut continued = Vec::new();
        while self.open.iter().any(|range| end(range) <= unit) {
            let Some(range) = self.open.pop() else {
                return;
            };
            self.close(range);
            if end(range) > unit {
                continued.push(range);
            }
        }
        for range in continued.into_iter().rev() {
            self.open(range);
        }
    }

    fn open(&mut self, range: &'f FormattedRange) {
        if is_block(range.format) {
            self.breaks = 0;
            self.is_after_block = false;
        } else {
            self.flush();
        }
        match range.format {
            TextFormat::Bold => self.html.push_str("<strong>"),
            TextFormat::Italic => self.html.push_str("<em>"),
            TextFormat::Strikethrough => self.html.push_str("<del>"),
            TextFormat::Code => self.html.push_str("<code>"),
            TextFormat::Blockquote => self.html.push_str("<blockquote>"),
            TextFormat::Pre => {
                let is_plain = |c: char| c.is_ascii_alphanumeric() || "+-_#".contains(c);
                let language = range.language.as_deref().unwrap_or_default();
                if language.is_empty() || !language.chars().all(is_plain) {
                    self.html.push_str("<pre><code>");
                } else {
                    let tag = format!("<pre><code class=\"language-{language}\">");
                    self.html.push_str(&tag);
                }
            }
            TextFormat::TextLink => {
                if let Some(url) = target(range) {
                    self.html.push_str("<a href=\"");
                    url.chars().for_each(|c| self.escape(c));
                    self.html.push_str("\">");
                }
            }
        }
        self.open.push(range);
    }

    fn close(&mut self, range: &FormattedRange) {
        match range.format {
            TextFormat::Bold => self.html.push_str("</strong>"),
            TextFormat::Italic => self.html.push_str("</em>"),
            TextFormat::Strikethrough => self.html.push_str("</del>"),
            TextFormat::Code => self.html.push_str("</code>"),
            TextFormat::Blockquote => self.html.push_str("</blockquote>"),
            TextFormat::Pre => self.html.push_str("</code></pre>"),
            TextFormat::TextLink => match (target(range), &range.url) {
                (Some(_), _) => self.html.push_str("</a>"),
                (None, Some(url)) => {
                    self.html.push_str(" (");
                    url.chars().for_each(|c| self.escape(c));
                    self.html.push(')');
                }
                (None, None) => {}
            },
        }
        if is_block(range.format) {
            self.breaks = 0;
            self.is_after_block = true;
        }
    }

    /// Writes the pending line breaks; those around a block are part of the block.
    fn flush(&mut self) {
        let breaks = std::mem::take(&mut self.breaks);
        let of_block = if std::mem::take(&mut self.is_after_block) {
            BREAKS_OF_BLOCK
        } else {
            0
        };
        for _ in of_block..breaks {
            self.html.push_str("<br>");
        }
    }

    fn push(&mut self, c: char) {
        let is_in_code = self
            .open
            .iter()
            .any(|range| range.format == TextFormat::Pre);
        if c == '\n' && !is_in_code {
            self.breaks += 1;
            return;
        }
        self.flush();
        self.escape(c);
    }

    fn escape(&mut self, c: char) {
        match c {
            '&' => self.html.push_str("&amp;"),
            '<' => self.html.push_str("&lt;"),
            '>' => self.html.push_str("&gt;"),
            '"' => self.html.push_str("&quot;"),
            other => self.html.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_markdown(markdown: &str) -> Option<String> {
        html(&FormattedText::from_markdown(markdown))
    }

    #[test]
    fn conn_2_markdown_is_html_and_other_text_is_escaped() {
        for (markdown, expected) in [
            ("plain <b>", None),
            (
                "**a** _b_ ~~c~~",
                Some("<strong>a</strong> <em>b</em> <del>c</del>"),
            ),
            (
                "**x `<y>` & \"z\"**",
                Some("<strong>x <code>&lt;y&gt;</code> &amp; &quot;z&quot;</strong>"),
            ),
            (
                "one\n\n*two*\nthree",
                Some("one<br><br><em>two</em><br>three"),
            ),
            (
                "see\n\n```rust\nlet a = 1;\n\nlet b;\n```\n\nend",
                Some("see<pre><code class=\"language-rust\">let a = 1;\n\nlet b;</code></pre>end"),
            ),
            ("> said\n\nso", Some("<blockquote>said</blockquote>so")),
            (
                "[a](https://x.example/?q=1&r=\"2\") 😀 **b**",
                Some(
                    "<a href=\"https://x.example/?q=1&amp;r=&quot;2&quot;\">a</a> 😀 \
                     <strong>b</strong>",
                ),
            ),
            ("[a](tg://user)", Some("a (tg://user)")),
        ] {
            assert_eq!(of_markdown(markdown).as_deref(), expected, "{markdown}");
        }
    }

    #[test]
    fn conn_2_a_split_range_is_closed_in_each_part() {
        let text = format!("**{}**", "word ".repeat(8).trim());
        let parts = FormattedText::from_markdown(&text).split(20);
        assert!(parts.len() > 1);
        for part in &parts {
            let html = html(part).unwrap();
            let bare = html.strip_prefix("<strong>");
            let bare = bare.and_then(|html| html.strip_suffix("</strong>"));
            assert_eq!(bare, Some(part.text.as_str()));
        }
    }
}
