//! Goal: a pause of the whole machine does not count toward timeouts (`SUP-9`), and a real timeout
//! still occurs.
//!
//! Method: the real binaries, all stopped and continued together during a tool call and a model
//! call.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use goondan_tests::processes::{self, Signal};
use goondan_tests::provider::{Provider, ProviderResponse, openai_saying};
use goondan_tests::{Daemon, Home, wait_until};

/// Timeout of commands and models.
const PATIENCE_MS: u64 = 3_000;
/// More than twice that.
const PAUSE: Duration = Duration::from_secs(8);

/// An agent whose tool waits for the note `x.go`, in a separate shell or in a session, and one
/// whose model is at `ENDPOINT`.
const PROJECT: &str = r#"
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: scripted}
spec:
  provider: scripted
  options:
    rules:
      - when: {step: 1}
        call:
          - tool: bash__exec
            args: {command: "echo run >> NOTES/x.runs; until [ -e NOTES/x.go ]; do sleep 0.02; done; echo released", timeoutMs: PATIENCE}
          - tool: bash__exec
            args: {command: "echo run >> NOTES/x.runs; until [ -e NOTES/x.go ]; do sleep 0.02; done; echo released", timeoutMs: PATIENCE, session: s}
      - when: {tool: bash__exec, result: E_TOOL_TIMEOUT}
        say: too late
      - say: in time
---
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: hosted}
spec:
  provider: openai
  model: big-1
  endpoint: ENDPOINT
  apiKey: {value: key-of-a-test}
  timeouts: {firstByteMs: PATIENCE}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: tools}
spec:
  modelConfig: {modelRef: Model/scripted}
  tools:
    - {kind: Tool, name: bash, package: "@goondan/base"}
  sandbox: {write: [NOTES]}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: words}
spec:
  modelConfig: {modelRef: Model/hosted}
---
apiVersion: goondan.ai/v1
kind: Swarm
metadata: {name: main}
spec:
  entryAgent: Agent/tools
  agents: [{ref: Agent/tools}, {ref: Agent/words}]
"#;

#[test]
fn sup_9_pause_of_everything_uses_no_tool_or_model_time() {
    let home = Home::without_project();
    let (go, gone) = channel::<()>();
    let provider = Provider::start(move |_| {
        // Later requests are answered too late.
        if gone.recv().is_err() {
            std::thread::sleep(PAUSE);
        }
        ProviderResponse::stream(&openai_saying(&["In time."]))
    });
    let project = PROJECT
        .replace("PATIENCE", &PATIENCE_MS.to_string())
        .replace("ENDPOINT", &provider.endpoint())
        .replace("NOTES", home.notes().to_str().unwrap());
    home.write("project/goondan.yaml", &project);
    home.write("notes/about", "");
    let _daemon = Daemon::serving(&home);
    let tools = home.start_gdn(&["send", "work"]);
    let words = home.start_gdn(&["send", "--agent", "words", "Hi."]);
    wait_until("the first command runs and the model is asked", || {
        !home.note("x.runs").is_empty() && provider.received().len() == 1
    });

    let everybody = processes::of_home(home.path());
    for process in &everybody {
        processes::signal(process.pid, Signal::SIGSTOP);
    }
    let paused = Instant::now();
    wait_until("the pause is over", || paused.elapsed() >= PAUSE);
    for process in &everybody {
        processes::signal(process.pid, Signal::SIGCONT);
    }
    home.write("notes/x.go", "");
    go.send(()).unwrap();
    assert_eq!(tools.wait().exits(0).stdout, "in time\n");
    assert_eq!(words.wait().exits(0).stdout, "In time.\n");
    assert_eq!(provider.received().len(), 1, "the model was asked again");

    // Now nothing is released, and nothing is paused.
    drop(go);
    std::fs::remove_file(home.notes().join("x.go")).unwrap();
    let asked = Instant::now();
    let late = home.gdn(&["send", "--instance", "late", "work"]).exits(0);
    assert_eq!(late.stdout, "too late\n");
    let took = asked.elapsed();
    assert!(took >= Duration::from_millis(PATIENCE_MS), "{took:?}");
    let args = ["send", "--agent", "words", "--instance", "late", "Hi."];
    let failed = home.gdn(&args);
    assert_ne!(failed.code, 0, "{failed:?}");
    assert!(failed.stderr.contains("E_MODEL_TIMEOUT"), "{failed:?}");
}
