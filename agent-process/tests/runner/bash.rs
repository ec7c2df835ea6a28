//! The tool `bash`, with the real supervisor around real commands.

use std::sync::Arc;

use goondan_agent_process::tool_call::{ToolOutcome, ToolRules as _};
use goondan_agent_process::tools::Toolbox;
use goondan_protocol::definition::ToolDefinition;
use goondan_protocol::message::ToolCall;
use goondan_protocol::script::Script;
use goondan_tests::wait_for;
use serde_json::{Value, json};

use crate::support::{BINARY, TestProject, is_alive};

pub(crate) fn toolbox(site: &TestProject) -> Toolbox {
    Toolbox::new(&site.assignment(Script::default()), BINARY.into()).unwrap()
}

pub(crate) fn toolbox_of(site: &TestProject, tools: Vec<ToolDefinition>) -> Toolbox {
    let mut assignment = site.assignment(Script::default());
    assignment.agent.tools = tools;
    Toolbox::new(&assignment, BINARY.into()).unwrap()
}

pub(crate) fn call(tool_name: &str, input: Value) -> ToolCall {
    ToolCall {
        id: "t.1:c0".parse().unwrap(),
        tool_name: tool_name.to_owned(),
        input,
    }
}

fn exec(command: &str) -> ToolCall {
    call("bash__exec", json!({"command": command}))
}

async fn run(site: &TestProject, command: &str) -> ToolOutcome {
    toolbox(site).run(&exec(command)).await
}

/// Expected outcome of a command with a nonzero exit code.
fn failed(text: impl Into<String>) -> ToolOutcome {
    ToolOutcome {
        has_failed: true,
        ..ToolOutcome::ok(text)
    }
}

#[tokio::test]
async fn a_command_gives_its_exit_code_and_both_streams() {
    let site = TestProject::new();
    let outcome = run(&site, "pwd; echo oops >&2; exit 3").await;
    let work = site.work.canonicalize().unwrap();
    let expected = format!("exit code: 3\nstdout:\n{}\nstderr:\noops\n", work.display());
    assert_eq!(outcome, failed(expected));
    let outcome = run(&site, "kill -TERM $$").await;
    assert_eq!(outcome, failed("exit code: 143\n"));
    let outcome = run(&site, "cat").await;
    assert_eq!(outcome, ToolOutcome::ok("exit code: 0\n"));
}

#[tokio::test]
async fn background_processes_end_with_their_command_without_delay() {
    let site = TestProject::new();
    let command = "
        sleep 1000 & echo $! > child
        setsid bash -c '(echo $BASHPID > daemon; exec sleep 1000) & exit' &
        setsid nohup bash -c 'trap \"\" TERM HUP INT; echo $$ > deaf; sleep 1000' > /dev/null &
        until [ -s daemon ] && [ -s deaf ]; do sleep 0.01; done
        echo done";
    let outcome = run(&site, command).await;
    assert_eq!(outcome, ToolOutcome::ok("exit code: 0\nstdout:\ndone\n"));
    for name in ["child", "daemon", "deaf"] {
        assert!(!is_alive(site.pid_in(name)), "{name} is left");
    }
}

#[tokio::test]
async fn a_command_that_runs_too_long_is_ended_with_all_it_started() {
    let site = TestProject::new();
    let input = json!({
        "command": "echo begun; setsid sleep 1000 & echo $! > stray; trap '' TERM; sleep 1000; sleep 1000",
        "timeoutMs": 2000,
    });
    let outcome = toolbox(&site).run(&call("bash__exec", input)).await;
    assert!(outcome.is_error);
    assert!(
        outcome.text.starts_with("E_TOOL_TIMEOUT: "),
        "{}",
        outcome.text
    );
    assert!(
        outcome.text.ends_with("stdout:\nbegun\n"),
        "{}",
        outcome.text
    );
    assert!(!is_alive(site.pid_in("stray")));
}

#[tokio::test]
async fn a_call_that_is_given_up_ends_its_processes() {
    let site = Arc::new(TestProject::new());
    let command = "echo $$ > main; setsid sleep 1000 & echo $! > stray; wait";
    let looking = Arc::clone(&site);
    let begun =
        tokio::task::spawn_blocking(move || ["main", "stray"].map(|name| looking.pid_in(name)));
    let pids = tokio::select! {
        pids = begun => pids.unwrap(),
        outcome = toolbox(&site).run(&exec(command)) => panic!("it ended: {outcome:?}"),
    };
    wait_for("the processes are gone", || {
        (!pids.into_iter().any(is_alive)).then_some(())
    });
}

