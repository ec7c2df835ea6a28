//! Sessions of `bash`: their state, interruption and end.

use goondan_agent_process::tool_call::ToolOutcome;
use goondan_agent_process::tools::Toolbox;
use goondan_tests::wait_for;
use serde_json::json;

use crate::bash::{call, toolbox};
use crate::support::{TestProject, is_alive, wait_for_async};

async fn run(toolbox: &Toolbox, command: &str) -> ToolOutcome {
    run_for(toolbox, command, 60_000).await
}

async fn run_for(toolbox: &Toolbox, command: &str, timeout_ms: u64) -> ToolOutcome {
    let input = json!({"command": command, "session": "s", "timeoutMs": timeout_ms});
    toolbox.run(&call("bash__exec", input)).await
}

async fn text(toolbox: &Toolbox, command: &str) -> String {
    let outcome = run(toolbox, command).await;
    assert!(!outcome.is_error, "{}", outcome.text);
    outcome.text
}

#[tokio::test]
async fn a_session_keeps_its_directory_variables_functions_and_jobs() {
    let site = TestProject::new();
    let toolbox = toolbox(&site);
    let begun = "mkdir sub; cd sub; x='a  b'; declare -a list=(1 2); greet() { echo \"hi $1\"; }
        sleep 1000 & echo $! > ../job";
    assert_eq!(
        text(&toolbox, begun).await,
        "[session `s` was started]\nexit code: 0\n"
    );
    let next = "pwd; echo \"$x ${list[1]}\"; greet you; jobs -r | wc -l; (exit 3)";
    let sub = site.work.canonicalize().unwrap().join("sub");
    let expected = format!(
        "exit code: 3\nstdout:\n{}\na  b 2\nhi you\n1\n",
        sub.display()
    );
    assert_eq!(text(&toolbox, next).await, expected);
    let job = site.pid_in("job");
    assert!(is_alive(job));
    let other = json!({"command": "echo \"[$x]\"", "session": "other"});
    assert_eq!(
        toolbox.run(&call("bash__exec", other)).await.text,
        "[session `other` was started]\nexit code: 0\nstdout:\n[]\n"
    );
    drop(toolbox);
    let gone = move || wait_for("the job ends", || (!is_alive(job)).then_some(()));
    tokio::task::spawn_blocking(gone).await.unwrap();
}

#[tokio::test]
async fn nothing_a_command_prints_or_reads_looks_like_its_end() {
    let site = TestProject::new();
    let toolbox = toolbox(&site);
    let shown = text(
        &toolbox,
        "printf '0\\0'; printf '7\\0' >&2; cat; read line; echo $?",
    )
    .await;
    assert!(
        shown.ends_with("exit code: 0\nstdout:\n0\x001\nstderr:\n7\0\n"),
        "{shown:?}"
    );
    // The test runner may have inherited sockets; the session must add none.
    let sockets = "bash -c 'readlink /proc/$$/fd/*' | grep -c socket:; true";
    let alone = json!({"command": sockets});
    let alone = toolbox.run(&call("bash__exec", alone)).await.text;
    assert_eq!(text(&toolbox, sockets).await, alone);
    let quoting = "cat <<'E'\n'\"$x\\\nE\necho \"done\"";
    assert_eq!(
        text(&toolbox, quoting).await,
        "exit code: 0\nstdout:\n'\"$x\\\ndone\n"
    );
    let broken = text(&toolbox, "if then").await;
    assert!(broken.starts_with("exit code: 2\nstderr:\n"), "{broken}");
    assert_eq!(
        text(&toolbox, "echo on").await,
        "exit code: 0\nstdout:\non\n"
    );
}

#[tokio::test]
async fn a_time_out_ends_the_command_and_keeps_the_session() {
    let site = TestProject::new();
    let toolbox = toolbox(&site);
    text(&toolbox, "x=kept; sleep 1000 & echo $! > job").await;
    for command in [
        "echo begun; setsid sleep 1000 & echo $! > stray; sleep 1000; echo NOT",
        "echo begun; while :; do :; done; echo NOT",
        "echo begun; y=$(sleep 1000); echo NOT",
    ] {
        let outcome = run_for(&toolbox, command, 1_000).await;
        assert!(outcome.is_error);
        assert!(
            outcome
                .text
                .starts_with("E_TOOL_TIMEOUT: the command ran longer than 1000 ms")
                && outcome.text.contains("the session continues unchanged"),
            "{}",
            outcome.text
        );
        assert!(
            outcome.text.contains("stdout:\nbegun\n") && !outcome.text.contains("NOT"),
            "{}",
            outcome.text
        );
    }
    assert!(!is_alive(site.pid_in("stray")));
    assert!(is_alive(site.pid_in("job")));
    let next = text(&toolbox, "echo $x").await;
    assert_eq!(next, "exit code: 0\nstdout:\nkept\n");
}

