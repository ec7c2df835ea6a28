//! `docs/architecture.md`: what it names as proof exists.

use crate::pages::{Page, quoted, repository};
use crate::sources::all_tests;

/// Underscores from which on a name in lower case is a test's: names of other things are shorter.
const TEST_UNDERSCORES: usize = 3;

#[test]
fn every_test_and_source_file_that_is_named_exists() {
    let tests = all_tests();
    let page = Page::read("docs/architecture.md");
    let (mut named_tests, mut named_files) = (0, 0);
    let prose = page.prose();
    for name in quoted(&prose) {
        let is_test = name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
            && name.matches('_').count() >= TEST_UNDERSCORES;
        if is_test {
            let end = format!("::{name}");
            let exists = tests.iter().any(|test| test.ends_with(&end));
            assert!(exists, "there is no test `{name}`");
            named_tests += 1;
        } else if name.contains('/') && name.ends_with(".rs") {
            assert!(repository().join(name).is_file(), "there is no `{name}`");
            named_files += 1;
        }
    }
    assert!(named_tests > 8, "only {named_tests} tests were found");
    assert!(named_files > 8, "only {named_files} files were found");
}
