//! `docs/architecture.md`: the tests that it cites as proof exist.

use crate::pages::{Page, quoted, repository};
use crate::sources::all_tests;

/// Minimum underscores in a test's name: names of other items have fewer.
const TEST_UNDERSCORES: usize = 3;

/// Modules that a file of the core declares, without test modules.
fn modules_of(file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(repository().join(file)).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let declared = lines.windows(2).filter_map(|pair| {
        let module = pair[1].strip_suffix(';')?;
        let module = module.trim_start_matches("pub(crate) ");
        let name = module.trim_start_matches("pub ").strip_prefix("mod ")?;
        (pair[0] != "#[cfg(test)]").then(|| name.to_owned())
    });
    declared.collect()
}

#[test]
fn every_module_of_the_fleet_and_of_calls_has_its_row() {
    let page = Page::read("docs/architecture.md");
    let rows = page.rows();
    let listed: Vec<&str> = rows.iter().flat_map(|row| quoted(&row[0])).collect();
    for file in ["fleet", "calls"] {
        let modules = modules_of(&format!("orchestrator/core/src/{file}.rs"));
        assert!(modules.len() > 10, "only {modules:?} were found");
        for module in modules {
            assert!(
                listed.contains(&module.as_str()),
                "`{module}` of `{file}` has no row"
            );
        }
    }
}

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
