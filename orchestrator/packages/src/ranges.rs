//! What ranges mean, by the grammar that npm documents: each with versions that are in it and that are not.

use crate::requirement::Requirement;
use nodejs_semver::Version;

type Row = (
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
);

/// One version, and comparisons.
const COMPARED: &[Row] = &[
    (
        "1.2.3",
        &["1.2.3", "1.2.3+build.7"],
        &["1.2.2", "1.2.4", "1.2.3-rc.1"],
    ),
    ("=1.2.3", &["1.2.3"], &["1.2.4", "1.2.3-rc.1"]),
    ("v1.2.3", &["1.2.3"], &["1.2.4"]),
    ("1.2.3+build", &["1.2.3", "1.2.3+other"], &["1.2.4"]),
    ("1.2.3-rc.1", &["1.2.3-rc.1"], &["1.2.3", "1.2.3-rc.2"]),
    (
        ">1.2.3",
        &["1.2.4", "2.0.0"],
        &["1.2.3", "1.2.2", "2.0.0-rc.1"],
    ),
    (">=1.2.3", &["1.2.3", "9.9.9"], &["1.2.2", "1.2.3-rc.1"]),
    (
        "<1.2.3",
        &["1.2.2", "0.0.0"],
        &["1.2.3", "1.2.3-rc.1", "1.0.0-rc.1"],
    ),
    ("<=1.2.3", &["1.2.3", "1.1.9999"], &["1.2.4", "1.2.3-rc.1"]),
    (">= 1.2.3", &["1.2.3"], &["1.2.2"]),
    (
        ">1.2",
        &["1.3.0", "2.0.0"],
        &["1.2.0", "1.2.9", "1.3.0-beta"],
    ),
    (">1", &["2.0.0"], &["1.0.0", "1.9.9"]),
    (">=1.2", &["1.2.0", "1.2.8"], &["1.1.9", "1.2.0-rc.1"]),
    ("<1.2", &["1.1.9"], &["1.2.0", "1.2.0-rc.1"]),
    ("<=1.2", &["1.2.0", "1.2.9"], &["1.3.0"]),
    ("<=0.7.x", &["0.7.9", "0.6.2"], &["0.8.0"]),
    ("=0.7.x", &["0.7.2"], &["0.8.2", "0.7.0-asdf"]),
];

/// Comparisons together: all of them, or one of several sets.
const COMBINED: &[Row] = &[
    (">1.2.7 <1.3", &["1.2.8", "1.2.99"], &["1.2.7", "1.3.0"]),
    (
        ">=1.2.7 <1.3.0",
        &["1.2.7", "1.2.99"],
        &["1.2.6", "1.3.0", "1.1.0"],
    ),
    (
        "1.2.7 || >=1.2.9 <2.0.0",
        &["1.2.7", "1.2.9", "1.4.6"],
        &["1.2.8", "2.0.0"],
    ),
    (">=3 || <0.1", &["0.0.9", "3.0.0"], &["0.1.0", "2.9.9"]),
    ("~1.2.1 1.2.3", &["1.2.3"], &["1.2.1", "1.2.4"]),
    ("^1.2 ^1.4", &["1.4.0", "1.9.0"], &["1.3.0", "2.0.0"]),
    ("1 || 3", &["1.9.9", "3.0.0"], &["2.0.0", "4.0.0"]),
    ("||", &["0.0.1", "1.3.4"], &["1.0.0-rc.1"]),
];

/// From one to another.
const HYPHENS: &[Row] = &[
    (
        "1.2.3 - 2.3.4",
        &["1.2.3", "2.3.4", "2.0.0"],
        &["1.2.2", "2.3.5", "2.0.0-rc.1"],
    ),
    ("1.2 - 2.3.4", &["1.2.0"], &["1.1.9", "2.3.5"]),
    ("1.2.3 - 2.3", &["2.3.9"], &["2.4.0"]),
    ("1.2.3 - 2", &["2.9.9"], &["3.0.0"]),
    (
        "1.2.3-rc.1 - 2.4.3",
        &["1.2.3-rc.2", "1.2.3", "2.4.3"],
        &["1.2.3-beta", "1.3.0-rc.1"],
    ),
    ("x - 1.0.0", &["0.9.7", "1.0.0"], &["1.0.1"]),
];

/// Parts that are left open.
const OPEN: &[Row] = &[
    ("", &["0.0.0", "1.0.0"], &["1.0.0-rc.1"]),
    ("*", &["0.0.0", "9.1.2"], &["1.2.3-foo"]),
    ("x", &["1.2.3"], &["1.2.3-foo"]),
    ("X", &["1.2.3"], &["1.2.3-foo"]),
    (
        "1.x",
        &["1.0.0", "1.9.9"],
        &["2.0.0", "0.9.9", "1.0.0-rc.1"],
    ),
    ("1", &["1.0.0", "1.9.9"], &["2.0.0"]),
    ("1.2.x", &["1.2.0", "1.2.9"], &["1.3.0"]),
    ("1.2.*", &["1.2.0"], &["1.3.0"]),
    ("1.2", &["1.2.0", "1.2.9"], &["1.3.0", "1.1.9"]),
    ("2.x.x", &["2.1.3"], &["1.1.3", "3.1.3"]),
    ("2.*.*", &["2.1.3"], &["3.1.3"]),
];