#[tokio::test]
async fn a_flood_of_output_is_shown_at_its_ends_and_kept_in_a_file() {
    let site = TestProject::new();
    let outcome = run(&site, "seq 1 400000; echo last >&2").await;
    assert!(outcome.text.starts_with("exit code: 0\nstdout:\n1\n2\n"));
    assert!(outcome.text.ends_with("399999\n400000\nstderr:\nlast\n"));
    assert!(outcome.text.len() < 40_000, "{} bytes", outcome.text.len());
    let kept = std::fs::read_to_string(site.work.join(".goondan/outputs/t.1_c0.txt")).unwrap();
    // Both streams are kept in order of arrival: stderr output may be in the middle of a line of
    // stdout.
    let numbers = kept.replacen("last\n", "", 1);
    assert!(
        numbers.lines().eq((1..=400_000).map(|n| n.to_string())),
        "{} bytes",
        numbers.len()
    );
}

#[test]
fn arguments_that_do_not_fit_are_refused_with_their_place() {
    let site = TestProject::new();
    let toolbox = toolbox(&site);
    let check = |tool: &str, input: Value| {
        let misfit = toolbox.check(&call(tool, input)).unwrap_err();
        misfit.to_string()
    };
    assert_eq!(
        check("bash__exec", json!({"command": "ls", "timeoutMs": 600_001})),
        "E_TOOL_INVALID_ARGS: bash__exec: at `/timeoutMs`: the value is greater than the maximum \
         of 600000"
    );
    assert_eq!(
        check("file-system__read", json!({"pfad": "x"})),
        "E_TOOL_INVALID_ARGS: file-system__read: at `/pfad`: is not known; at `/path`: is missing"
    );
    let unknown = check("bash__run", json!({}));
    assert!(
        unknown.starts_with("E_TOOL_NOT_IN_CATALOG: `bash__run`"),
        "{unknown}"
    );
    assert!(
        unknown.contains("`bash__exec`, `file-system__edit`"),
        "{unknown}"
    );
    assert_eq!(toolbox.check(&exec("ls")), Ok(()));
}

#[test]
fn only_looking_is_idempotent() {
    let toolbox = toolbox(&TestProject::new());
    let catalog = toolbox.catalog();
    let names = catalog.iter().map(|entry| entry.name.as_str());
    let idempotent: Vec<_> = names.filter(|name| toolbox.is_idempotent(name)).collect();
    assert_eq!(
        idempotent,
        ["read", "list", "glob", "grep"].map(|name| format!("file-system__{name}"))
    );
}

#[test]
fn tool_offers_only_listed_exports_with_their_descriptions() {
    let site = TestProject::new();
    let with = |exports: Value| {
        let mut assignment = site.assignment(Script::default());
        assignment.agent.tools[1].exports = serde_json::from_value(exports).unwrap();
        Toolbox::new(&assignment, BINARY.into())
    };
    let toolbox = with(json!([
        {"name": "write", "idempotent": true, "description": "Writes."},
        {"name": "read", "idempotent": false},
        {"name": "list"},
    ]))
    .unwrap();
    let listed = |toolbox: &Toolbox| -> Vec<(String, bool)> {
        let catalog = toolbox.catalog();
        catalog
            .iter()
            .map(|entry| {
                let name = entry.name.to_string();
                let is_idempotent = toolbox.is_idempotent(&name);
                (name, is_idempotent)
            })
            .collect()
    };
    let expected = [
        ("bash__exec", false),
        ("file-system__write", true),
        ("file-system__read", false),
        ("file-system__list", true),
    ];
    assert_eq!(
        listed(&toolbox),
        expected.map(|(name, is_idempotent)| (name.to_owned(), is_idempotent))
    );
    assert_eq!(toolbox.catalog()[1].description, "Writes.");
    assert!(toolbox.catalog()[2].description.starts_with("Reads "));

    let error = with(json!([{"name": "raed"}])).unwrap_err().to_string();
    assert!(
        error.contains("no export `raed`; it has read, write, edit, list, glob, grep"),
        "{error}"
    );
    assert!(with(json!([{"name": "read"}, {"name": "read"}])).is_err());
}

#[test]
fn an_agent_refuses_settings_that_its_tool_does_not_have() {
    let site = TestProject::new();
    let mut assignment = site.assignment(Script::default());
    let config = json!({"connection": "main"});
    assignment.agent.tools[1].config = config.as_object().unwrap().clone();
    let error = Toolbox::new(&assignment, BINARY.into()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "tool `file-system`: the settings do not fit `file-system`: unknown setting `connection`; \
         there is `secretFiles`"
    );
}
