//! Goal: a recorded reply of a model is neither lost nor requested again, whichever process is killed during
//! the call; and a model's output is streamed as it arrives.
//!
//! Method: the real binaries, and a local provider that counts its requests.

use std::sync::mpsc::channel;

use goondan_tests::home::{AGENT, CONNECTOR};
use goondan_tests::log::message;
use goondan_tests::processes::{self, Signal};
use goondan_tests::provider::{
    OPENAI_DONE, Provider, ProviderResponse, ResponseEnd, openai, openai_delta, openai_saying,
};
use goondan_tests::{Daemon, Home, wait_until};
use serde_json::json;

use crate::conversation::{check, shape, text};

const KEY: &str = "sk-never-shown";

/// One agent with the tool `bash`, and a model at `provider`.
pub(crate) fn project(provider: &Provider) -> String {
    let endpoint = provider.endpoint();
    format!(
        r#"
apiVersion: goondan.ai/v1
kind: Model
metadata: {{name: hosted}}
spec:
  provider: openai
  model: big-1
  endpoint: {endpoint}
  apiKey: {{value: {KEY}}}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {{name: worker}}
spec:
  modelConfig: {{modelRef: Model/hosted}}
  prompt: {{system: Be brief.}}
  tools:
    - {{kind: Tool, name: bash, package: "@goondan/base"}}
"#
    )
}

fn pid_of(home: &Home, program: &str) -> u32 {
    let mut pid = 0;
    wait_until("the process runs", || {
        let running = home.running(program);
        pid = running.first().map_or(0, |process| process.pid);
        pid != 0
    });
    pid
}

#[test]
fn reply_streams_and_a_connector_killed_in_it_is_replaced() {
    let begun = openai(&[openai_delta(&json!({"content": "Hel"}))]);
    let provider = Provider::start(move |received| match received.number {
        0 => ProviderResponse::stream(&begun).ending(ResponseEnd::Silent),
        _ => ProviderResponse::stream(&openai_saying(&["Hello", " there."])),
    });
    let home = Home::new(&project(&provider));
    let daemon = Daemon::serving(&home);
    let asking = home.start_gdn(&["send", "--stream", "Hi."]);
    // The turn is far from complete; the provider sends nothing more in this call.
    asking.wait_for_stdout("Hel");
    processes::signal(pid_of(&home, CONNECTOR), Signal::SIGKILL);
    let ran = asking.wait().exits(0);
    assert_eq!(ran.stdout, "Hel\nHello there.\n");
    ran.tells(&[
        "calling the model again",
        "attempt 2 of 5 now: model `hosted` failed",
        "its process ended: killed by SIGKILL",
    ]);
    assert_eq!(provider.received().len(), 2);
    let messages = home.history("main");
    check(&messages);
    assert_eq!(shape(&messages), "ua");
    assert_eq!(text(&messages[1]), "Hello there.");
    let usage = &messages[1]["metadata"]["usage"];
    assert_eq!(usage["inputTokens"], 6, "{usage}");
    // The answer to the same event is the recorded one, verbatim, and costs nothing.
    assert_eq!(home.ask("other", "Hi."), "Hello there.");
    assert_eq!(provider.received().len(), 3);
    let model = home
        .ps()
        .into_iter()
        .find(|p| p["role"] == "model")
        .unwrap();
    assert_eq!(model["name"], "hosted");
    daemon.stop().check(false);
}

#[test]
fn an_agent_killed_in_a_call_wastes_no_reply() {
    let (go, wait) = channel::<()>();
    let provider = Provider::start(move |_| {
        wait.recv().unwrap();
        ProviderResponse::stream(&openai_saying(&["Only once."]))
    });
    let home = Home::new(&project(&provider));
    let daemon = Daemon::serving(&home);
    let asking = home.start_gdn(&["send", "Hi."]);
    wait_until("the provider is asked", || provider.received().len() == 1);
    processes::signal(pid_of(&home, AGENT), Signal::SIGKILL);
    daemon
        .log()
        .wait_for("the turn is handed over again", |line| {
            message(line) == "turn started again"
        });
    go.send(()).unwrap();
    assert_eq!(asking.wait().exits(0).stdout, "Only once.\n");
    assert_eq!(
        provider.received().len(),
        1,
        "the reply was asked for again"
    );
    let messages = home.history("main");
    check(&messages);
    assert_eq!(shape(&messages), "ua");
}

