//! A run at every level of the sandbox: its program's access rights and user, and that it can be
//! stopped.

use goondan_confinement::SandboxPolicy;
use goondan_protocol::sandbox::Level;
use goondan_protocol::task::TaskAssignment;
use goondan_tests::wait_for;

use super::example::levels;
use super::run::{Run, assignment};
use crate::support::{TestProject, is_alive, put};

fn confined(site: &TestProject, level: Level, script: &str) -> TaskAssignment {
    let mut it = assignment(site, script);
    it.agent.sandbox = SandboxPolicy {
        require: level,
        ..SandboxPolicy::default()
    };
    it
}

#[test]
fn task_8_confined_program_is_found_by_pid_paused_and_killed() {
    for level in levels() {
        let site = TestProject::new();
        let script =
            "(n=0; while :; do n=$((n+1)); echo $n > count; sleep 0.01; done) & echo up; wait";
        let mut run = Run::start(&confined(&site, level, script));
        run.until("the start", |told| {
            told.started.is_some() && told.stdout == "up\n"
        });
        let pid = run.told.started.unwrap().pid;
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
        assert_eq!(
            name, "sh\n",
            "{level}: the started process is the program itself"
        );
        let state = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            stat.rsplit_once(')').unwrap().1.trim_start().chars().next()
        };
        let count = || std::fs::read_to_string(site.work.join("count")).unwrap_or_default();
        let counts_on = |before: String| {
            wait_for("it counts on", || {
                let now = count();
                (!now.is_empty() && now != before).then_some(())
            });
        };
        counts_on(count());
        run.pause();
        wait_for("it is stopped", || (state() == Some('T')).then_some(()));
        run.ping(1);
        let before = count();
        run.ping(2);
        assert_eq!(count(), before, "{level}");
        run.go_on();
        counts_on(before);
        run.shut_down(5_000);
        assert!(run.finish().exited.is_some());
        assert!(!is_alive(i32::try_from(pid).unwrap()), "{level}");
    }
}

#[test]
fn sec_3_a_confined_program_writes_in_its_work_area_alone() {
    for level in levels().into_iter().skip(1) {
        let site = TestProject::new();
        std::fs::create_dir(site.outside()).unwrap();
        put(site.outside().join("secret"), "secret");
        put(site.project.join("input"), "input");
        let script = format!(
            "cat '{project}/input'; echo x > own && echo wrote; mkdir -p \"$TMPDIR\" && echo x > \"$TMPDIR/t\" && echo temporary
             echo x > '{project}/input' || echo 'not the project'; cat '{outside}/secret' || echo 'not outside'
             printf '%s' \"$HOME\"",
            project = site.project.display(),
            outside = site.outside().display(),
        );
        let finished = Run::start(&confined(&site, level, &script)).finish();
        let expected = format!(
            "inputwrote\ntemporary\nnot the project\nnot outside\n{}",
            site.work.display()
        );
        assert_eq!(finished.stdout, expected, "{level}: {}", finished.stderr);
        assert_eq!(
            std::fs::read_to_string(site.project.join("input")).unwrap(),
            "input"
        );
    }
}

#[test]
fn task_1_a_program_cannot_approve_its_own_work_at_level_full() {
    let Some(level) = levels().into_iter().find(|level| *level == Level::Full) else {
        return;
    };
    let site = TestProject::new();
    let history = site.work.join(".metadata/history.jsonl");
    for name in [".metadata", ".checkpoints", ".logs"] {
        std::fs::create_dir(site.work.join(name)).unwrap();
    }
    put(history.clone(), "before\n");
    let script = "cat .metadata/history.jsonl; echo forged >> .metadata/history.jsonl || echo refused
         mv .metadata away || echo 'not moved'; rm -rf .checkpoints .logs; ls -d .checkpoints .logs; echo x > new && cat new";
    let finished = Run::start(&confined(&site, level, script)).finish();
    let expected = "before\nrefused\nnot moved\n.checkpoints\n.logs\nx\n";
    assert_eq!(finished.stdout, expected, "{}", finished.stderr);
    assert_eq!(std::fs::read_to_string(history).unwrap(), "before\n");
}

#[test]
fn sec_3_a_link_that_a_run_leaves_opens_nothing_to_the_next() {
    for (place, level) in levels().into_iter().enumerate() {
        let site = TestProject::new();
        std::fs::create_dir(site.outside()).unwrap();
        put(site.outside().join("secret"), "loot");
        for name in [".metadata", ".checkpoints", ".logs"] {
            std::fs::create_dir(site.work.join(name)).unwrap();
        }
        let plant = format!(
            "mv .logs away && ln -s '{}' .logs; echo",
            site.outside().display()
        );
        Run::start(&confined(&site, level, &plant)).finish();
        let finished = Run::start(&confined(&site, level, "cat .logs/secret; echo")).finish();
        // Without a sandbox, the link leads out. At the level `landlock` the link is created, and
        // the next run is refused.
        let is_free = place == 0;
        assert_eq!(finished.stdout.contains("loot"), is_free, "{level}");
        let refused = finished.not_started.unwrap_or_default();
        assert!(
            refused.is_empty() || refused.contains("is a link"),
            "{level}: {refused}"
        );
    }
}

#[test]
fn sec_6_a_sandbox_that_cannot_be_had_starts_nothing() {
    let Some(level) = levels().into_iter().nth(1) else {
        return;
    };
    let site = TestProject::new();
    let mut it = confined(&site, level, "echo ran > ran");
    it.agent.sandbox.read = vec![site.outside().try_into().unwrap()];
    let finished = Run::start(&it).finish();
    assert!(finished.not_started.is_some(), "{finished:?}");
    assert!(!site.work.join("ran").exists());
}
