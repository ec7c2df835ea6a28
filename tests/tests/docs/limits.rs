//! The tables in `docs/limits.md` match the limits in the sources.

use std::collections::BTreeMap;

use crate::pages::{Page, repository};

const FILES: [&str; 21] = [
    "protocol/src/limits.rs",
    "protocol/cli-agents/src/limits.rs",
    "orchestrator/src/limits.rs",
    "orchestrator/core/src/limits.rs",
    "orchestrator/durable/src/limits.rs",
    "orchestrator/durable/writers/src/limits.rs",
    "orchestrator/store/src/limits.rs",
    "orchestrator/vault/src/limits.rs",
    "orchestrator/oauth/src/limits.rs",
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

#[test]
fn every_limit_has_its_row_with_its_value() {
    let page = Page::read("docs/limits.md");
    let mut known = BTreeMap::new();
    for file in FILES {
        let text = std::fs::read_to_string(repository().join(file)).unwrap();
        let (_, table) = page.text.split_once(&format!("(`{file}`)\n")).unwrap();
        let table = Page {
            path: page.path.clone(),
            text: table.split("\n#").next().unwrap().to_owned(),
        };
        let shown: BTreeMap<String, String> = table
            .rows()
            .into_iter()
            .map(|row| (row[0].trim_matches('`').to_owned(), row[1].clone()))
            .collect();
        let mut expected = BTreeMap::new();
        for (name, expression) in constants(&text) {
            let value = value(&expression, &known);
            known.insert(name.clone(), value);
            expected.insert(name, value.to_string());
        }
        assert!(!expected.is_empty());
        assert_eq!(shown, expected, "docs/limits.md does not match {file}");
    }
}
