//! Tutorials and how-to guides: every command is run, and every documented output is checked.
//!
//! Method: a page is one shell session, from its first fence to its last, in a separate home
//! directory. The shell begins in a copy of the page's files from the repository. `docs/README.md`
//! explains the fences to readers.

use std::fmt::Write as _;
use std::process::Command;

use goondan_tests::binaries::bin_dir;
use goondan_tests::home::RunningProgram;
use goondan_tests::server::free_ports;
use goondan_tests::sshd::Sshd;
use goondan_tests::tree::copy_folder;
use goondan_tests::{CommandOutput, Home, needs};

use crate::pages::{Page, repository};

/// Marker before the output of each fence.
const MARK: char = '\u{1e}';
/// Port in pages; replaced by a free port.
const PORT: &str = "8080";
/// Suffix of a fence's language that excludes it from tests.
const NOT_RUN: &str = " not-run";
/// Placeholder for any text in an output.
const ANYTHING: char = '…';

/// A step or a check of a page.
#[derive(Debug, PartialEq)]
enum Part {
    Typed(String),
    /// Lines in the output of the last typed fence, in this order, possibly among others.
    Printed(Vec<String>),
    /// A file that is written, or added to.
    File {
        path: String,
        is_added: bool,
        text: String,
    },
    /// A fence with requirements that no test has.
    NotRun,
}

fn part(page: &str, info: &str, text: &str) -> Part {
    if info.ends_with(NOT_RUN) {
        return Part::NotRun;
    }
    match info {
        "sh" => return Part::Typed(text.to_owned()),
        "text" => return Part::Printed(text.lines().map(str::to_owned).collect()),
        _ => {}
    }
    let (first, rest) = text.split_once('\n').unwrap();
    let named = first.split_once(" file: ").map(|(_, name)| name);
    let Some(name) = named else {
        panic!("{page}: a fence of {info} that begins with no file's name: {first}");
    };
    let added = name.strip_suffix(", at its end");
    Part::File {
        path: added.unwrap_or(name).to_owned(),
        is_added: added.is_some(),
        text: if added.is_some() { rest } else { text }.to_owned(),
    }
}

fn parts(page: &Page) -> Vec<Part> {
    let fences = page.all_fences();
    let parts = fences
        .iter()
        .map(|(info, text)| part(&page.path, info, text));
    parts.collect()
}

/// All commands and files as one script; the output of each typed fence begins with a marker.
fn script(parts: &[Part]) -> String {
    let mut script = String::from("exec 2>&1\ncd goondan\n");
    for part in parts {
        match part {
            Part::Typed(text) => write!(script, "printf '\\036'\n{text}").unwrap(),
            Part::File {
                path,
                is_added,
                text,
            } => {
                let to = if *is_added { ">>" } else { ">" };
                write!(
                    script,
                    "mkdir -p \"$(dirname '{path}')\"\ncat {to} '{path}' <<'END OF FILE'\n{text}END OF FILE\n"
                )
                .unwrap();
            }
            Part::Printed(_) | Part::NotRun => {}
        }
    }
    script
}

/// True if a line matches the documented one, with any text at each `…`.
fn is_as_promised(line: &str, promised: &str) -> bool {
    let mut pieces = promised.split(ANYTHING);
    let first = pieces.next().unwrap();
    let Some(mut rest) = line.strip_prefix(first) else {
        return false;
    };
    let pieces: Vec<&str> = pieces.collect();
    let Some((last, between)) = pieces.split_last() else {
        return rest.is_empty();
    };
    for piece in between {
        let Some((_, behind)) = rest.split_once(piece) else {
            return false;
        };
        rest = behind;
    }
    rest.ends_with(last)
}

/// First expected line that is missing after the earlier ones.
fn missing<'a>(printed: &str, promised: &'a [String]) -> Option<&'a str> {
    let mut lines = printed.lines().map(str::trim_end);
    let mut wanted = promised.iter().map(|line| line.trim_end());
    wanted.find(|wanted| !wanted.is_empty() && !lines.any(|line| is_as_promised(line, wanted)))
}

