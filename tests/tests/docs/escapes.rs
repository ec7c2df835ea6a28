//! The numbers and the exceptions in `docs/security.md` match the suites of escapes and ordinary
//! work.

use crate::pages::{Page, repository};

/// Names of the cases of a suite, with the rest of their lines.
fn cases(path: &str) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(repository().join(path)).unwrap();
    let cases = text.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("case(\"")?.split_once("\", ")?;
        Some((name.to_owned(), rest.to_owned()))
    });
    cases.collect()
}

/// A section of the page, on one line.
fn section(heading: &str) -> String {
    let page = Page::read("docs/security.md");
    let (_, section) = page.text.split_once(&format!("## {heading}\n")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let words: Vec<&str> = section.split_whitespace().collect();
    words.join(" ")
}

#[test]
fn sec_3_the_page_counts_the_ways_out_and_names_the_open_ones() {
    let tried = cases("tests/tests/black_box/escapes/escape.py");
    let section = section("Ways out that are tried");
    assert!(section.contains(&format!(" tries {} ways out", tried.len())));
    let (_, open) = section
        .split_once("(#limits-of-the-confinement): ")
        .unwrap();
    let (open, _) = open.split_once(". ").unwrap();
    let only_full = tried.iter().filter(|(_, rest)| rest.contains("full=True"));
    let names: Vec<&str> = only_full.map(|(name, _)| name.as_str()).collect();
    assert_eq!(open, names.join("; "));
}

#[test]
fn sec_10_the_page_names_the_ordinary_work_that_is_refused() {
    let done = cases("tests/tests/black_box/ordinary/work.py");
    let section = section("Ordinary work");
    assert!(section.contains(&format!(" does {} pieces", done.len())));
    let (_, lists) = section.split_once(" everything except: * ").unwrap();
    let (lists, _) = lists.split_once(" The others").unwrap();
    let (machine, landlock) = lists
        .split_once(" At `landlock`, these are refused, too: * ")
        .unwrap();
    for (list, keyword) in [(machine, "confined=False"), (landlock, "landlock=False")] {
        let refused = done.iter().filter(|(_, rest)| rest.contains(keyword));
        let names: Vec<&str> = refused.map(|(name, _)| name.as_str()).collect();
        assert_eq!(list, names.join(" * "), "{keyword}");
    }
}

#[test]
fn sec_3_the_page_counts_the_ways_past_a_list_of_hosts() {
    let tried = cases("tests/tests/black_box/escapes/egress.py");
    let section = section("Ways past a list of hosts");
    assert!(section.contains(&format!(" tries {} ways past", tried.len())));
    let closed = tried
        .iter()
        .filter(|(_, rest)| rest.ends_with("free=False)"));
    assert_eq!(closed.count(), 2, "the page names two that need more");
}
