//! Converts an HTML page to the text it shows: paragraphs, lists, links. Pure.
//!
//! This is neither a browser nor a validator: broken markup becomes text. Each byte is visited a
//! bounded number of times for any input.

use reqwest::Url;

/// Elements whose contents are not shown.
const HIDDEN: [&str; 7] = [
    "script", "style", "noscript", "template", "svg", "iframe", "textarea",
];

/// Elements that start a paragraph.
const BLOCKS: [&str; 27] = [
    "p",
    "div",
    "section",
    "article",
    "header",
    "footer",
    "main",
    "nav",
    "aside",
    "ul",
    "ol",
    "dl",
    "table",
    "blockquote",
    "form",
    "figure",
    "figcaption",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "pre",
    "hr",
    "title",
    "fieldset",
];

/// Elements that start a line.
const LINES: [&str; 7] = ["br", "tr", "li", "dt", "dd", "option", "summary"];

/// Named character references in common use.
const NAMED: [(&str, &str); 26] = [
    ("amp", "&"),
    ("lt", "<"),
    ("gt", ">"),
    ("quot", "\""),
    ("apos", "'"),
    ("nbsp", " "),
    ("mdash", "—"),
    ("ndash", "–"),
    ("hellip", "…"),
    ("copy", "©"),
    ("reg", "®"),
    ("trade", "™"),
    ("laquo", "«"),
    ("raquo", "»"),
    ("ldquo", "“"),
    ("rdquo", "”"),
    ("lsquo", "‘"),
    ("rsquo", "’"),
    ("bull", "•"),
    ("middot", "·"),
    ("euro", "€"),
    ("pound", "£"),
    ("times", "×"),
    ("rarr", "→"),
    ("larr", "←"),
    ("deg", "°"),
];

/// Longest name of a character reference, in bytes.
const NAME_BYTES_MAX: usize = 10;

/// The text of a page at `base`.
pub(super) fn to_text(html: &str, base: &Url) -> String {
    let mut page = PageText {
        base,
        out: String::with_capacity(html.len() / 4),
        pending: Gap::None,
        pre: 0,
        links: Vec::new(),
    };
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        let (text, from) = rest.split_at(at);
        page.text(text);
        rest = match markup(from) {
            Some((Markup::Tag(tag), after)) => page.tag(tag, after),
            Some((Markup::Nothing, after)) => after,
            None => {
                page.text("<");
                from.strip_prefix('<').unwrap_or_default()
            }
        };
    }
    page.text(rest);
    page.out.trim().to_owned()
}

enum Markup<'h> {
    /// Text between `<` and `>`.
    Tag(&'h str),
    /// A comment, or other invisible markup.
    Nothing,
}

/// Splits the markup at the start of a text from the rest.
fn markup(from: &str) -> Option<(Markup<'_>, &str)> {
    let inner = from.strip_prefix('<')?;
    if let Some(comment) = inner.strip_prefix("!--") {
        let after = comment.split_once("-->").map_or("", |(_, after)| after);
        return Some((Markup::Nothing, after));
    }
    match inner.bytes().next()? {
        b'!' | b'?' => {
            let after = inner.split_once('>').map_or("", |(_, after)| after);
            Some((Markup::Nothing, after))
        }
        b'/' | b'a'..=b'z' | b'A'..=b'Z' => {
            let mut quote = None;
            let end = inner.bytes().position(|byte| {
                match (quote, byte) {
                    (None, b'>') => return true,
                    (None, b'"' | b'\'') => quote = Some(byte),
                    (Some(open), _) if open == byte => quote = None,
                    _ => {}
                }
                false
            });
            // A tag without an end extends to the end of the page.
            let end = end.unwrap_or(inner.len());
            let after = inner.get(end + 1..).unwrap_or_default();
            Some((Markup::Tag(inner.get(..end)?), after))
        }
        _ => None,
    }
}

/// Separator before the next visible text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Gap {
    None,
    Space,
    Line,
    Paragraph,
}