#[test]
fn a_daemon_killed_after_a_reply_does_not_ask_for_it_again() {
    let call = |notes: &str| {
        let command =
            format!("echo run >> {notes}/x.runs; until [ -e {notes}/x.go ]; do sleep 0.02; done");
        let arguments = json!({"command": command}).to_string();
        let call = json!({"tool_calls": [{"index": 0, "id": "c1", "type": "function",
            "function": {"name": "bash__exec", "arguments": arguments}}]});
        let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]});
        openai(&[openai_delta(&call), end]) + OPENAI_DONE
    };
    let home = Home::without_project();
    let calling = call(home.notes().to_str().unwrap());
    let provider = Provider::start(move |received| match received.number {
        0 => ProviderResponse::stream(&calling).in_parts_of(7),
        _ => ProviderResponse::stream(&openai_saying(&["Done."])),
    });
    let notes = home.notes();
    let sandbox = format!("  sandbox: {{write: [{}]}}\n", notes.display());
    home.write("project/goondan.yaml", &(project(&provider) + &sandbox));
    home.write("notes/about", "");
    let daemon = Daemon::serving(&home);
    let asking = home.start_gdn(&["send", "--event-id", "e1", "Hi."]);
    wait_until("the tool runs", || home.note("x.runs") == "run\n");
    drop(daemon.kill());
    asking.wait().exits(9);
    assert_eq!(provider.received().len(), 1);

    let _daemon = Daemon::start(&home);
    home.write("notes/x.go", "");
    let sent = home.gdn_json(&["send", "--event-id", "e1", "Hi."]);
    assert_eq!(sent["outcome"]["reply"], "Done.");
    let received = provider.received();
    assert_eq!(received.len(), 2, "the first reply was asked for again");
    let told = received[1].body["messages"].to_string();
    assert!(told.contains("E_TOOL_INTERRUPTED"), "{told}");
    let messages = home.history("main");
    check(&messages);
    assert_eq!(shape(&messages), "uata");
}

#[test]
fn rate_limited_call_is_retried_and_wrong_key_is_never_shown() {
    let provider = Provider::start(|received| match received.number {
        0 => ProviderResponse::error(429, &json!({"error": {"message": "slow down"}}))
            .with_header("retry-after-ms", "20"),
        1 => ProviderResponse::stream(&openai_saying(&["Hello."])),
        _ => ProviderResponse::error(
            401,
            &json!({"error": {"message": format!("bad key {KEY}")}}),
        ),
    });
    let home = Home::new(&project(&provider));
    let daemon = Daemon::serving(&home);
    let ran = home.gdn(&["send", "Hi."]).exits(0);
    assert_eq!(ran.stdout, "Hello.\n");
    // The waiting client is notified about the reason of the delay.
    ran.tells(&["attempt 2 of 5 in ", "failed (rateLimited): ", "429"]);
    assert_eq!(provider.received().len(), 2);

    let ran = home
        .gdn(&["send", "Hi."])
        .exits(7)
        .tells(&["E_MODEL_UNAUTHORIZED", "401", "apiKey"]);
    assert!(!ran.stderr.contains(KEY), "{ran:?}");
    let log = format!("{:?}", daemon.log().lines());
    assert!(!log.contains(KEY), "the key is in the log");
    // The agent's process does not receive the key either: it is neither on disk nor in `ps`.
    let state = std::process::Command::new("grep")
        .args(["-r", "--", KEY])
        .arg(home.state_root())
        .output()
        .unwrap();
    assert!(state.stdout.is_empty(), "the key is in the state root");
}

#[test]
fn image_in_a_message_reaches_the_model_and_is_kept() {
    let provider = Provider::start(|_| ProviderResponse::stream(&openai_saying(&["A cat."])));
    let home = Home::new(&project(&provider));
    let daemon = Daemon::serving(&home);
    home.write("project/cat.gif", "GIF89a and so on");
    let file = home.project().join("cat.gif");
    let file = file.to_str().unwrap();
    let web = "https://example.com/dog.png";
    let asked = ["send", "--image", file, "--image", web, "What is this?"];
    assert_eq!(home.gdn(&asked).exits(0).stdout, "A cat.\n");
    let seen = |number: usize| {
        let body = &provider.received()[number].body;
        let messages = body["messages"].as_array().unwrap();
        let user = messages.iter().find(|m| m["role"] == "user").unwrap();
        user["content"].to_string()
    };
    let base64 = "R0lGODlhIGFuZCBzbyBvbg==";
    for part in [
        "What is this?",
        &format!("data:image/gif;base64,{base64}"),
        web,
    ] {
        assert!(seen(0).contains(part), "{}", seen(0));
    }
    home.gdn(&["instance", "history"]).exits(0).prints(&[
        "What is this?",
        "[image/gif, 18 bytes]",
        "[image https://example.com/dog.png]",
    ]);
    // It is still there in the next turn, and after the daemon was killed.
    daemon.kill();
    let _daemon = Daemon::start(&home);
    home.ask("main", "And its colour?");
    assert!(seen(1).contains(base64), "{}", seen(1));
    check(&home.history("main"));
    home.gdn(&["verify"]).exits(0);

    let refused = home.gdn(&["send", "--image", "nothing.png", "Hm?"]);
    refused.exits(2).tells(&["cannot be read"]);
}

/// Maximum concurrent calls per credential (`CALLS_IN_FLIGHT_PER_CREDENTIAL`).
const IN_FLIGHT_MAX: usize = 16;

