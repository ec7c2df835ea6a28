//! Writes YAML values in the style that people use: short collections in braces.

use crate::tree::{MappingEntry, YamlNode, YamlValue};

/// Longest line with a collection in braces, in characters.
const MAX_FLOW_CHARS: usize = 90;

/// Words that a parser could take for something else than text.
const RESERVED: [&str; 12] = [
    "true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf", "infinity",
];

/// The value in one line.
pub(super) fn flow(node: &YamlNode) -> String {
    match &node.value {
        YamlValue::Null => "null".to_owned(),
        YamlValue::Bool(value) => value.to_string(),
        YamlValue::Number(value) => value.to_string(),
        YamlValue::Text(value) => text(value),
        YamlValue::List(items) => {
            let items: Vec<String> = items.iter().map(flow).collect();
            format!("[{}]", items.join(", "))
        }
        YamlValue::Mapping(entries) => {
            let entries: Vec<String> = entries.iter().map(flow_entry).collect();
            format!("{{{}}}", entries.join(", "))
        }
    }
}

/// A field in one line.
pub(super) fn flow_entry(entry: &MappingEntry) -> String {
    format!("{}: {}", text(&entry.key), flow(&entry.node))
}

/// A text, in quotes unless it is certainly read as text everywhere.
pub(super) fn text(value: &str) -> String {
    let is_first = |c: char| c.is_alphabetic() || c == '_' || c == '/';
    let is_inner = |c: char| c.is_alphanumeric() || "_-./@ ".contains(c);
    let is_plain = (value.starts_with(is_first) || value.starts_with("./"))
        && value.chars().all(is_inner)
        && !value.ends_with(' ')
        && !RESERVED.contains(&value.to_lowercase().as_str());
    match is_plain {
        true => value.to_owned(),
        false => serde_json::Value::from(value).to_string(),
    }
}

/// A field whose line begins after `indent` spaces, which are not included for the first line.
pub(super) fn entry(entry: &MappingEntry, indent: usize) -> String {
    let key = text(&entry.key);
    let value = value(&entry.node, indent, key.chars().count());
    format!("{key}:{value}")
}

/// The text after the colon of a field.
pub(super) fn value(node: &YamlNode, indent: usize, key_chars: usize) -> String {
    if let YamlValue::Text(text) = &node.value
        && let Some(block) = literal(text, indent + 2)
    {
        return format!(" {block}");
    }
    if is_short(node, indent + key_chars) {
        return format!(" {}", flow(node));
    }
    format!("\n{}{}", pad(indent + 2), lines(node, indent + 2))
}

/// The item of a list, without its dash. Further lines begin after `indent` spaces.
pub(super) fn item(node: &YamlNode, indent: usize) -> String {
    match is_short(node, indent) {
        true => flow(node),
        false => lines(node, indent),
    }
}

/// A whole document.
pub(crate) fn document(node: &YamlNode) -> String {
    format!("{}\n", lines(node, 0))
}

/// A collection in lines that begin after `indent` spaces, which are not included for the first.
fn lines(node: &YamlNode, indent: usize) -> String {
    let lines: Vec<String> = match &node.value {
        YamlValue::Mapping(entries) if !entries.is_empty() => {
            entries.iter().map(|it| entry(it, indent)).collect()
        }
        YamlValue::List(items) if !items.is_empty() => {
            let items = items.iter();
            items
                .map(|it| format!("- {}", item(it, indent + 2)))
                .collect()
        }
        YamlValue::Null
        | YamlValue::Bool(_)
        | YamlValue::Number(_)
        | YamlValue::Text(_)
        | YamlValue::List(_)
        | YamlValue::Mapping(_) => vec![flow(node)],
    };
    lines.join(&format!("\n{}", pad(indent)))
}

fn is_short(node: &YamlNode, before: usize) -> bool {
    match &node.value {
        YamlValue::List(_) | YamlValue::Mapping(_) => {
            let flow = flow(node);
            before + flow.chars().count() <= MAX_FLOW_CHARS && !flow.contains("\\n")
        }
        YamlValue::Null | YamlValue::Bool(_) | YamlValue::Number(_) | YamlValue::Text(_) => true,
    }
}

/// A text of several lines as a block; `None` if a block cannot express it.
fn literal(text: &str, indent: usize) -> Option<String> {
    let (body, mark) = match text.strip_suffix('\n') {
        Some(body) => (body, "|"),
        None => (text, "|-"),
    };
    let is_shown =
        |c: char| c == '\n' || !(c.is_control() || ['\u{2028}', '\u{2029}'].contains(&c));
    let is_block = body.contains('\n')
        && !body.starts_with([' ', '\n'])
        && !body.ends_with([' ', '\n'])
        && body.chars().all(is_shown);
    is_block.then(|| {
        let lines = body.split('\n').map(|line| match line.is_empty() {
            true => "\n".to_owned(),
            false => format!("\n{}{line}", pad(indent)),
        });
        format!("{mark}{}", lines.collect::<String>())
    })
}

pub(super) fn pad(indent: usize) -> String {
    " ".repeat(indent)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;
    use crate::misplaced_fields;
    use crate::report::ProblemReport;
    use crate::tree;

    fn read(text: &str) -> YamlNode {
        let mut report = ProblemReport::of(&misplaced_fields::VOCABULARY);
        let file = report.add_file(Path::new("x.yaml"), text);
        let mut found = tree::parse(file, text, &mut report).unwrap();
        found.pop().unwrap()
    }

    #[test]
    fn a_written_document_means_the_same() {
        let long =
            "a line that is long enough to need a line of its own in the file, as in a prompt";
        let value = json!({
            "kind": "Agent",
            "empty": {}, "none": [], "nothing": null, "yes": true, "1": 1.5,
            "texts": ["", "no", "1", "- a", "a: b", "a #b", "@x", " x", "x ", "é ü", "./a/b.ts", "*", "\u{1}"],
            "block": "one\n  two\n\nthree", "ended": "one\ntwo\n", "odd": "\none", "twice": "a\nb\n\n",
            "long": {"first": long, "second": [long, {"third": long, "fourth": [[long]]}]},
            "short": [{"ref": {"kind": "Tool", "name": "bash", "package": "@goondan/base"}}],
        });
        let node = read(&serde_json::to_string_pretty(&value).unwrap());
        let written = document(&node);
        assert_eq!(read(&written).to_json(), value, "{written}");
        assert!(
            written.contains("block: |-\n  one\n    two\n\n  three\n"),
            "{written}"
        );
        let short = "short: [{ref: {kind: Tool, name: bash, package: \"@goondan/base\"}}]\n";
        assert!(written.contains(short), "{written}");
        assert_eq!(read(&flow(&node)).to_json(), value);
    }
}
