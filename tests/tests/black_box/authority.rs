//! A child's permissions follow from its definition, not from its claims (`SEC-7`).
//!
//! Method: the real daemon, and children that send messages no honest child sends.

use std::sync::mpsc::channel;

use goondan_tests::binaries::example;
use goondan_tests::home::{AGENT, CONNECTOR};
use goondan_tests::log::message;
use goondan_tests::misbehaviour::{self, EXAMPLE, TURN, heard, order_to_say};
use goondan_tests::processes::Signal;
use goondan_tests::provider::{Provider, ProviderResponse, openai_saying};
use goondan_tests::{Daemon, Home, http, wait_for, wait_until};
use serde_json::{Value, json};

const BROKEN: &str = "process violated the protocol; killed";
/// Longer than any of these tests.
const LONG_MS: u64 = 600_000;

/// Two agents with a model each, and a webhook. Only the second agent has tools that reach anything.
fn project(provider: &Provider) -> String {
    let endpoint = provider.endpoint();
    let agent = |name: &str, model: &str, tools: &str| {
        format!(
            r#"
apiVersion: goondan.ai/v1
kind: Model
metadata: {{name: {model}}}
spec: {{provider: openai, model: {model}-1, endpoint: {endpoint}, apiKey: {{value: sk-{model}}}}}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {{name: {name}}}
spec:
  modelConfig: {{modelRef: Model/{model}}}
  tools: [{tools}]
---
"#
        )
    };
    let base = |name: &str| format!("{{kind: Tool, name: {name}, package: \"@goondan/base\"}}");
    let tools = ["agents", "self-restart", "http-fetch"]
        .map(base)
        .join(", ");
    let agents = agent("worker", "cheap", &base("bash")) + &agent("helper", "dear", &tools);
    let connection = |name: &str, connector: &str, rest: &str| {
        format!(
            r#"
apiVersion: goondan.ai/v1
kind: Connection
metadata: {{name: {name}}}
spec:
  connectorRef: {{kind: Connector, name: {connector}, package: "@goondan/base"}}
  {rest}
---
"#
        )
    };
    let hook = "config: {path: /hook}";
    let connections = connection("hook", "webhook", hook)
        + &connection("web", "http", "config: {allow: [example.org]}");
    let swarm = r#"
apiVersion: goondan.ai/v1
kind: Swarm
metadata: {name: swarm}
spec:
  entryAgent: Agent/worker
  agents: [{ref: Agent/worker}, {ref: Agent/helper}]
  # A process that does everything wrong does not end its turn either.
  policy: {shutdown: {gracePeriodSeconds: 1}}
"#;
    agents + &connections + swarm
}

struct AuthorityFixture {
    daemon: Daemon,
    home: Home,
    provider: Provider,
    _bin_dir: tempfile::TempDir,
}

impl AuthorityFixture {
    fn new() -> Self {
        Self::with(Provider::start(|_| {
            ProviderResponse::stream(&openai_saying(&["honest"]))
        }))
    }

    fn with(provider: Provider) -> Self {
        let home = Home::new(&project(&provider));
        let bin_dir = home.bin_dir_of_its_own();
        for name in [AGENT, CONNECTOR] {
            std::fs::hard_link(example(EXAMPLE), bin_dir.path().join(name)).unwrap();
        }
        let daemon = Daemon::start_in(&home, bin_dir.path());
        home.gdn(&["run"]).exits(0);
        Self {
            daemon,
            home,
            provider,
            _bin_dir: bin_dir,
        }
    }

    /// Replies to an agent process that sends these frames in its turn.
    fn answers(&self, key: &str, frames: &[Value]) -> Vec<Value> {
        let expected = frames
            .iter()
            .filter(|frame| frame.get("id").is_some() || frame["type"] == "call")
            .count();
        order_to_say(self.home.path(), AGENT, frames);
        let args = ["send", "--no-wait", "--instance", key, "hi"];
        self.home.gdn(&args).exits(0);
        wait_for("everything is answered", || {
            let heard = heard(self.home.path(), AGENT);
            (heard.len() == expected).then_some(heard)
        })
    }

    /// Sends frames as the process of a conversation, which must be killed for the last one and
    /// replaced by an honest process.
    #[track_caller]
    fn is_broken(&self, key: &str, frames: &[Value], problem: &str) {
        order_to_say(self.home.path(), AGENT, frames);
        assert_eq!(self.home.ask(key, "hi"), "honest", "{frames:?}");
        let told = self.daemon.log().wait_for(BROKEN, |line| {
            message(line) == BROKEN && line["instanceKey"] == key
        });
        let told = told["problem"].as_str().unwrap();
        assert!(told.contains(problem), "{told}");
    }
}

