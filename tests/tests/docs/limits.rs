//! The values in `docs/limits.md` match the limits in the sources.

use std::collections::BTreeMap;

use crate::pages::{Page, repository};

const FILES: [&str; 23] = [
    "protocol/src/limits.rs",
    "protocol/cli-agents/src/limits.rs",
    "orchestrator/src/limits.rs",
    "orchestrator/core/src/limits.rs",
    "orchestrator/durable/src/limits.rs",
    "orchestrator/durable/writers/src/limits.rs",
    "orchestrator/store/src/limits.rs",
    "orchestrator/vault/src/limits.rs",
    "orchestrator/oauth/src/limits.rs",
    "orchestrator/merge-queue/src/limits.rs",
    "orchestrator/tasks/src/limits.rs",
    "orchestrator/trees/src/limits.rs",
    "orchestrator/proposals/src/limits.rs",
    "orchestrator/checkpoints/src/limits.rs",
    "orchestrator/bundles/src/limits.rs",
    "orchestrator/packages/src/limits.rs",
    "orchestrator/replication/src/limits.rs",
    "orchestrator/replication/disk/src/limits.rs",
    "orchestrator/replica/src/limits.rs",
    "connector-process/src/limits.rs",
    "gdn/studio/src/limits.rs",
    "gdn/src/commands/upgrade/limits.rs",
    "gdn/src/commands/incident/limits.rs",
];

/// Sentences of other pages that state limits.
const SENTENCES: [(&str, &str); 10] = [
    (
        "docs/protocol.md",
        "Sent every {HEARTBEAT_INTERVAL_MS} ms. A child that sends nothing, not even `pong`, for \
         {HEARTBEAT_TIMEOUT_MS} ms is killed",
    ),
    (
        "docs/connectors.md",
        "A template has at most {MAX_HEADER_TEMPLATE_BYTES} bytes.",
    ),
    (
        "docs/connectors.md",
        "A value is one line of at most {MAX_HEADER_VALUE_CHARS} characters, a header has at most \
         {MAX_HEADER_CHARS},",
    ),
    (
        "docs/connectors.md",
        "A payload has at most {PAYLOAD_BYTES_MAX} bytes of JSON.",
    ),
    (
        "docs/tools.md",
        "Returns the latest {INBOX_LISTED_EVENTS} events",
    ),
    (
        "docs/control-api.md",
        "a client with more than {CLIENT_QUEUE_FRAMES} unread frames",
    ),
    (
        "docs/control-api.md",
        "**{UNGREETED_CONNECTIONS} connections before their greeting.**",
    ),
    (
        "docs/control-api.md",
        "**{CONTROL_CONNECTIONS} greeted connections that do not wait.**",
    ),
    (
        "docs/control-api.md",
        "**{CONTROL_CONNECTIONS_RESERVED} more, if all {CONTROL_CONNECTIONS} have open requests**",
    ),
    (
        "docs/control-api.md",
        "**{WAITING_CONNECTIONS} waiting connections, and {CONTROL_REQUESTS_OPEN} open requests \
         of a connection.**",
    ),
];

/// The public constants of a file of limits: name and expression.
fn constants(text: &str) -> Vec<(String, String)> {
    let items = text.split("\npub").skip(1);
    items
        .filter_map(|item| {
            let (_, item) = item.split_once("const ")?;
            let (name, item) = item.split_once(':')?;
            let (_, item) = item.split_once('=')?;
            Some((name.to_owned(), item.split_once(';')?.0.trim().to_owned()))
        })
        .collect()
}

/// Evaluates a sum of products of numbers and known names.
fn value(expression: &str, known: &BTreeMap<String, u64>) -> u64 {
    let factor = |text: &str| {
        let text = text.trim().replace('_', "");
        text.parse().ok()
    };
    let factor = |text: &str| {
        factor(text)
            .or_else(|| known.get(text.trim()).copied())
            .unwrap_or_else(|| panic!("`{text}` in `{expression}` is not known"))
    };
    let terms = expression.split('+');
    terms
        .map(|term| term.split('*').map(factor).product::<u64>())
        .sum()
}

/// Evaluates a value of the page, such as `16 MiB`, in the unit of the constant.
fn shown_value(name: &str, text: &str) -> u64 {
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let factor = match unit {
        "" | "%" | "ms" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "s" if name.ends_with("_S") => 1,
        "s" => 1_000,
        "min" => 60_000,
        "h" => 3_600_000,
        "day" | "days" if name.ends_with("_DAYS") => 1,
        "days" => 86_400_000,
        _ => panic!("{name}: `{unit}` is not a known unit"),
    };
    let number: u64 = number
        .parse()
        .unwrap_or_else(|error| panic!("{name}: `{number}`: {error}"));
    number * factor
}

/// Names and values of a section, from lines such as ``* `NAME`, 16 MiB: meaning``.
fn shown(section: &str) -> Vec<(String, u64)> {
    let lines = section.lines().filter_map(|line| line.strip_prefix("* "));
    lines
        .map(|line| {
            let parts = line.strip_prefix('`').and_then(|line| {
                let (name, line) = line.split_once("`, ")?;
                let (value, _) = line.split_once(": ")?;
                Some((name, value))
            });
            let (name, value) = parts.unwrap_or_else(|| panic!("`{line}` is not a limit"));
            (name.to_owned(), shown_value(name, value))
        })
        .collect()
}

#[test]
fn every_shown_limit_exists_with_its_value() {
    let page = Page::read("docs/limits.md");
    let mut known = BTreeMap::new();
    let mut sections = 0;
    for file in FILES {
        let text = std::fs::read_to_string(repository().join(file)).unwrap();
        let mut values = BTreeMap::new();
        for (name, expression) in constants(&text) {
            let value = value(&expression, &known);
            known.insert(name.clone(), value);
            values.insert(name, value);
        }
        assert!(!values.is_empty(), "{file} has no constants");
        let Some((_, section)) = page.text.split_once(&format!("(`{file}`)\n")) else {
            continue;
        };
        sections += 1;
        let limits = shown(section.split("\n#").next().unwrap());
        assert!(!limits.is_empty(), "docs/limits.md: {file} has no limits");
        for (name, value) in limits {
            let expected = values.get(&name).copied();
            assert_eq!(expected, Some(value), "docs/limits.md: {name} of {file}");
        }
    }
    let headings = page.text.matches("\n## ").count();
    assert_eq!(sections, headings, "docs/limits.md has an unknown section");
}

#[test]
fn every_sentence_with_a_limit_states_its_value() {
    let mut known = BTreeMap::new();
    for file in FILES {
        let text = std::fs::read_to_string(repository().join(file)).unwrap();
        for (name, expression) in constants(&text) {
            let value = value(&expression, &known);
            known.insert(name, value);
        }
    }
    for (page, sentence) in SENTENCES {
        let text = Page::read(page).text;
        let words: Vec<&str> = text.split_whitespace().collect();
        let mut parts = sentence.split('{');
        let mut expected = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (name, rest) = part.split_once('}').unwrap();
            expected.push_str(&format!("{}{rest}", known[name]));
        }
        assert!(words.join(" ").contains(&expected), "{page}: {expected}");
    }
}