/// Patches alone.
const TILDES: &[Row] = &[
    (
        "~1.2.3",
        &["1.2.3", "1.2.9"],
        &["1.2.2", "1.3.0", "1.2.4-rc.1"],
    ),
    ("~1.2", &["1.2.0", "1.2.9"], &["1.3.0", "1.1.9"]),
    ("~1", &["1.0.0", "1.9.9"], &["2.0.0", "0.2.3"]),
    ("~0.2.3", &["0.2.3", "0.2.9"], &["0.3.0"]),
    ("~0.2", &["0.2.0"], &["0.3.0"]),
    ("~0", &["0.0.1", "0.9.9"], &["1.0.0"]),
    ("~0.0.1", &["0.0.1", "0.0.9"], &["0.1.0", "0.1.0-alpha"]),
    (
        "~1.2.3-beta.2",
        &["1.2.3-beta.2", "1.2.3-beta.4", "1.2.3", "1.2.9"],
        &["1.2.3-beta.1", "1.2.4-beta.2"],
    ),
    ("~>3.2.1", &["3.2.2"], &["3.3.2", "3.2.0"]),
    ("~ 1.0.3", &["1.0.12"], &["1.1.0"]),
    (
        "~v0.5.4-pre",
        &["0.5.4", "0.5.5"],
        &["0.6.0", "0.5.4-alpha"],
    ),
];

/// All that does not change the first number that is not zero.
const CARETS: &[Row] = &[
    (
        "^1.2.3",
        &["1.2.3", "1.9.9"],
        &["1.2.2", "2.0.0", "1.2.3-pre", "2.0.0-rc.1"],
    ),
    ("^0.2.3", &["0.2.3", "0.2.9"], &["0.3.0", "0.2.2"]),
    ("^0.0.3", &["0.0.3"], &["0.0.4", "0.0.4-alpha", "0.1.0"]),
    (
        "^1.2.3-beta.2",
        &["1.2.3-beta.2", "1.2.3-beta.4", "1.2.3", "1.9.9"],
        &["1.2.4-beta.2", "1.2.3-beta.1", "2.0.0"],
    ),
    (
        "^0.0.3-beta",
        &["0.0.3-beta", "0.0.3-pr.2", "0.0.3"],
        &["0.0.3-alpha", "0.0.4"],
    ),
    ("^1.2.x", &["1.2.0", "1.9.9"], &["2.0.0", "1.1.9"]),
    ("^0.0.x", &["0.0.0", "0.0.9"], &["0.1.0"]),
    ("^0.0", &["0.0.0", "0.0.9"], &["0.1.0"]),
    ("^1.x", &["1.0.0", "1.9.9"], &["2.0.0"]),
    ("^0.x", &["0.0.0", "0.9.9"], &["1.0.0"]),
    ("^0.1", &["0.1.2"], &["0.2.0"]),
    ("^1.2.3+build", &["1.2.3", "1.3.0"], &["1.2.0", "2.0.0"]),
];

/// Pre-releases: of the very version that a range names, and of no other.
const PRE_RELEASES: &[Row] = &[
    (
        ">1.2.3-alpha.3",
        &["1.2.3-alpha.7", "1.2.3", "3.4.5"],
        &["3.4.5-alpha.9", "1.2.3-alpha.3"],
    ),
    (
        ">=1.2.3-alpha <2",
        &["1.2.3-beta", "1.9.9"],
        &["1.2.4-beta", "2.0.0-rc.1"],
    ),
    (
        "1.0.0-alpha || 2",
        &["1.0.0-alpha", "2.1.0"],
        &["1.0.0", "2.0.0-alpha"],
    ),
    (
        ">1.0.0-alpha.9",
        &["1.0.0-alpha.10", "1.0.0-beta"],
        &["1.0.0-alpha.8", "1.0.0-alpha"],
    ),
];

#[test]
fn pkg_3_ranges_mean_what_npm_says_they_mean() {
    let tables = [
        COMPARED,
        COMBINED,
        HYPHENS,
        OPEN,
        TILDES,
        CARETS,
        PRE_RELEASES,
    ];
    let (mut wrong, mut looked_at) = (Vec::new(), 0);
    for (text, within, without) in tables.into_iter().flatten() {
        let requirement: Requirement = match text.parse() {
            Ok(requirement) => requirement,
            Err(error) => {
                wrong.push(format!("{error}"));
                continue;
            }
        };
        let range = requirement.range().unwrap();
        let both = within.iter().map(|it| (it, true));
        for (version, is_in) in both.chain(without.iter().map(|it| (it, false))) {
            looked_at += 1;
            if range.satisfies(&Version::parse(version).unwrap()) != is_in {
                wrong.push(format!("`{text}` and {version}: {is_in} is right"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(looked_at >= 250, "{looked_at}");
}

/// These three mean something to npm. They are refused, which leads nobody to another version than they meant.
#[test]
fn pkg_3_the_few_ranges_that_npm_knows_and_goondan_does_not_are_refused() {
    for known in ["^x", "1.0.0 - x", "<\t2.0.0"] {
        assert!(known.parse::<Requirement>().is_err(), "{known}");
    }
    // The other way round: npm refuses it, and no version is meant by it that has another name.
    assert!("01.2.3".parse::<Requirement>().is_ok());
}

#[test]
fn pkg_3_what_is_no_range_is_refused() {
    for wrong in [
        "latest",
        "1.2.3.4",
        "^^1",
        "not a range",
        ">",
        "1.2.3 || nonsense",
    ] {
        let read = wrong.parse::<Requirement>();
        assert!(read.is_err(), "{wrong} is {read:?}");
    }
}
