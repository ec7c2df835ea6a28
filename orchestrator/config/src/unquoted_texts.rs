//! Texts without quotes that the parser of 0.0.3 accepted (`COMPAT-1`): values that begin with `@`, such as
//! `@goondan/base`, and values that contain `: `.

/// Characters with which a value that is not a plain text begins.
const NOT_PLAIN: [char; 11] = ['"', '\'', '[', '{', '|', '>', '&', '*', '!', '#', '%'];

/// A line that was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QuotedLine {
    /// Counted from 1.
    pub(crate) number: usize,
    /// The line with quotes, without indentation.
    pub(crate) text: String,
}

/// Puts such texts in quotes. Returns the whole text and the changed lines; `None` without any. Lines
/// of block scalars are unchanged.
pub(crate) fn with_quotes(text: &str) -> Option<(String, Vec<QuotedLine>)> {
    let mut changed = Vec::new();
    let mut lines = Vec::new();
    // Indentation of the field whose value is a block scalar.
    let mut block: Option<usize> = None;
    for (number, line) in (1..).zip(text.split('\n')) {
        let indent = line.len() - line.trim_start().len();
        if block.is_some_and(|outer| line.trim().is_empty() || indent > outer) {
            lines.push(line.to_owned());
            continue;
        }
        block = begins_block(line).then_some(indent);
        match quoted_line(line) {
            Some(quoted) => {
                let text = quoted.trim().to_owned();
                changed.push(QuotedLine { number, text });
                lines.push(quoted);
            }
            None => lines.push(line.to_owned()),
        }
    }
    (!changed.is_empty()).then(|| (lines.join("\n"), changed))
}

fn begins_block(line: &str) -> bool {
    let last = line.split_whitespace().next_back().unwrap_or_default();
    let mark = last.trim_end_matches(|c: char| matches!(c, '+' | '-') || c.is_ascii_digit());
    matches!(mark, "|" | ">")
}

/// The line with its text in quotes; `None` if nothing needs them.
pub(crate) fn quoted_line(line: &str) -> Option<String> {
    let content = line.trim_start();
    if content.starts_with('#') {
        return None;
    }
    let item = content.trim_start_matches("- ");
    let (head, value) = match item.split_once(": ") {
        Some((name, value)) if is_name(name) => (line.len() - value.len(), value),
        _ => (line.len() - item.len(), item),
    };
    let value = value.trim_start();
    let head = line.get(..head).unwrap_or_default();
    if value.starts_with(['{', '[']) {
        let flow = quoted_flow(value)?;
        return Some(format!("{head}{flow}"));
    }
    let is_item = head.trim_end().ends_with(['-', ':']);
    let (plain, comment) = split_comment(value);
    let needs = plain.starts_with('@') || plain.contains(": ");
    if !is_item || !needs || plain.starts_with(NOT_PLAIN) {
        return None;
    }
    // A list item with a colon is a mapping, even to the older parser.
    if plain.contains(": ") && !head.trim_end().ends_with(':') {
        return None;
    }
    Some(format!("{head}{}{comment}", in_quotes(plain)))
}

/// True for the name of a field.
fn is_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    !name.is_empty() && name.chars().all(is_part)
}

/// A value and the comment behind it, with the space before.
fn split_comment(value: &str) -> (&str, &str) {
    let end = value.find(" #").unwrap_or(value.len());
    let (plain, _) = value.split_at_checked(end).unwrap_or((value, ""));
    let plain = plain.trim_end();
    (plain, value.get(plain.len()..).unwrap_or_default())
}

fn in_quotes(text: &str) -> String {
    match text.contains(['"', '\\']) {
        true => format!("'{}'", text.replace('\'', "''")),
        false => format!("\"{text}\""),
    }
}

/// A flow mapping or list whose values that begin with `@` are in quotes; `None` without any.
fn quoted_flow(text: &str) -> Option<String> {
    let mut quoted = String::with_capacity(text.len());
    let mut is_changed = false;
    let mut quote: Option<char> = None;
    // The last character that is not a space.
    let mut before = ' ';
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if quote.is_none() && c == '@' && matches!(before, '{' | '[' | ',' | ':') {
            let ends = |c: char| matches!(c, ',' | '}' | ']') || c.is_whitespace();
            let end = rest.find(ends).unwrap_or(rest.len());
            let (name, after) = rest.split_at_checked(end)?;
            quoted.push_str(&in_quotes(name));
            (rest, before, is_changed) = (after, '"', true);
            continue;
        }
        match quote {
            Some(open) if open == c => quote = None,
            None if matches!(c, '"' | '\'') => quote = Some(c),
            Some(_) | None => {}
        }
        if !c.is_whitespace() {
            before = c;
        }
        quoted.push(c);
        rest = rest.get(c.len_utf8()..).unwrap_or_default();
    }
    is_changed.then_some(quoted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compat_1_texts_without_quotes_are_quoted() {
        for (line, expected) in [
            ("    - name: @goondan/base", "    - name: \"@goondan/base\""),
            (
                "  - {name: @goondan/base, version: ^0.0.3} # ours",
                "  - {name: \"@goondan/base\", version: ^0.0.3} # ours",
            ),
            (
                "package: @goondan/base # ours",
                "package: \"@goondan/base\" # ours",
            ),
            ("- @goondan/base", "- \"@goondan/base\""),
            (
                "  description: Answer: \"yes\"",
                "  description: 'Answer: \"yes\"'",
            ),
            (
                "  description: Answer like this: short",
                "  description: \"Answer like this: short\"",
            ),
        ] {
            assert_eq!(quoted_line(line).as_deref(), Some(expected), "{line}");
        }
        for line in [
            "",
            "# name: @goondan/base",
            "  - name: \"@goondan/base\"",
            "  - {name: '@goondan/base', to: \"a, @b\"}",
            "  url: https://example.org",
            "  - match: {event: a}",
            "  mail: ann@example.org",
            "key: |",
        ] {
            assert_eq!(quoted_line(line), None, "{line}");
        }
    }

    #[test]
    fn compat_1_block_scalars_stay_as_they_are() {
        let text = "system: |\n  to: @ann: hi\n\n  from: @bob\nname: @base\n";
        let (quoted, changed) = with_quotes(text).unwrap();
        assert_eq!(quoted, text.replace("name: @base", "name: \"@base\""));
        assert_eq!(changed.len(), 1);
        assert_eq!(changed[0].number, 5);
        assert_eq!(with_quotes("a: 1\n"), None);
    }
}
