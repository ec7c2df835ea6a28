//! Checks links and paths.

use crate::pages::{Page, quoted, repository};

/// Anchor of a heading on the usual code hosts.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn anchors(page: &Page) -> Vec<String> {
    let prose = page.prose();
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| anchor(line.trim_start_matches('#').trim()))
        .collect()
}

/// The targets of `[text](target)`.
fn targets(prose: &str) -> Vec<&str> {
    let ends = prose.split("](").skip(1);
    ends.filter_map(|rest| Some(rest.split_once(')')?.0))
        .collect()
}

#[test]
fn every_link_leads_somewhere() {
    let mut checked = 0;
    for page in Page::all() {
        let dir = repository().join(&page.path).parent().unwrap().to_owned();
        for target in targets(&page.prose()) {
            if target.starts_with("https://") {
                continue;
            }
            let (path, wanted) = target.split_once('#').unwrap_or((target, ""));
            let file = if path.is_empty() {
                repository().join(&page.path)
            } else {
                dir.join(path)
            };
            assert!(file.exists(), "{}: no {target}", page.path);
            if !wanted.is_empty() {
                let file = file.canonicalize().unwrap();
                let inside = file.strip_prefix(repository()).unwrap();
                let there = Page::read(inside.to_str().unwrap());
                let known = anchors(&there);
                assert!(
                    known.iter().any(|known| known == wanted),
                    "{}: no heading for {target}; there are {known:?}",
                    page.path
                );
            }
            checked += 1;
        }
    }
    assert!(checked > 50, "only {checked} links were found");
}

#[test]
fn every_path_in_back_quotes_exists() {
    let roots = [
        "protocol/",
        "orchestrator/",
        "agent-process/",
        "connector-process/",
        "gdn/",
    ];
    let mut checked = 0;
    for page in Page::all() {
        let prose = page.prose();
        for path in quoted(&prose) {
            let is_ours = roots.iter().any(|root| path.starts_with(root))
                || path.starts_with("docs/")
                || path.starts_with("tests/")
                || path.starts_with("systemd/");
            if is_ours && !path.contains(char::is_whitespace) {
                assert!(repository().join(path).exists(), "{}: no {path}", page.path);
                checked += 1;
            }
        }
    }
    assert!(checked > 30, "only {checked} paths were found");
}

#[test]
fn lines_are_short_outside_tables_and_fences() {
    for page in Page::all() {
        for line in page.prose().lines() {
            let is_one_word = !line.trim().contains(' ');
            let is_bound = line.starts_with('|')
                || line.contains("](")
                || line.contains("http")
                || is_one_word;
            assert!(
                is_bound || line.chars().count() <= 120,
                "{}: {line}",
                page.path
            );
        }
    }
}

/// The license in the package manifests matches the license texts at the top level.
#[test]
fn each_licence_of_the_packages_has_its_text() {
    let read = |file: &str| std::fs::read_to_string(repository().join(file)).unwrap();
    assert!(read("Cargo.toml").contains("license = \"MIT OR Apache-2.0\""));
    assert!(read("LICENSE-MIT").contains("Permission is hereby granted, free of charge"));
    assert!(read("LICENSE-APACHE").contains("Version 2.0, January 2004"));
}