#[test]
fn models_with_one_key_are_asked_so_many_times_at_once_together() {
    let (go, wait) = channel::<()>();
    let provider = Provider::start(move |_| {
        wait.recv().unwrap();
        ProviderResponse::stream(&openai_saying(&["Yes."]))
    });
    let other = project(&provider)
        .replace("name: hosted", "name: other")
        .replace("name: worker", "name: second")
        .replace("Model/hosted", "Model/other");
    let swarm = "---\napiVersion: goondan.ai/v1\nkind: Swarm\nmetadata: {name: both}\n\
                 spec: {entryAgent: Agent/worker}\n";
    let home = Home::new(&format!("{}---{other}{swarm}", project(&provider)));
    let daemon = Daemon::serving_with_details(&home);
    let all = IN_FLIGHT_MAX + 4;
    for n in 0..all {
        let (agent, key) = (["worker", "second"][n % 2], format!("k{n}"));
        let send = [
            "send",
            "--no-wait",
            "--agent",
            agent,
            "--instance",
            &key,
            "Hi.",
        ];
        home.gdn(&send).exits(0);
    }
    wait_until("every turn is at its question", || {
        daemon.log().saying("step.started").len() == all
    });
    for answered in 0..all {
        let expected = all.min(IN_FLIGHT_MAX + answered);
        wait_until("as many are asked as may be", || {
            provider.received().len() >= expected
        });
        assert_eq!(provider.received().len(), expected);
        go.send(()).unwrap();
    }
    wait_until("every turn is over", || {
        daemon.log().saying("turn committed and answered").len() == all
    });
}

#[test]
fn sup_8_a_turn_in_progress_finishes_on_the_model_it_began_with() {
    let call = json!({"tool_calls": [{"index": 0, "id": "c1", "type": "function",
        "function": {"name": "bash__exec", "arguments": json!({"command": "true"}).to_string()}}]});
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]});
    let call = openai(&[openai_delta(&call), end]) + OPENAI_DONE;
    let (go, wait) = channel::<()>();
    let first = Provider::start(move |received| match received.number {
        0 => {
            wait.recv().unwrap();
            ProviderResponse::stream(&call)
        }
        _ => ProviderResponse::stream(&openai_saying(&["Done."])),
    });
    let second = Provider::start(|_| ProviderResponse::stream(&openai_saying(&["Later."])));
    let home = Home::new(&project(&first));
    let _daemon = Daemon::serving(&home);
    let asking = home.start_gdn(&["send", "Hi."]);
    wait_until("the provider is asked", || first.received().len() == 1);
    home.write("project/goondan.yaml", &project(&second));
    home.gdn(&["reload"]).exits(0).prints(&["Model/hosted"]);
    go.send(()).unwrap();
    assert_eq!(asking.wait().exits(0).stdout, "Done.\n");
    assert_eq!((first.received().len(), second.received().len()), (2, 0));
    assert_eq!(home.ask("main", "And now?"), "Later.");
    assert_eq!((first.received().len(), second.received().len()), (2, 1));
}

#[test]
fn html_page_or_refusal_as_reply_ends_the_turn_with_its_reason() {
    let page = || {
        let mut page = ProviderResponse::stream("<!doctype html><title>Sign in</title>");
        page.headers = vec![("content-type", "text/html".to_owned())];
        page
    };
    let refusal = openai(&[openai_delta(&json!({"refusal": "I will not."}))]) + OPENAI_DONE;
    let provider = Provider::start(move |received| match received.number {
        0 => page(),
        1 => ProviderResponse::stream(&refusal),
        _ => ProviderResponse::json(&json!({"choices": [{"finish_reason": "stop",
            "message": {"role": "assistant", "content": "Hello."}}]})),
    });
    let home = Home::new(&project(&provider));
    let daemon = Daemon::serving(&home);
    let page = home.gdn(&["send", "Hi."]).exits(7);
    page.tells(&["E_MODEL", "text/html", "Sign in", "`endpoint`"]);
    let refused = home.gdn(&["send", "Hi."]).exits(7);
    refused.tells(&["E_MODEL_REFUSED", "I will not."]);
    assert_eq!(home.ask("main", "Hi."), "Hello.");
    assert_eq!(provider.received().len(), 3, "none was asked for again");
    daemon.stop();
}

#[test]
fn prov_1_replies_that_a_proxy_compresses_are_read() {
    let provider = Provider::start(|received| match received.number {
        0 => ProviderResponse::stream(&openai_saying(&["Hello", " there."]))
            .in_gzip()
            .in_parts_of(7),
        1 => {
            let message = json!({"error": {"message": "no such model as big-1"}});
            ProviderResponse::error(404, &message).in_gzip()
        }
        _ => ProviderResponse::stream("?").with_header("content-encoding", "br"),
    });
    let home = Home::new(&project(&provider));
    let daemon = Daemon::serving(&home);
    let said = home.gdn(&["send", "Hi."]).exits(0).stdout;
    assert!(said.contains("Hello there."), "{said}");
    let failed = home.gdn(&["send", "Hi."]);
    failed.tells(&["answered 404", "no such model as big-1"]);
    let foreign = home.gdn(&["send", "Hi."]);
    foreign.tells(&["in the encoding `br`", "turn off compression"]);
    daemon.stop().check(false);
}
