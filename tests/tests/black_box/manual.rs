//! Goal: every command has its manual page, and `man` displays it correctly (`REL-2`).
//!
//! Method: the pages are written and, if `groff` is installed, rendered, which must produce no
//! warnings. The list of pages is tested where they are generated.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use goondan_tests::binaries::bin;
use goondan_tests::home::{ORCHESTRATOR, RunningProgram};
use goondan_tests::{Home, needs};

#[test]
fn rel_2_groff_takes_every_page_without_a_word() {
    let home = Home::without_project();
    let out = home.path().join("man");
    home.gdn(&["man", "--out", out.to_str().unwrap()]).exits(0);
    let pages: Vec<PathBuf> = fs::read_dir(&out)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(pages.len() > 60, "{pages:?}");
    let page = fs::read_to_string(out.join("gdn-task-new.1")).unwrap();
    assert_eq!(page, home.gdn(&["man", "task", "new"]).exits(0).stdout);
    home.gdn(&["man", "nonsense"]).exits(5).tells(&["gdn help"]);
    if !needs::optional_program("groff") {
        return;
    }
    let mut args = vec!["-man", "-ww", "-Tutf8", "-P-cbou"];
    args.extend(pages.iter().map(|page| page.to_str().unwrap()));
    let ran = RunningProgram::start(home.command("groff".as_ref(), &args)).wait();
    let ran = ran.exits(0);
    assert_eq!(ran.stderr, "");
    for heading in ["NAME", "SYNOPSIS", "SEE ALSO"] {
        let heading = format!("\n{heading}\n");
        assert_eq!(ran.stdout.matches(&heading).count(), pages.len());
    }
    // Examples are kept verbatim, each on its own line.
    let example = "  gdn demo kill --for 5m --seed 4711     longer";
    assert!(ran.stdout.contains(example));
}

#[test]
fn rel_2_the_page_of_the_daemon_has_its_options_and_no_others() {
    let home = Home::without_project();
    let mut command: Command = home.command(&bin(ORCHESTRATOR), &["--help"]);
    command.env("COLUMNS", "100");
    let help = RunningProgram::start(command).wait().exits(0).stdout;
    let options = |text: &str| -> BTreeSet<String> {
        let words = text.split(|c: char| !(c.is_ascii_lowercase() || c == '-'));
        words
            .filter(|word| word.starts_with("--") && word.len() > 2)
            .map(str::to_owned)
            .collect()
    };
    let out = home.path().join("man");
    home.gdn(&["man", "--out", out.to_str().unwrap()]).exits(0);
    let page = fs::read_to_string(out.join("goondan-orchestrator.8")).unwrap();
    assert!(options(&help).len() > 8, "{help}");
    assert_eq!(options(&page.replace("\\-", "-")), options(&help));
}
