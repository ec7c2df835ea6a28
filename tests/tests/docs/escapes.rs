//! The lists of escape methods and ordinary work in `docs/security.md` match the test suites.

use crate::pages::{Page, repository};

/// The names in a cell that lists several.
fn names(cell: &str) -> impl Iterator<Item = &str> {
    cell.split("; ")
}

/// Escape methods by name, with true for those that only the level `full` closes.
fn tried() -> Vec<(String, bool)> {
    let path = repository().join("tests/tests/black_box/escapes/escape.py");
    let text = std::fs::read_to_string(path).unwrap();
    let cases = text.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("case(\"")?.split_once("\", ")?;
        Some((name.to_owned(), rest.contains("full=True")))
    });
    cases.collect()
}

#[test]
fn sec_3_every_way_out_that_is_tried_has_its_row() {
    let page = Page::read("docs/security.md");
    let (_, table) = page
        .text
        .split_once("## Ways out that are tried\n")
        .unwrap();
    let table = table.split("\n## ").next().unwrap();
    let mut tried = tried();
    assert!(table.contains(&format!("`escape.py` tries {} ways out", tried.len())));
    let rows = table.lines().filter_map(|line| line.strip_prefix("| "));
    let mut shown: Vec<(String, bool)> = rows
        .skip(2)
        .flat_map(|row| {
            let cells: Vec<&str> = row.split(" | ").collect();
            let &[_, methods, _, at_landlock, _] = cells.as_slice() else {
                panic!("{row}");
            };
            let is_open = at_landlock == "open";
            names(methods).map(move |name| (name.to_owned(), is_open))
        })
        .collect();
    shown.sort_unstable();
    tried.sort_unstable();
    assert_eq!(shown, tried);
}

#[test]
fn sec_10_every_piece_of_ordinary_work_has_its_row() {
    let path = repository().join("tests/tests/black_box/ordinary/work.py");
    let text = std::fs::read_to_string(path).unwrap();
    let cases = text.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("case(\"")?.split_once("\", ")?;
        let at_full = !rest.contains("confined=False");
        Some((name, at_full, at_full && !rest.contains("landlock=False")))
    });
    let done: Vec<(&str, bool, bool)> = cases.collect();
    let page = Page::read("docs/security.md");
    let (_, table) = page.text.split_once("## Ordinary work\n").unwrap();
    let table = table.split("\n## ").next().unwrap();
    assert!(table.contains(&format!("`work.py` does {} pieces", done.len())));
    let rows = table.lines().filter_map(|line| line.strip_prefix("| "));
    let shown: Vec<(&str, bool, bool)> = rows
        .skip(2)
        .flat_map(|row| {
            let cells: Vec<&str> = row.split(" | ").collect();
            let &[work, at_full, at_landlock, "done |"] = cells.as_slice() else {
                panic!("{row}");
            };
            let (at_full, at_landlock) = (at_full == "done", at_landlock == "done");
            names(work).map(move |name| (name, at_full, at_landlock))
        })
        .collect();
    assert_eq!(shown, done);
}

#[test]
fn sec_3_every_way_past_a_list_of_hosts_has_its_row() {
    let path = repository().join("tests/tests/black_box/escapes/egress.py");
    let text = std::fs::read_to_string(path).unwrap();
    let cases = text.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("case(\"")?.split_once("\", ")?;
        Some((name, !rest.ends_with("free=False)")))
    });
    let mut tried: Vec<(&str, bool)> = cases.collect();
    let page = Page::read("docs/security.md");
    let (_, table) = page
        .text
        .split_once("## Ways past a list of hosts\n")
        .unwrap();
    let table = table.split("\n## ").next().unwrap();
    assert!(table.contains(&format!("`egress.py` tries {} ways past", tried.len())));
    let rows = table.lines().filter_map(|line| line.strip_prefix("| "));
    let mut shown: Vec<(&str, bool)> = rows
        .skip(2)
        .filter_map(|row| row.split_once(" | refused | "))
        .flat_map(|(methods, without)| {
            let leads_out = without == "leads out |";
            names(methods).map(move |name| (name, leads_out))
        })
        .collect();
    shown.sort_unstable();
    tried.sort_unstable();
    assert_eq!(shown, tried);
}