fn frame(kind: &str, payload: Value) -> Value {
    let mut frame = json!({"type": kind, "from": "agent:helper:main", "to": "orchestrator"});
    frame["payload"] = payload;
    frame
}

/// A frame without an effect.
fn frame_before() -> Value {
    frame("pong", json!({"nonce": 1}))
}

fn request(kind: &str, id: u64, payload: Value) -> Value {
    let mut frame = frame(kind, payload);
    frame["id"] = json!(id);
    frame
}

fn ask(id: u64, question: Value) -> Value {
    let mut payload = json!({"turnId": TURN, "step": 1, "call": id});
    payload["question"] = question;
    request("agent.ask", id, payload)
}

fn call(id: u64, target: Value, turn: &str, record: bool) -> Value {
    let mut payload = json!({
        "callId": id, "method": "complete", "deadlineMs": LONG_MS,
        "params": {"messages": [{"role": "user", "content": "for me"}]}, "idempotent": true,
        "place": {"turnId": turn, "stepId": format!("{turn}.1")},
    });
    payload["target"] = target;
    if record {
        payload["record"] = json!({"seq": 1, "messageId": format!("{turn}.1:a")});
    }
    frame("call", payload)
}

fn complete() -> Value {
    let outcome = json!({"status": "completed", "reply": "over"});
    frame(
        "turn.complete",
        json!({"turnId": TURN, "lastSeq": 0, "outcome": outcome}),
    )
}

fn observe(event: &Value) -> Value {
    let mut payload = json!({
        "type": "turn.completed", "timestamp": "2001-01-01T00:00:00.000Z",
        "traceId": "4bf92f3577b34da6a3ce929d0e0e4736", "spanId": "00f067aa0ba902b7",
        "agentName": "helper", "instanceKey": "main", "turnId": TURN, "eventId": "another",
        "durationMs": LONG_MS, "detail": "x".repeat(100_000),
    });
    for (name, value) in event.as_object().unwrap() {
        payload[name] = value.clone();
    }
    frame("observe", payload)
}

#[test]
fn sec_7_agent_calls_only_its_metered_model_and_connections() {
    let stage = AuthorityFixture::new();
    let model = |name: &str| json!({"kind": "model", "name": name});
    let web = json!({"kind": "connection", "name": "web"});
    let mut outside = call(6, web.clone(), TURN, false);
    outside["payload"].as_object_mut().unwrap().remove("place");
    let frames = [
        call(1, model("dear"), TURN, true),
        call(2, model("dear"), TURN, false),
        call(3, model("cheap"), TURN, false),
        call(4, model("cheap"), "another-turn", true),
        call(5, web, TURN, false),
        outside,
        complete(),
    ];
    let answers = stage.answers("k", &frames);
    let told = |answer: &Value| {
        let error = &answer["payload"]["outcome"]["error"];
        assert_eq!(error["code"], "refused", "{answer}");
        error["message"].as_str().unwrap().to_owned()
    };
    let told: Vec<String> = answers.iter().map(told).collect();
    for (text, expected) in told.iter().zip([
        "the agent's model is `cheap`; it must not call model `dear`",
        "the agent's model is `cheap`",
        "must be for the recorded reply of a step",
        "must belong to a step of the turn in progress",
        "no tool of the agent uses connection `web`",
        "must belong to a step of the turn in progress",
    ]) {
        assert!(text.contains(expected), "{text}");
    }
    assert_eq!(stage.provider.received().len(), 0, "a model was asked");
    wait_until("the turn is over", || {
        let shown = stage.home.gdn_json(&["instance", "show", "k"]);
        shown["status"] == "idle"
    });
    assert_eq!(stage.home.gdn_json(&["usage"])["total"]["replies"], 0);
}

#[test]
fn sec_7_other_agents_and_restart_need_the_granting_tool() {
    let stage = AuthorityFixture::new();
    let to_helper = |op: &str| json!({"op": op, "agent": "helper", "input": "work for me"});
    let mut wanted = to_helper("request");
    wanted["wait"] = json!(true);
    wanted["timeoutMs"] = json!(1_000);
    let frames = [
        ask(2, wanted),
        ask(3, to_helper("send")),
        ask(4, to_helper("spawn")),
        ask(5, json!({"op": "list", "scope": "workspace"})),
        ask(6, json!({"op": "catalog"})),
        ask(7, json!({"op": "restart", "reason": "because"})),
    ];
    for answer in stage.answers("k", &frames) {
        assert_eq!(answer["payload"]["status"], "refused", "{answer}");
        assert_eq!(answer["payload"]["code"], "E_NOT_GRANTED", "{answer}");
        let told = answer["payload"]["message"].as_str().unwrap();
        assert!(told.contains("goondan.yaml"), "{told}");
    }
    let listed = stage.home.gdn_json(&["instance", "list"]);
    let listed = listed["instances"].as_array().unwrap();
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(stage.provider.received().len(), 0);
}

