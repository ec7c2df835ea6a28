//! `docs/crash-matrix.md`: every row lists what is lost and repeated, and the tests that show it.

use crate::pages::{Page, quoted};
use crate::sources::all_tests;

#[test]
fn every_row_is_shown_by_tests_that_exist() {
    let tests = all_tests();
    let rows = Page::read("docs/crash-matrix.md").rows();
    assert!(rows.len() > 20, "{} rows", rows.len());
    for row in rows {
        let [place, lost, repeated, shown] = row.as_slice() else {
            panic!("{row:?} has not four cells");
        };
        assert!(!lost.is_empty() && !repeated.is_empty(), "{place}");
        let named = quoted(shown);
        assert!(!named.is_empty(), "{place}: by which test?");
        for name in named {
            assert!(tests.contains(name), "{place}: there is no test {name}");
        }
    }
}
