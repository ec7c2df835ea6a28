//! `docs/glossary.md`: every name in the definitions exists.

use crate::pages::{Page, repository};
use crate::sources::{CRATES, all_sources};

/// True if the sources define this name: as an item, or as a field or variant on its own line.
fn is_defined(sources: &str, name: &str) -> bool {
    let items = [
        "struct ", "enum ", "trait ", "fn ", "mod ", "type ", "const ",
    ];
    let is_item = items.iter().any(|item| {
        let definition = format!("{item}{name}");
        let after = sources.split(&definition).skip(1);
        let mut next = after.filter_map(|rest| rest.chars().next());
        next.any(|c| !c.is_alphanumeric() && c != '_')
    });
    let is_part = sources.lines().any(|line| {
        let line = line.trim_start();
        let line = line
            .trim_start_matches("pub(crate) ")
            .trim_start_matches("pub ");
        let rest = line.strip_prefix(name);
        rest.is_some_and(|rest| rest.starts_with([':', ',', ' ', '(']))
    });
    is_item || is_part
}

/// Words with their names in code, from items such as ``* **word** (`name`): meaning``.
fn words(page: &str) -> Vec<(String, Vec<String>)> {
    let items = page.split("\n* ").skip(1);
    items
        .map(|item| {
            let item: Vec<&str> = item.split_whitespace().collect();
            let item = item.join(" ");
            let parts = item
                .split_once(" (`")
                .and_then(|(word, rest)| Some((word, rest.split_once("`): ")?.0)));
            let (word, names) = parts.unwrap_or_else(|| panic!("`{item}` has no name in code"));
            let names = names.split("`, `").map(str::to_owned).collect();
            (word.to_owned(), names)
        })
        .collect()
}

#[test]
fn every_name_in_the_glossary_exists() {
    let sources = all_sources();
    let page = Page::read("docs/glossary.md");
    let words = words(&page.text);
    assert!(words.len() > 40, "only {} words were found", words.len());
    for (word, names) in &words {
        for name in names {
            let exists = if name.contains('/') {
                repository().join(name).exists()
            } else if name.contains('.') {
                sources.contains(&format!("\"{name}\"")) || name == "limits.rs"
            } else if name.contains('-') {
                sources.contains(&format!("\"{name}\"")) || is_package(name)
            } else {
                let is_crate = |part: &&str| CRATES.iter().any(|(name, _)| name == part);
                name.split("::")
                    .all(|part| is_crate(&part) || is_defined(&sources, part))
            };
            assert!(exists, "{word}: there is no `{name}`");
        }
    }
}

fn is_package(name: &str) -> bool {
    CRATES.iter().any(|(_, dir)| {
        let manifest = std::fs::read_to_string(repository().join(dir).join("Cargo.toml")).unwrap();
        manifest.contains(&format!("name = \"{name}\""))
    })
}