#[test]
fn sec_7_daemon_sets_identity_trace_and_time_of_agent_reports() {
    let stage = AuthorityFixture::new();
    let step = json!({"type": "step.started", "stepId": format!("{TURN}.1")});
    stage.answers("k", &[observe(&json!({})), observe(&step), complete()]);
    let path = "instances/k/messages/runtime-events.jsonl";
    let path = stage.home.workspace_dir().join(path);
    let observed = wait_for("both are recorded", || {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let lines: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str).collect();
        lines.ok().filter(|lines| lines.len() == 2)
    });
    let handed_over = stage.daemon.log().wait_for("the turn ended", |line| {
        message(line) == "turn committed and answered" && line["instanceKey"] == "k"
    });
    for event in &observed {
        assert_eq!(event["agentName"], "worker");
        assert_eq!(event["instanceKey"], "k");
        assert_eq!(event["traceId"], handed_over["traceId"]);
        let year = event["timestamp"]
            .as_str()
            .unwrap()
            .split_once('-')
            .unwrap()
            .0;
        assert_ne!(year, "2001");
    }
    let (whole, step) = (&observed[0], &observed[1]);
    assert_eq!(whole["spanId"], handed_over["spanId"]);
    assert_eq!(whole["eventId"], handed_over["eventId"]);
    assert!(whole["durationMs"].as_u64().unwrap() < LONG_MS);
    assert!(whole["detail"].as_str().unwrap().len() < 1_000);
    assert_eq!(step["parentSpanId"], whole["spanId"]);
    assert_ne!(step["spanId"], "00f067aa0ba902b7");
    assert!(step.get("durationMs").is_none(), "{step}");
}

#[test]
fn sec_7_a_turn_that_is_not_its_own_is_closed_to_an_agent() {
    let stage = AuthorityFixture::new();
    let outcome = json!({"status": "completed", "reply": "not so"});
    let done = |turn: &str, more: Value| {
        let mut payload = json!({"turnId": turn, "lastSeq": 0, "outcome": outcome});
        payload
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        frame("turn.complete", payload)
    };
    let other = json!({"turnId": "another", "seq": 1, "event": {"type": "truncate"}});
    let question =
        json!({"turnId": "another", "step": 1, "call": 0, "question": {"op": "catalog"}});
    let parked = json!({"type": "turn.parked"});
    let cases = [
        (
            frame("turn.append", other),
            "a turn that is not in progress",
        ),
        (done("another", json!({})), "a turn that is not in progress"),
        (
            done(TURN, json!({"answered": ["x"]})),
            "that it was not given",
        ),
        (
            done(TURN, json!({"states": {"another": {"x": 1}}})),
            "an extension that it does not have",
        ),
        (
            request("agent.ask", 2, question),
            "a turn that is not in progress",
        ),
        (
            observe(&json!({"turnId": "another"})),
            "a turn that is not in progress",
        ),
        (observe(&parked), "only the orchestrator may send"),
        (
            observe(&json!({"type": "step.started", "stepId": "another.1"})),
            "a step of another turn",
        ),
    ];
    for (number, (frame, problem)) in cases.into_iter().enumerate() {
        stage.is_broken(&format!("k{number}"), &[frame], problem);
    }
}

#[test]
fn sec_7_agent_sends_no_connector_messages_and_greets_once() {
    let stage = AuthorityFixture::new();
    let version = json!(goondan_protocol::version::Version::current());
    let hello = json!({"version": version, "role": "agent", "pid": 1});
    let greeting = frame("hello", hello);
    let event = json!({"id": "1", "name": "request", "input": "hi", "instanceKey": "main"});
    let cases = [
        frame("status", json!({"ready": true, "detail": "x"})),
        request("event", 2, event),
        request("state.get", 2, json!({})),
        request("state.set", 2, json!({"state": {}})),
        frame("call.piece", json!({"callId": 1, "piece": {}})),
        frame("call.result", json!({"callId": 1, "outcome": {"ok": {}}})),
    ];
    for (number, frame) in cases.into_iter().enumerate() {
        stage.is_broken(
            &format!("k{number}"),
            &[frame],
            "which its kind must not send",
        );
    }
    stage.is_broken(
        "twice",
        &[greeting.clone(), greeting],
        "it sent a second greeting",
    );
    let early = frame("conversation.load", json!({"offset": 0}));
    stage.is_broken("early", &[early], "it sent a message before the greeting");
}