/// Runs the script. `ssh server` logs in to a server whose home is the same.
fn run(home: &Home, script: &str, sshd: Option<&Sshd>) -> CommandOutput {
    copy_folder(
        &repository().join("docs/examples"),
        &home.path().join("goondan/docs/examples"),
    );
    let [port] = free_ports();
    let script = script.replace(PORT, &port.to_string());
    let mut command: Command = home.command("bash".as_ref(), &["-euo", "pipefail", "-c", &script]);
    let mut path = bin_dir().as_os_str().to_owned();
    path.push(":");
    match sshd {
        Some(sshd) => path.push(sshd.path()),
        None => path.push(std::env::var_os("PATH").unwrap_or_default()),
    }
    command
        .env("PATH", path)
        .env_remove("GOONDAN_STATE_ROOT")
        .current_dir(home.path());
    RunningProgram::start(command).wait()
}

/// Follows the steps of a page.
fn follow(path: &str, not_run: usize, is_there: fn() -> bool) {
    if !is_there() {
        return;
    }
    let parts = parts(&Page::read(path));
    let left_out = parts.iter().filter(|part| **part == Part::NotRun).count();
    assert_eq!(left_out, not_run, "{path}: fences that are not run");
    let home = Home::without_project();
    let is_remote = parts
        .iter()
        .any(|part| matches!(part, Part::Typed(text) if text.contains("ssh server")));
    let sshd = if is_remote {
        Sshd::start(&home, &home.path().join(".goondan"))
    } else {
        None
    };
    let ran = run(&home, &script(&parts), sshd.as_ref());
    // Shared connections end with the server.
    drop(sshd);
    assert_eq!(ran.code, 0, "{path}: {}{}", ran.stdout, ran.stderr);
    let mut printed = ran.stdout.split(MARK);
    let mut last = printed.next().unwrap();
    for part in &parts {
        match part {
            Part::Typed(_) => last = printed.next().unwrap(),
            Part::Printed(promised) => {
                let missing = missing(last, promised);
                assert_eq!(missing, None, "{path}: it printed\n{last}");
            }
            Part::File { .. } | Part::NotRun => {}
        }
    }
    assert!(
        home.running(goondan_tests::home::ORCHESTRATOR).is_empty(),
        "{path} leaves a daemon behind"
    );
}

/// A test for each page: the number of fences that are not tested, and the programs it needs.
macro_rules! pages {
    ($($test:ident: $path:literal, $not_run:literal, $needs:expr;)*) => {
        const PAGES: &[&str] = &[$($path),*];
        $(#[test]
        fn $test() {
            follow($path, $not_run, $needs);
        })*
    };
}

fn nothing() -> bool {
    true
}

