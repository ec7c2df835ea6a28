//! Stopping and resuming a whole process tree, as seen in `/proc`.

use goondan_tests::wait_for;

use super::run::{Run, assignment};
use crate::support::{TestProject, ended, is_alive};

/// State of a process, as reported by the kernel.
fn state_of(pid: i32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(')').unwrap();
    rest.trim_start().chars().next().unwrap()
}

/// A program with a child in its own group, one in a separate session without a parent (an orphaned
/// group, in which the kernel drops `SIGTSTP`), and one that ignores that signal; each writes its
/// process id, then counts.
const TREE: &str = r#"
count() { n=0; while :; do n=$((n+1)); echo $n > "$1.count"; sleep 0.01; done; }
(sh -c 'echo $PPID' > child; count child) &
setsid sh -c '(n=0; while :; do n=$((n+1)); echo $n > orphan.count; sleep 0.01; done) & echo $! > orphan' &
(trap '' TSTP; sh -c 'echo $PPID' > deaf; count deaf) &
echo $$ > main
count main
"#;

const NAMES: [&str; 4] = ["main", "child", "orphan", "deaf"];

fn count_of(site: &TestProject, name: &str) -> u64 {
    // The file may be incomplete.
    let path = site.work.join(format!("{name}.count"));
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

fn all_count(site: &TestProject) {
    for name in NAMES {
        let before = count_of(site, name);
        wait_for("it counts on", || {
            (count_of(site, name) > before + 1).then_some(())
        });
    }
}

fn all_stop(pids: [i32; 4]) {
    for pid in pids {
        wait_for("it is stopped", || (state_of(pid) == 'T').then_some(()));
    }
}

#[test]
fn task_8_pause_stops_the_whole_tree_and_resume_continues_it() {
    let site = TestProject::new();
    let mut run = Run::start(&assignment(&site, TREE));
    let pids = NAMES.map(|name| site.pid_in(name));
    all_count(&site);
    for round in 0..3 {
        run.pause();
        all_stop(pids);
        let counts = NAMES.map(|name| count_of(&site, name));
        run.ping(round);
        assert!(pids.into_iter().all(|pid| state_of(pid) == 'T'));
        assert_eq!(counts, NAMES.map(|name| count_of(&site, name)));
        run.go_on();
        all_count(&site);
    }
    run.shut_down(5_000);
    let told = run.finish();
    assert_eq!(told.exited, Some(None));
    assert!(!pids.into_iter().any(is_alive));
}

#[test]
fn task_8_paused_program_can_be_shut_down_gracefully() {
    let site = TestProject::new();
    let script = "trap 'echo asked; exit 4' TERM; echo $$ > main; while :; do sleep 0.01; done";
    let mut run = Run::start(&assignment(&site, script));
    let pid = site.pid_in("main");
    run.pause();
    wait_for("it is stopped", || (state_of(pid) == 'T').then_some(()));
    run.shut_down(60_000);
    let told = run.finish();
    assert_eq!(
        (told.exited, told.stdout.as_str()),
        (Some(Some(4)), "asked\n")
    );
}

#[test]
fn task_8_a_tree_that_forks_without_end_is_stopped() {
    let site = TestProject::new();
    let script = "echo $$ > main; while :; do (sleep 0.02 &) ; done";
    let mut run = Run::start(&assignment(&site, script));
    let pid = site.pid_in("main");
    run.pause();
    wait_for("it is stopped", || (state_of(pid) == 'T').then_some(()));
    run.shut_down(2_000);
    assert!(run.finish().exited.is_some());
    assert!(!is_alive(pid));
}

/// Loops that only start programs, mostly through `vfork`, so that many stops arrive before a child
/// has executed its program.
const STARTERS: &str = r#"
for name in main child orphan deaf; do
    (sh -c 'echo $PPID' > $name; while :; do /bin/true; done) &
done
wait
"#;

#[test]
fn task_8_pause_also_stops_programs_that_are_just_starting() {
    let site = TestProject::new();
    let mut run = Run::start(&assignment(&site, STARTERS));
    let pids = NAMES.map(|name| site.pid_in(name));
    for round in 0..20 {
        run.pause();
        all_stop(pids);
        run.ping(round);
        run.go_on();
        for pid in pids {
            wait_for("it goes on", || (state_of(pid) != 'T').then_some(()));
        }
    }
    run.shut_down(5_000);
    run.finish();
    assert!(!pids.into_iter().any(is_alive));
}

#[test]
fn paused_program_ends_with_the_orchestrator() {
    let site = TestProject::new();
    let mut run = Run::start(&assignment(&site, TREE));
    let pids = NAMES.map(|name| site.pid_in(name));
    run.pause();
    all_stop(pids);
    let mut child = run.vanish();
    assert_eq!(ended(&mut child).code(), Some(3));
    wait_for("all of it is gone", || {
        (!pids.into_iter().any(is_alive)).then_some(())
    });
}