#[tokio::test]
async fn session_that_cannot_be_interrupted_is_ended_and_reported() {
    let site = TestProject::new();
    let toolbox = toolbox(&site);
    text(&toolbox, "x=lost; sleep 1000 & echo $! > job").await;
    let stubborn = "deep() { sleep 1000; echo NOT; }; deep; echo NOT";
    let outcome = run_for(&toolbox, stubborn, 500).await;
    assert!(
        outcome.is_error && outcome.text.contains("its session could not be kept"),
        "{}",
        outcome.text
    );
    assert!(!outcome.text.contains("NOT"), "{}", outcome.text);
    assert!(!is_alive(site.pid_in("job")));
    assert_eq!(
        text(&toolbox, "echo [$x]").await,
        "[session `s` was started]\nexit code: 0\nstdout:\n[]\n"
    );
    let exit = text(&toolbox, "exit 9").await;
    assert!(
        exit.starts_with("exit code: 9\n[the session `s` has ended with this command;"),
        "{exit}"
    );
}

#[tokio::test]
async fn background_output_between_calls_is_shown_with_the_next_call() {
    let site = TestProject::new();
    let toolbox = toolbox(&site);
    let job = "(until [ -e go ]; do sleep 0.01; done; echo news; seq 1 50000; touch said) &";
    text(&toolbox, job).await;
    crate::support::put(site.work.join("go"), "");
    let said = site.work.join("said");
    wait_for_async("the job has said all of it", async || {
        said.exists().then_some(())
    })
    .await;
    let shown = text(&toolbox, "echo mine").await;
    assert!(
        shown.starts_with(
            "exit code: 0\nfrom the background, before this command:\nstdout:\nnews\n1\n"
        ),
        "{shown}"
    );
    assert!(shown.contains("the full output is in .goondan/outputs/session-s.txt]"));
    assert!(
        shown.ends_with("50000\nfrom this command:\nstdout:\nmine\n"),
        "{shown}"
    );
}

#[tokio::test]
async fn session_calls_run_in_order_and_canceled_call_is_interrupted() {
    let site = TestProject::new();
    let toolbox = toolbox(&site);
    text(&toolbox, "x=0").await;
    let add = "y=$x; sleep 0.05; x=$((y + 1)); echo $x";
    let three = tokio::join!(
        text(&toolbox, add),
        text(&toolbox, add),
        text(&toolbox, add)
    );
    let last = |text: &str| text.lines().last().unwrap().to_owned();
    assert_eq!(
        [last(&three.0), last(&three.1), last(&three.2)],
        ["1", "2", "3"]
    );

    let begun = tokio::task::spawn_blocking({
        let path = site.work.join("pid");
        move || wait_for("it runs", || path.exists().then_some(()))
    });
    tokio::select! {
        begun = begun => begun.unwrap(),
        outcome = run(&toolbox, "echo $BASHPID > pid; sleep 1000") => panic!("{outcome:?}"),
    }
    assert_eq!(last(&text(&toolbox, "echo $x").await), "3");
}

#[tokio::test]
async fn there_are_only_so_many_sessions() {
    let site = TestProject::new();
    let toolbox = toolbox(&site);
    let open = |name: String| {
        toolbox.run(&call(
            "bash__exec",
            json!({"command": "true", "session": name}),
        ))
    };
    for number in 0..8 {
        assert!(!open(format!("n{number}")).await.is_error);
    }
    let refused = open("n8".to_owned()).await;
    assert!(
        refused
            .text
            .starts_with("E_TOO_MANY_SESSIONS: 8 sessions are already open (n0, n1,"),
        "{}",
        refused.text
    );
    let exit = json!({"command": "exit", "session": "n0"});
    assert!(!toolbox.run(&call("bash__exec", exit)).await.is_error);
    eventually_open(&toolbox).await;
}

/// The shell's task needs a moment to exit.
async fn eventually_open(toolbox: &Toolbox) {
    wait_for_async("a session ends", async || {
        let input = json!({"command": "true", "session": "n8"});
        let outcome = toolbox.run(&call("bash__exec", input)).await;
        (!outcome.is_error).then_some(())
    })
    .await;
}