pages! {
    calls_are_approved: "docs/how-to/approve-calls.md", 1, nothing;
    state_is_backed_up_and_restored: "docs/how-to/back-up-and-restore.md", 0, nothing;
    a_project_is_deployed: "docs/how-to/deploy-on-a-server.md", 4, || needs::program("curl") && needs::program("openssl");
    it_is_found_out_why_an_agent_waits: "docs/how-to/find-out-why-an-agent-waits.md", 0, nothing;
    an_agent_schedules_work: "docs/how-to/let-an-agent-schedule-work.md", 0, nothing;
    two_agents_work_together: "docs/how-to/let-two-agents-work-together.md", 0, nothing;
    logs_and_traces_are_followed: "docs/how-to/follow-logs-and-traces.md", 3, nothing;
    a_package_is_installed: "docs/how-to/install-a-package.md", 3, nothing;
    a_slack_bot_is_made: "docs/how-to/make-a-slack-bot.md", 0, || needs::program("curl") && needs::program("openssl") && needs::program("python3");
    a_telegram_bot_is_made: "docs/how-to/make-a-telegram-bot.md", 0, || needs::program("curl") && needs::program("python3");
    a_coding_agent_is_put_on_a_repository: "docs/how-to/put-a-coding-agent-on-a-repository.md", 1, || needs::program("git");
    costs_are_read: "docs/how-to/read-my-costs.md", 0, || needs::program("python3");
    webhooks_are_received: "docs/how-to/receive-webhooks.md", 0, || needs::program("curl") && needs::program("openssl");
    a_task_is_restored: "docs/how-to/restore-a-task.md", 0, nothing;
    a_secret_is_rotated: "docs/how-to/rotate-a-secret.md", 0, nothing;
    a_cron_job_runs: "docs/how-to/run-a-cron-job.md", 0, nothing;
    a_workspace_is_run_on_two_nodes: "docs/how-to/run-on-two-nodes.md", 16, nothing;
    a_service_is_looked_at: "docs/how-to/run-as-a-service.md", 5, nothing;
    a_budget_is_set: "docs/how-to/set-a-budget.md", 1, nothing;
    agents_are_steered_in_a_browser: "docs/how-to/steer-in-a-browser.md", 5, nothing;
    issues_become_pull_requests: "docs/how-to/turn-github-issues-into-pull-requests.md", 1, || needs::program("git") && needs::program("curl") && needs::program("openssl");
    versions_are_put_side_by_side: "docs/how-to/upgrade-and-roll-back.md", 4, nothing;
    a_daemon_on_another_machine_is_used: "docs/how-to/use-a-remote-daemon.md", 2, || needs::sshd().is_some();
    a_proxy_is_used: "docs/how-to/use-a-proxy.md", 2, nothing;
    a_real_model_is_used: "docs/how-to/use-a-real-model.md", 0, || needs::program("python3");
    an_mcp_server_is_used: "docs/how-to/use-an-mcp-server.md", 0, || needs::program("python3");
    a_tool_is_written: "docs/how-to/write-a-tool.md", 0, || needs::program("python3");
    an_extension_is_written: "docs/how-to/write-an-extension.md", 0, needs::javascript;
    a_first_swarm_is_made_killed_and_found_again: "docs/tutorials/first-swarm.md", 0, nothing;
    an_incident_becomes_a_test: "docs/tutorials/an-incident-becomes-a-test.md", 0, || needs::program("git");
    an_interrupted_order_is_found_at_the_shop: "docs/tutorials/exactly-once-toward-the-outside.md", 0, || needs::program("python3");
    many_changes_land_in_order: "docs/tutorials/land-many-changes.md", 0, nothing;
    a_task_becomes_a_change: "docs/tutorials/from-a-task-to-a-change.md", 0, || needs::program("git");
    two_workers_hand_in_proposals: "docs/tutorials/sandbox-and-proposal.md", 0, nothing;
}

#[test]
fn every_tutorial_and_every_guide_is_followed_by_a_test() {
    let pages = Page::all();
    let guides = pages.iter().map(|page| page.path.as_str());
    let guides = guides
        .filter(|path| path.starts_with("docs/tutorials/") || path.starts_with("docs/how-to/"));
    let mut known = PAGES.to_vec();
    known.sort_unstable();
    assert_eq!(guides.collect::<Vec<_>>(), known);
}

#[test]
fn promised_output_must_match_line_by_line() {
    let printed = "one 1 s\ntwo, 2.50 s ago\nthree\n";
    let promised = |lines: &[&str]| {
        lines
            .iter()
            .map(|line| (*line).to_owned())
            .collect::<Vec<_>>()
    };
    for found in [
        &["one … s", "three"][..],
        &["two, … s …"],
        &["", "…ee"],
        &["…"],
    ] {
        assert_eq!(missing(printed, &promised(found)), None, "{found:?}");
    }
    for (lost, wanted) in [
        (&["three", "one … s"][..], "one … s"),
        (&["two"], "two"),
        (&["one … ms"], "one … ms"),
    ] {
        assert_eq!(missing(printed, &promised(lost)), Some(wanted));
    }
}
