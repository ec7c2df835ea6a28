//! `docs/crash-matrix.md`: every crash point names its tests, which exist.

use crate::pages::{Page, quoted};
use crate::sources::all_tests;

#[test]
fn every_crash_point_is_covered_by_tests_that_exist() {
    let tests = all_tests();
    let page = Page::read("docs/crash-matrix.md");
    let points: Vec<&str> = page.text.split("\n* ").skip(1).collect();
    assert!(points.len() > 20, "{} crash points", points.len());
    for point in points {
        let point = point.split("\n\n").next().unwrap();
        let named = quoted(point).into_iter();
        let named: Vec<&str> = named.filter(|name| name.contains("::")).collect();
        assert!(!named.is_empty(), "{point}: by which test?");
        for name in named {
            assert!(tests.contains(name), "{point}: there is no test {name}");
        }
    }
}