struct PageText<'h> {
    base: &'h Url,
    out: String,
    pending: Gap,
    /// Number of open elements that preserve white space.
    pre: usize,
    /// Open links: their targets, and the positions where their texts start.
    links: Vec<(Option<String>, usize)>,
}

impl PageText<'_> {
    fn gap(&mut self, gap: Gap) {
        self.pending = self.pending.max(gap);
    }

    /// Writes the separator and then the text.
    fn show(&mut self, text: &str) {
        if !self.out.is_empty() {
            self.out.push_str(match self.pending {
                Gap::None => "",
                Gap::Space => " ",
                Gap::Line => "\n",
                Gap::Paragraph => "\n\n",
            });
        }
        self.pending = Gap::None;
        self.out.push_str(text);
    }

    fn text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let text = decoded(text);
        if self.pre > 0 {
            return self.show(&text);
        }
        if text.starts_with(char::is_whitespace) {
            self.gap(Gap::Space);
        }
        for word in text.split_whitespace() {
            self.show(word);
            self.gap(Gap::Space);
        }
        if !text.ends_with(char::is_whitespace) && self.pending == Gap::Space {
            self.pending = Gap::None;
        }
    }

    /// Handles a tag and returns the unread rest.
    fn tag<'h>(&mut self, tag: &str, after: &'h str) -> &'h str {
        let (is_end, tag) = match tag.strip_prefix('/') {
            Some(tag) => (true, tag),
            None => (false, tag),
        };
        let name_end = tag
            .find(|c: char| c.is_whitespace() || c == '/')
            .unwrap_or(tag.len());
        let (name, attributes) = tag.split_at(name_end);
        let name = name.to_ascii_lowercase();
        let name = name.as_str();
        if BLOCKS.contains(&name) {
            self.gap(Gap::Paragraph);
        } else if LINES.contains(&name) {
            self.gap(Gap::Line);
        }
        match (name, is_end) {
            (_, false) if HIDDEN.contains(&name) => return behind(name, after),
            ("pre", false) => self.pre += 1,
            ("pre", true) => self.pre = self.pre.saturating_sub(1),
            ("li", false) => {
                self.show("-");
                self.gap(Gap::Space);
            }
            ("h1" | "h2" | "h3" | "h4" | "h5" | "h6" | "title", false) => {
                self.show("#");
                self.gap(Gap::Space);
            }
            ("td" | "th", true) => self.gap(Gap::Space),
            ("a", false) => {
                let target = attribute(attributes, "href").and_then(|href| self.target(&href));
                self.links.push((target, self.out.len()));
            }
            ("a", true) => self.end_link(),
            ("img", false) => {
                if let Some(text) = attribute(attributes, "alt") {
                    self.text(&text);
                }
            }
            _ => {}
        }
        after
    }

    /// Target of a link, unless it stays on the page.
    fn target(&self, href: &str) -> Option<String> {
        if href.starts_with('#') {
            return None;
        }
        let target = self.base.join(href).ok()?;
        matches!(target.scheme(), "http" | "https").then(|| target.to_string())
    }

    fn end_link(&mut self) {
        let Some((Some(target), from)) = self.links.pop() else {
            return;
        };
        let is_shown = self
            .out
            .get(from..)
            .is_some_and(|text| !text.trim().is_empty());
        if is_shown {
            self.out.push_str(&format!(" ({target})"));
        }
    }
}

/// The rest after the end of a hidden element.
fn behind<'h>(name: &str, after: &'h str) -> &'h str {
    let bytes = after.as_bytes();
    let mut from = 0;
    while let Some(found) = after.get(from..).and_then(|rest| rest.find("</")) {
        let at = from + found + 2;
        let end = at + name.len();
        if bytes
            .get(at..end)
            .is_some_and(|word| word.eq_ignore_ascii_case(name.as_bytes()))
        {
            let rest = after.get(end..).unwrap_or_default();
            return rest.split_once('>').map_or("", |(_, behind)| behind);
        }
        from = at;
    }
    ""
}

