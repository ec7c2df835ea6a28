//! `docs/README.md` is the index of all pages: each is listed once, under its kind.

use std::collections::BTreeMap;

use crate::pages::Page;

const INDEX: &str = "docs/README.md";

/// Pages linked in the first cells of a section's table.
fn listed(index: &Page, heading: &str) -> Vec<String> {
    let rows = index.section(heading).rows();
    let listed = rows.iter().map(|row| {
        assert!(row.iter().all(|cell| !cell.is_empty()), "{row:?}");
        let (_, target) = row[0].split_once("](").unwrap();
        format!("docs/{}", target.strip_suffix(')').unwrap())
    });
    listed.collect()
}

#[test]
fn every_page_is_in_the_index_once_under_its_kind() {
    let index = Page::read(INDEX);
    let sections = [
        "## Tutorials",
        "## How-to guides",
        "## Reference",
        "## Explanation",
    ];
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    for heading in sections {
        for page in listed(&index, heading) {
            let kind = match page.split('/').nth(1) {
                Some("tutorials") => sections[0],
                Some("how-to") => sections[1],
                _ if heading == sections[3] => sections[3],
                _ => sections[2],
            };
            assert_eq!(heading, kind, "{page}");
            *times.entry(page).or_default() += 1;
        }
    }
    let pages = Page::all();
    let of_docs = pages.iter().map(|page| page.path.clone());
    let of_docs = of_docs.filter(|path| path.starts_with("docs/") && path != INDEX);
    let once: BTreeMap<String, usize> = of_docs.map(|path| (path, 1)).collect();
    assert_eq!(times, once);
}
