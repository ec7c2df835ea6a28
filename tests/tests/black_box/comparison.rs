//! Goal: the comparison with other systems (`tests/comparison/run`) measures goondan, and no input
//! that it acknowledges is lost or doubled while everything is killed. The other systems are
//! measured by hand, because they are downloaded; see `docs/comparison.md`.

use std::path::Path;

use goondan_tests::binaries::bin;
use goondan_tests::home::{GDN, RunningProgram};
use goondan_tests::{Home, needs};
use serde_json::Value;

const RUN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/comparison/run");

#[test]
fn comparison_measures_goondan_and_no_input_is_lost_or_doubled() {
    if !needs::program("node") {
        return;
    }
    let home = Home::without_project();
    let dir = home.path().to_str().unwrap();
    let programs = bin(GDN);
    let programs = programs.parent().unwrap().to_str().unwrap();
    let mut command = home.command(Path::new(RUN), &["goondan"]);
    command.current_dir(home.path()).envs([
        ("GOONDAN_COMPARE_PROGRAMS", programs),
        ("GOONDAN_COMPARE_PACKAGES", &format!("{dir}/packages")),
        ("GOONDAN_COMPARE_DIR", dir),
        ("GOONDAN_COMPARE_SECONDS", "0.5"),
        ("GOONDAN_COMPARE_IDLE", "10"),
        ("GOONDAN_COMPARE_KILL_SECONDS", "4"),
        ("GOONDAN_COMPARE_JSON", "1"),
    ]);
    let ran = RunningProgram::start(command).wait().exits(0);
    let measured: Value = ran.json();
    let goondan = &measured["goondan"];
    let is_measured = |value: &Value| value.as_f64().is_some_and(|value| value > 0.0);
    for connections in ["1", "20", "60"] {
        let rate = &goondan["rates"][connections];
        assert!(is_measured(&rate["perSecond"]), "{measured}");
        assert!(is_measured(&rate["p50"]), "{measured}");
    }
    for measure in ["memory", "diskPerTurn", "restart"] {
        assert!(is_measured(&goondan[measure]), "{measure}: {measured}");
    }
    let kills = &goondan["kills"];
    assert!(is_measured(&kills["acknowledged"]), "{measured}");
    assert!(is_measured(&kills["killed"]), "{measured}");
    assert_eq!(kills["lost"], 0, "{measured}");
    assert_eq!(kills["doubled"], 0, "{measured}");
}