#[test]
fn sec_7_connector_cannot_act_as_agent_or_another_connection() {
    let stage = AuthorityFixture::new();
    // The model's process already runs, so only the webhook's is started from here on.
    assert_eq!(stage.home.ask("first", "hi"), "honest");
    stage.daemon.webhook("hook");
    let event = json!({"id": "1", "name": "request", "input": "hi", "connection": "web"});
    let observed = observe(&json!({"turnId": "t"}));
    let cases = [
        (
            request("conversation.load", 2, json!({"offset": 0})),
            "must not send",
        ),
        (
            frame("turn.append", json!({"turnId": "t", "seq": 1, "event": {}})),
            "must not send",
        ),
        (
            frame(
                "turn.complete",
                json!({"turnId": "t", "lastSeq": 0,
                "outcome": {"status": "completed", "reply": ""}}),
            ),
            "must not send",
        ),
        (ask(2, json!({"op": "catalog"})), "must not send"),
        (observed, "must not send"),
        (
            call(1, json!({"kind": "model", "name": "dear"}), "t", false),
            "must not send",
        ),
        (frame("call.cancel", json!({"callId": 1})), "must not send"),
        (request("event", 2, event), "unknown field `connection`"),
    ];
    let ended = |seen: usize| {
        stage.daemon.log().wait_for_after(seen, BROKEN, |line| {
            message(line) == BROKEN && line["connection"] == "hook"
        })
    };
    for (frame, problem) in cases {
        let seen = stage.daemon.log().lines().len();
        let before = frame_before();
        order_to_say(stage.home.path(), CONNECTOR, &[before, frame]);
        let processes = stage.home.ps();
        let hook = processes.iter().find(|process| process["name"] == "hook");
        let pid = hook.unwrap()["pid"].as_u64().unwrap();
        goondan_tests::processes::signal(u32::try_from(pid).unwrap(), Signal::SIGKILL);
        let told = ended(seen);
        let told = told["problem"].as_str().unwrap();
        assert!(told.contains(problem), "{told}");
        stage
            .daemon
            .log()
            .wait_for_after(seen, "a real one listens", |line| {
                message(line) == "listening"
            });
        // Its valid messages reset its crash back-off.
        let address = stage.daemon.webhook("hook");
        let accepted = http::post(address, "/hook", &[], "hi").unwrap();
        assert_eq!(accepted.status, 202);
    }
    assert_eq!(misbehaviour::waiting(stage.home.path(), CONNECTOR), 0);
}

#[test]
fn sec_7_connector_claims_about_calls_of_others_change_nothing() {
    let (go, gone) = channel::<()>();
    let provider = Provider::start(move |received| {
        if received.number > 0 {
            gone.recv().unwrap();
        }
        ProviderResponse::stream(&openai_saying(&["honest"]))
    });
    let stage = AuthorityFixture::with(provider);
    // The model's process already runs, so only the webhook's is started from here on.
    assert_eq!(stage.home.ask("first", "hi"), "honest");
    stage.daemon.webhook("hook");
    let asking = stage
        .home
        .start_gdn(&["send", "--instance", "second", "hi"]);
    wait_until("the model is asked", || {
        stage.provider.received().len() == 2
    });

    let forged = (1..=40).flat_map(|id| {
        let piece = json!({"type": "text", "text": "forged"});
        let answer = json!({"message": {"content": "forged"}, "finishReason": "stop"});
        [
            frame("call.piece", json!({"callId": id, "piece": piece})),
            frame(
                "call.result",
                json!({"callId": id, "outcome": {"ok": answer}}),
            ),
        ]
    });
    let mut frames: Vec<Value> = forged.collect();
    // After this reply, all earlier frames have been processed.
    frames.push(request("state.get", 9, json!({})));
    order_to_say(stage.home.path(), CONNECTOR, &frames);
    let processes = stage.home.ps();
    let hook = processes.iter().find(|process| process["name"] == "hook");
    let pid = hook.unwrap()["pid"].as_u64().unwrap();
    goondan_tests::processes::signal(u32::try_from(pid).unwrap(), Signal::SIGKILL);
    wait_until("the forger is answered", || {
        !heard(stage.home.path(), CONNECTOR).is_empty()
    });
    go.send(()).unwrap();
    assert_eq!(asking.wait().exits(0).stdout, "honest\n");
    let messages = stage.home.history("second");
    assert_eq!(messages.len(), 2, "{messages:#?}");
    assert_eq!(stage.provider.received().len(), 2);
}
