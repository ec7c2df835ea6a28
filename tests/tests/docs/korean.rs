//! `docs/ko/README.md` is the README in Korean: the same commands, links and sections.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use crate::pages::Page;

const KOREAN: &str = "docs/ko/README.md";

/// Files and addresses that a page links to, files by their paths in the repository.
fn targets(page: &Page) -> BTreeSet<String> {
    let prose = page.prose();
    let ends = prose.split("](").skip(1);
    let targets = ends.filter_map(|rest| Some(rest.split_once(')')?.0));
    let outside = targets.filter(|target| !target.starts_with('#'));
    outside
        .map(|target| match target.starts_with("https://") {
            true => target.to_owned(),
            false => in_repository(&page.path, target),
        })
        .collect()
}

/// `../cli.md#a` on `docs/ko/README.md` is `docs/cli.md#a`.
fn in_repository(page: &str, target: &str) -> String {
    let beside = Path::new(page).parent().unwrap().join(target);
    let mut path = PathBuf::new();
    for part in beside.components() {
        match part {
            Component::ParentDir => assert!(path.pop(), "{page}: {target} leads out"),
            part => path.push(part),
        }
    }
    path.to_str().unwrap().to_owned()
}

fn headings(page: &Page) -> Vec<usize> {
    let prose = page.prose();
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| line.split(' ').next().unwrap().len())
        .collect()
}

#[test]
fn korean_readme_has_the_same_commands_links_and_sections() {
    let (english, korean) = (Page::read("README.md"), Page::read(KOREAN));
    for language in ["sh", "console", "text"] {
        assert_eq!(
            english.fences(language),
            korean.fences(language),
            "{language}"
        );
    }
    assert_eq!(headings(&english), headings(&korean));
    assert_eq!(english.rows().len(), korean.rows().len());
    let mut of_english = targets(&english);
    // Each links to the other.
    assert!(of_english.remove(KOREAN));
    let mut of_korean = targets(&korean);
    assert!(of_korean.remove("README.md"));
    let missing: Vec<_> = of_english.difference(&of_korean).collect();
    let more: Vec<_> = of_korean.difference(&of_english).collect();
    assert!(
        missing.is_empty() && more.is_empty(),
        "missing: {missing:?}, more: {more:?}"
    );
}
