//! Start and end of a run, with any behavior of its program.

use std::path::Path;

use goondan_cli_agents::CliEvent;
use goondan_protocol::task::PromptChannel;
use goondan_tests::wait_for;

use super::run::{Run, assignment};
use crate::support::{TestProject, ended, is_alive, kill, put};

#[test]
fn task_8_program_gets_its_prompt_and_its_output_is_forwarded() {
    let site = TestProject::new();
    let script = r#"read -r line; echo "heard: $line"; echo "in $(pwd)" >&2; printf 'Progress: 40%%\nno end'; exit 7"#;
    let told = Run::start(&assignment(&site, script)).finish();
    assert_eq!(told.exited, Some(Some(7)));
    assert_eq!(told.stdout, "heard: Do it.\nProgress: 40%\nno end");
    assert_eq!(told.stderr, format!("in {}\n", site.work.display()));
    assert_eq!(told.text(), "heard: Do it.\nProgress: 40%\nno end\n");
    let progress = |event: &&CliEvent| matches!(event, CliEvent::Progress(_));
    assert_eq!(told.events.iter().filter(progress).count(), 1);
    assert!(
        told.started
            .is_some_and(|it| it.pid > 0 && it.start_time > 0)
    );
}

#[test]
fn task_8_a_prompt_may_be_an_argument() {
    let site = TestProject::new();
    let mut it = assignment(&site, r#"printf '%s|' "$@"; cat"#);
    it.agent.prompt = PromptChannel::Argument;
    it.agent
        .command
        .extend(["sh", "--message", "{prompt}"].map(str::to_owned));
    it.prompt = "a 'b'\n$(c)".to_owned();
    let finished = Run::start(&it).finish();
    assert_eq!(finished.stdout, "--message|a 'b'\n$(c)|");
    assert_eq!(finished.exited, Some(Some(0)));
}

#[test]
fn task_8_reported_process_is_the_one_that_runs() {
    let site = TestProject::new();
    let mut run = Run::start(&assignment(&site, "echo $$ > main; exec sleep 1000"));
    run.until("the start", |told| told.started.is_some());
    let started = run.told.started.unwrap();
    assert_eq!(i32::try_from(started.pid).unwrap(), site.pid_in("main"));
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", started.pid)).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let start_time = fields.split_whitespace().nth(19).unwrap();
    assert_eq!(start_time, started.start_time.to_string());
    run.shut_down(60_000);
    assert_eq!(run.finish().exited, Some(None), "a signal is no code");
}

#[test]
fn task_8_program_that_cannot_start_reports_the_reason() {
    let site = TestProject::new();
    let mut it = assignment(&site, "");
    it.agent.command = vec!["no-such-agent".to_owned()];
    let finished = Run::start(&it).finish();
    let error = finished.not_started.unwrap();
    assert!(
        error.starts_with("`no-such-agent` could not be started"),
        "{error}"
    );
    assert_eq!(finished.exited, None);
    it.agent.command.clear();
    let error = Run::start(&it).finish().not_started.unwrap();
    assert!(error.contains("no command"), "{error}");
    let mut it = assignment(&site, "");
    it.agent.prompt = PromptChannel::Argument;
    it.agent.command = ["true", "{prompt}"].map(str::to_owned).to_vec();
    it.prompt = "long ".repeat(50_000);
    let error = Run::start(&it).finish().not_started.unwrap();
    assert!(error.contains("Argument list too long"), "{error}");
    let mut it = assignment(&site, "");
    it.secrets
        .insert("GOONDAN_X".to_owned(), "hidden".to_owned());
    let error = Run::start(&it).finish().not_started.unwrap();
    assert!(
        error.contains("`GOONDAN_X`") && !error.contains("hidden"),
        "{error}"
    );
}

#[test]
fn sec_2_secrets_are_variables_of_the_program_and_nothing_else() {
    const SECRET: &str = "s3cr3t-value";
    let site = TestProject::new();
    // Prints the environment and arguments of all ancestors of the program.
    let script = r#"echo "key: $API_KEY $PLAIN"; env | grep ^GOONDAN_ | sort | cut -d= -f1
        pid=$PPID
        while [ "$pid" -gt 1 ]; do
            tr '\0' '\n' < /proc/$pid/environ 2>/dev/null; tr '\0' '\n' < /proc/$pid/cmdline 2>/dev/null
            pid=$(cut -d' ' -f4 /proc/$pid/stat)
        done > around"#;
    let mut it = assignment(&site, script);
    it.agent
        .environment
        .insert("PLAIN".to_owned(), "plain".to_owned());
    it.secrets.insert("API_KEY".to_owned(), SECRET.to_owned());
    let run = Run::start(&it);
    let log_path = site.work.with_file_name("log.jsonl");
    let told = run.finish();
    assert_eq!(
        told.stdout,
        format!(
            "key: {SECRET} plain\nGOONDAN_MCP_CONFIG\nGOONDAN_PROJECT_ROOT\nGOONDAN_TASK_ID\nGOONDAN_WORK_DIR\n"
        )
    );
    let around = std::fs::read_to_string(site.work.join("around")).unwrap();
    assert!(around.contains("--enclose-task"), "{around}");
    assert!(!around.contains(SECRET));
    let log = std::fs::read_to_string(log_path).unwrap();
    assert!(log.contains("t-1") && !log.contains(SECRET), "{log}");
}

#[test]
fn task_8_shutdown_ends_responsive_and_unresponsive_programs() {
    for (script, code) in [
        (
            "trap 'echo asked; exit 3' TERM; echo $$ > main; while :; do sleep 0.01; done",
            Some(3),
        ),
        (
            "trap '' TERM; (trap '' TERM; sleep 1000) & echo $$ > main; while :; do sleep 0.01; done",
            None,
        ),
    ] {
        let site = TestProject::new();
        let mut run = Run::start(&assignment(&site, script));
        let pid = site.pid_in("main");
        // Long enough for a program that handles the signal, short enough to wait for one that
        // ignores it.
        run.shut_down(if code.is_some() { 60_000 } else { 1_000 });
        let told = run.finish();
        assert_eq!(told.exited, Some(code), "{told:?}");
        assert_eq!(told.stdout.contains("asked"), code.is_some());
        assert!(!is_alive(pid));
    }
}

#[test]
fn task_8_nothing_that_a_program_leaves_outlives_it() {
    let site = TestProject::new();
    let script = "setsid sh -c 'echo $$ > stray; exec sleep 1000' & (echo $$ > main; sleep 1000) &
        while [ ! -s stray ]; do sleep 0.01; done; echo done";
    let finished = Run::start(&assignment(&site, script)).finish();
    assert_eq!(
        (finished.stdout.as_str(), finished.exited),
        ("done\n", Some(Some(0)))
    );
    assert!(
        !is_alive(site.pid_in("stray")),
        "it was left when the exit was reported"
    );
}

#[test]
fn all_programs_end_if_the_orchestrator_vanishes_or_agent_dies() {
    let script = "trap '' TERM; setsid sh -c 'echo $$ > stray; exec sleep 1000' & echo $$ > main; sleep 1000";
    for is_killed in [false, true] {
        let site = TestProject::new();
        let run = Run::start(&assignment(&site, script));
        let pids = ["main", "stray"].map(|name| site.pid_in(name));
        if is_killed {
            kill(i32::try_from(run.child.id()).unwrap());
        }
        let mut child = run.vanish();
        let code = ended(&mut child).code();
        assert_eq!(code, (!is_killed).then_some(3));
        wait_for("all of it is gone", || {
            (!pids.into_iter().any(is_alive)).then_some(())
        });
    }
}

#[test]
fn a_supervisor_that_is_killed_is_an_exit_without_a_code() {
    let site = TestProject::new();
    let script =
        "setsid sh -c 'echo $$ > stray; exec sleep 1000' & echo $PPID > parent; sleep 1000";
    let mut run = Run::start(&assignment(&site, script));
    run.until("the start", |told| told.started.is_some());
    let stray = site.pid_in("stray");
    kill(site.pid_in("parent"));
    let told = run.finish();
    assert_eq!(told.exited, Some(None));
    assert!(!is_alive(stray));
}

#[test]
fn large_output_is_forwarded_completely_in_bounded_memory() {
    const BYTES: usize = 100_000_000;
    let site = TestProject::new();
    let mut run = Run::start(&assignment(
        &site,
        &format!(
            "yes {} | head -c {BYTES}; echo end >&2",
            "flood ".repeat(300)
        ),
    ));
    run.kept_bytes = 0;
    run.until("the first output", |told| told.stdout_bytes > 0);
    // The output is not read: the program blocks, and so does the process.
    let pid = run.child.id();
    let before = cpu_ticks_at_rest(pid);
    run.ping(1);
    run.until("half of it", |told| told.stdout_bytes > BYTES / 2);
    let peak_kib = peak_memory_kib(pid);
    assert!(before > 0);
    let told = run.finish();
    assert_eq!((told.stdout_bytes, told.exited), (BYTES, Some(Some(0))));
    assert_eq!(told.stderr, "end\n");
    assert!(peak_kib < 64 << 10, "{peak_kib} KiB");
}

/// Consecutive checks with the same processor time that count as rest: a running process uses a
/// tick in that time.
const LOOKS_AT_REST: usize = 8;

/// Processor time of a process once it is at rest.
fn cpu_ticks_at_rest(pid: u32) -> u64 {
    let ticks = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        let fields: Vec<&str> = fields.split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    let (mut last, mut looks) = (ticks(), 0);
    wait_for("the process is at rest", || {
        let now = ticks();
        looks = if now == last { looks + 1 } else { 0 };
        last = now;
        (looks == LOOKS_AT_REST).then_some(now)
    })
}

fn peak_memory_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    peak.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn invalid_message_ends_the_process_and_its_program() {
    let site = TestProject::new();
    let mut it = assignment(&site, "echo $$ > main; sleep 1000");
    it.work_area = site.work.clone();
    let run = Run::start(&it);
    let pid = site.pid_in("main");
    let mut run = run;
    run.send(&goondan_protocol::ipc::ToTask::Welcome(Box::new(
        goondan_protocol::ipc::Welcome {
            version: goondan_protocol::version::Version::current(),
            assignment: goondan_protocol::ipc::Assignment::Task(Box::new(it)),
        },
    )));
    assert_eq!(ended(&mut run.child).code(), Some(1));
    wait_for("the program is gone", || (!is_alive(pid)).then_some(()));
}

#[test]
fn missing_work_area_is_reported() {
    let site = TestProject::new();
    let it = assignment(&site, "true");
    std::fs::remove_dir(&site.work).unwrap();
    let error = Run::start(&it).finish().not_started.unwrap();
    assert!(error.contains("could not be started"), "{error}");
    assert!(!Path::new(&it.work_area).exists());
    put(site.project.join("unused"), "");
}

#[test]
fn task_8_a_silent_program_shows_that_it_lives_by_its_children() {
    let site = TestProject::new();
    let mut run = Run::start(&assignment(&site, "sleep 1000 & wait"));
    run.until("a sign of life", |told| told.signs_of_life > 0);
    assert_eq!((run.told.stdout.as_str(), run.told.exited), ("", None));
    run.shut_down(10_000);
    assert!(run.finish().exited.is_some());
}