fn attribute(attributes: &str, wanted: &str) -> Option<String> {
    let mut rest = attributes;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == '/');
        let end = rest.find(|c: char| c.is_whitespace() || c == '=' || c == '/');
        let (name, after) = rest.split_at(end.unwrap_or(rest.len()));
        let after = after.trim_start();
        let (value, after) = match after.strip_prefix('=') {
            None => ("", after),
            Some(value) => {
                let value = value.trim_start();
                let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''));
                match quote {
                    Some(quote) => {
                        let inner = value.strip_prefix(quote).unwrap_or_default();
                        inner.split_once(quote).unwrap_or((inner, ""))
                    }
                    None => {
                        let end = value.find(char::is_whitespace).unwrap_or(value.len());
                        value.split_at(end)
                    }
                }
            }
        };
        if name.eq_ignore_ascii_case(wanted) {
            return Some(decoded(value));
        }
        if after.len() >= rest.len() || after.is_empty() {
            return None;
        }
        rest = after;
    }
}

/// Replaces character references in a text.
fn decoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let inner = from.strip_prefix('&').unwrap_or_default();
        let end = inner
            .bytes()
            .take(NAME_BYTES_MAX)
            .position(|byte| byte == b';');
        let character = end.and_then(|end| named(inner.get(..end)?));
        match (character, end) {
            (Some(character), Some(end)) => {
                out.push_str(&character);
                rest = inner.get(end + 1..).unwrap_or_default();
            }
            _ => {
                out.push('&');
                rest = inner;
            }
        }
    }
    out.push_str(rest);
    out
}

fn named(name: &str) -> Option<String> {
    if let Some(number) = name.strip_prefix('#') {
        let code = match number.strip_prefix(['x', 'X']) {
            Some(hex) => u32::from_str_radix(hex, 16).ok()?,
            None => number.parse().ok()?,
        };
        return char::from_u32(code).map(String::from);
    }
    let found = NAMED.iter().find(|(known, _)| *known == name);
    found.map(|(_, character)| (*character).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(html: &str) -> String {
        to_text(html, &Url::parse("https://a.org/b/c").unwrap())
    }

    #[test]
    fn html_page_is_rendered_as_readable_text() {
        let page = "<!doctype html><html><head><title>A &amp; B</title><style>p{}</style>\
            <script>if (a < b) { document.write('</p>') }</script></head>\n<body>\n\
            <h1>Hello,\n  <b>wor</b>ld</h1><p>See <a href='../d?x=1&amp;y'>this</a> and <a href=\"#x\">that</a>.\
            <!-- <p>no</p> --><ul><li>one</li><li>two<br>lines</li></ul><pre>a\n  b</pre></body>";
        let expected = "# A & B\n\n# Hello, world\n\nSee this (https://a.org/d?x=1&y) and that.\n\n\
            - one\n- two\nlines\n\na\n  b";
        assert_eq!(text(page), expected);
    }

    #[test]
    fn malformed_html_is_rendered_as_text() {
        for (html, expected) in [
            ("a < b & c", "a < b & c"),
            (
                "&unknown; &#x41;&#66; &#xffffffff;",
                "&unknown; AB &#xffffffff;",
            ),
            ("x<script>y", "x"),
            ("x<!-- y", "x"),
            ("x<a href=\"y", "x"),
            ("x</a></pre>y", "x\n\ny"),
            ("<a href=javascript:x>y</a>", "y"),
            ("<img src=x alt='a picture'>", "a picture"),
            ("<SCRIPT>x</ScRiPt >y", "y"),
            ("<", "<"),
            ("", ""),
        ] {
            assert_eq!(text(html), expected, "{html}");
        }
    }

    #[test]
    fn no_page_takes_long() {
        for part in [
            "<",
            "<a ",
            "<!--",
            "<script>",
            "</script",
            "&",
            "<a href='",
            "<p>",
        ] {
            drop(text(&part.repeat(200_000)));
        }
    }
}
