//! Goal: each alert rule fires when its condition occurs, and none fires in normal operation
//! (`OBS-3`).
//!
//! Method: the real binaries, scraped over HTTP as Prometheus does; faults are injected one after
//! the other, each on a separate agent or connection, and the rules of `docs/operations` are
//! evaluated unchanged, with two exceptions: the age of events is one second instead of 15 minutes,
//! and a `for` of a minute is shortened to a second, unless `GOONDAN_TEST_ALERTS_HOLD=1` allows
//! more time. A soak uses the unchanged rules for `GOONDAN_TEST_ALERTS_SOAK_S` seconds.

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use goondan_tests::alerts::{ActiveConditions, AlertRule, rules};
use goondan_tests::home::Home;
use goondan_tests::processes::{self, Signal};
use goondan_tests::promql::{Element, Scrapes};
use goondan_tests::provider::{Provider, ProviderResponse, openai, openai_delta, openai_saying};
use goondan_tests::scrape::Scrape;
use goondan_tests::telegram::{TOKEN, Telegram, TelegramFault};
use goondan_tests::wait::{PATIENCE, within};
use goondan_tests::{Daemon, http, wait_for, wait_until};
use serde_json::json;

/// Replaces the age of events in the rules.
const AGE: (&str, &str) = ("> 900", "> 1");

/// Scrapes the endpoint, and evaluates the rules over the scrapes.
struct Watch {
    address: SocketAddr,
    scrapes: Scrapes,
    holding: ActiveConditions,
}

/// Variable that makes rules use their full hold time.
const HOLD_VAR: &str = "GOONDAN_TEST_ALERTS_HOLD";
/// Divisor of the hold time without that variable.
const HOLD_PART: u32 = 60;
/// Maximum hold time of a rule.
const LONGEST_HOLD: Duration = Duration::from_secs(120);

/// Variable with the duration of a soak in seconds; the long form is 3600.
const SOAK_VAR: &str = "GOONDAN_TEST_ALERTS_SOAK_S";
/// Default duration, which covers only part of a day's events.
const SOAK_S: u64 = 5;

fn hold_of(rule: &AlertRule) -> Duration {
    match std::env::var_os(HOLD_VAR) {
        Some(_) => rule.hold,
        None => rule.hold / HOLD_PART,
    }
}

impl Watch {
    fn scrape(&mut self) {
        let told = http::get(self.address, "/metrics");
        // The endpoint is unreachable: Prometheus has no samples then.
        let scrape = told.map_or_else(|_gone| Scrape::default(), |told| Scrape::read(&told.body));
        self.scrapes.add(scrape);
    }

    fn firing(&mut self) -> Vec<(String, Vec<Element>)> {
        self.scrape();
        let (scrapes, holding, now) = (&self.scrapes, &mut self.holding, Instant::now());
        let results = rules().into_iter().map(|rule| {
            let expression = rule.expression.replace(AGE.0, AGE.1);
            let found = scrapes.evaluate(&expression);
            let fires = holding.take(&rule, found, hold_of(&rule), now);
            (rule.name, fires)
        });
        results.filter(|(_, fires)| !fires.is_empty()).collect()
    }

    /// Waits until a rule fires with these labels. It must not fire before.
    fn fires(&mut self, rule: &str, labels: &[(&str, &str)]) {
        let has = |element: &Element| {
            let value = |name: &str| element.labels.get(name).map(String::as_str);
            labels
                .iter()
                .all(|(name, wanted)| value(name) == Some(wanted))
        };
        let fired = within(PATIENCE + LONGEST_HOLD, || {
            let firing = self.firing();
            let mut found = firing.iter().filter(|(name, _)| name == rule);
            let fires = found.any(|(_, elements)| elements.iter().any(has));
            fires.then_some(())
        });
        assert!(fired.is_some(), "waited in vain for {rule} to fire");
    }

    /// Names of the rules that fire now.
    fn names(&mut self) -> Vec<String> {
        self.firing().into_iter().map(|(name, _)| name).collect()
    }
}

/// A reply with this token usage.
fn taking(tokens: u64) -> String {
    openai(&[
        openai_delta(&json!({"role": "assistant", "content": "Done."})),
        json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
        json!({"choices": [], "usage": {"prompt_tokens": tokens - 1, "completion_tokens": 1}}),
    ]) + "data: [DONE]\n\n"
}

/// A provider that behaves according to the model's name.
fn provider() -> Provider {
    Provider::start(|received| match received.body["model"].as_str() {
        Some("bad") => ProviderResponse::error(401, &json!({"error": {"message": "wrong key"}})),
        Some("dear") => ProviderResponse::stream(&taking(4_300)),
        _ => ProviderResponse::stream(&openai_saying(&["Done."])),
    })
}

fn project(provider: &Provider, telegram: &Telegram) -> String {
    let (endpoint, telegram) = (provider.endpoint(), telegram.endpoint());
    let model = |name: &str| {
        format!(
            "---\napiVersion: goondan.ai/v1\nkind: Model\nmetadata: {{name: {name}}}\nspec:\n  provider: openai\n  \
             model: {name}\n  endpoint: {endpoint}\n  params: {{maxTokens: 500}}\n"
        )
    };
    let agent = |name: &str, model: &str, more: &str| {
        format!(
            "---\napiVersion: goondan.ai/v1\nkind: Agent\nmetadata: {{name: {name}}}\nspec:\n  \
             modelConfig: {{modelRef: Model/{model}}}\n{more}"
        )
    };
    let connection = |name: &str, connector: &str, more: &str| {
        format!(
            "---\napiVersion: goondan.ai/v1\nkind: Connection\nmetadata: {{name: {name}}}\nspec:\n  connectorRef: \
             {{kind: Connector, name: {connector}, package: \"@goondan/base\"}}\n{more}"
        )
    };
    let scripted = r#"
apiVersion: goondan.ai/v1
kind: Model
metadata: {name: script}
spec:
  provider: scripted
  options:
    rules:
      - when: {user: '^hold$', step: 1}
        call: [{tool: bash__exec, args: {command: "until [ -e NOTES/go ]; do sleep 0.02; done"}}]
      - when: {user: '^hold$', tool: bash__exec, result: E_TOOL_INTERRUPTED}
        call: [{tool: bash__exec, args: {command: "until [ -e NOTES/go ]; do sleep 0.02; done"}}]
      - when: {user: '^tell$', step: 1}
        call: [{tool: telegram__send, args: {text: hello, chat: "1"}}]
      - when: {user: '^fail$'}
        fail: The model is overloaded.
      - say: "Done."
---
apiVersion: goondan.ai/v1
kind: Swarm
metadata: {name: office}
spec: {entryAgent: Agent/clerk}
"#;
    let bash = "  tools: [{kind: Tool, name: bash, package: \"@goondan/base\"}]\n";
    let teller = "  tools: [{kind: Tool, name: telegram, package: \"@goondan/base\"}]\n";
    let settings = format!(
        "  config: {{endpoint: \"{telegram}\", pollSeconds: 1, chats: [1]}}\n  \
         secrets: {{botToken: {{value: \"{TOKEN}\"}}}}\n"
    );
    [
        scripted.to_owned(),
        model("good"),
        model("bad"),
        model("dear"),
        agent("clerk", "good", ""),
        agent("refused", "bad", ""),
        agent(
            "spender",
            "dear",
            "  budgets: [{for: agent, tokens: 9000}]\n",
        ),
        agent("failing", "script", ""),
        agent("holder", "script", bash),
        agent("doomed", "script", bash),
        agent("teller", "script", teller),
        connection("metrics", "metrics", "  config: {port: 0}\n"),
        connection("hook", "webhook", "  config: {port: 0}\n"),
        connection("telegram", "telegram", &settings),
    ]
    .concat()
}

fn ask(home: &Home, agent: &str, text: &str) -> goondan_tests::home::CommandOutput {
    home.gdn(&["send", "--agent", agent, text])
}

/// Kills each process of a name as soon as it runs, this many times.
fn kill_each(
    home: &Home,
    name: &str,
    times: usize,
    is_victim: impl Fn(&serde_json::Value) -> bool,
) {
    let mut last = serde_json::Value::Null;
    for _ in 0..times {
        let mut pid = serde_json::Value::Null;
        wait_until("another process runs", || {
            let mut all = home.ps().into_iter();
            let Some(process) = all.find(|process| process["name"] == name) else {
                return false;
            };
            pid = process["pid"].clone();
            !pid.is_null() && pid != last && is_victim(&process)
        });
        processes::signal(
            u32::try_from(pid.as_u64().unwrap()).unwrap(),
            Signal::SIGKILL,
        );
        last = pid;
    }
}

#[test]
fn obs_3_each_alert_fires_on_its_fault_and_none_when_healthy() {
    let (provider, telegram) = (provider(), Telegram::start());
    let home = Home::new(&project(&provider, &telegram));
    let daemon = Daemon::serving(&home);
    let address = daemon.webhook("metrics");
    let scrapes = Scrapes::default();
    let holding = ActiveConditions::default();
    let mut watch = Watch {
        address,
        scrapes,
        holding,
    };
    wait_until("all is ready", || {
        let connections = home
            .ps()
            .into_iter()
            .filter(|process| process["role"] == "connector");
        connections
            .into_iter()
            .all(|process| process["readiness"] == "ready")
    });
    assert!(watch.names().is_empty(), "{:?}", watch.firing());
    let load: Vec<_> = (0..60)
        .map(|number| {
            let agent = ["clerk", "failing", "holder"][number % 3];
            let key = format!("k{}", number % 10);
            home.start_gdn(&[
                "send",
                "--agent",
                agent,
                "--instance",
                &format!("{agent}:{key}"),
                "Hi.",
            ])
        })
        .collect();
    for asking in load {
        asking.wait().exits(0);
        let quiet: Vec<String> = watch.names();
        // On a busy machine an event may wait for a second.
        assert!(
            quiet.iter().all(|name| name == "GoondanEventsWait"),
            "{quiet:?}"
        );
    }
    ask(&home, "spender", "Hi.").exits(0);
    // The metrics may be a second old.
    wait_until("nothing fires", || watch.names().is_empty());

    for _ in 0..20 {
        assert_ne!(ask(&home, "failing", "fail").code, 0);
    }
    watch.fires("GoondanTurnsFail", &[("agent", "failing")]);
    assert_ne!(ask(&home, "refused", "Hi.").code, 0);
    watch.fires("GoondanModelFails", &[("model", "bad")]);
    ask(&home, "spender", "Hi.").exits(0);
    watch.fires(
        "GoondanBudgetNearlySpent",
        &[("agent", "spender"), ("scope", "agent")],
    );
    telegram.have_deeds([TelegramFault::Answer(
        500,
        json!({"ok": false, "description": "Oh."}),
    )]);
    ask(&home, "teller", "tell").exits(0);
    watch.fires("GoondanCallsUnknown", &[("connection", "telegram")]);
    let holding = home.start_gdn(&["send", "--agent", "holder", "hold"]);
    watch.fires("GoondanEventsWait", &[("agent", "holder")]);
    let doomed = home.start_gdn(&["send", "--agent", "doomed", "hold"]);
    kill_each(&home, "doomed", 3, |process| !process["turnId"].is_null());
    watch.fires("GoondanEventsParked", &[]);
    kill_each(&home, "hook", 8, |_| true);
    watch.fires("GoondanCrashLoop", &[("connection", "hook")]);

    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let good = project(&provider, &telegram);
    let unready = format!("config: {{port: {port}}}");
    let (before, after) = good.split_once("name: webhook").unwrap();
    let unready = format!(
        "{before}name: webhook{}",
        after.replacen("config: {port: 0}", &unready, 1)
    );
    home.write("project/goondan.yaml", &home.filled_in(&unready));
    home.gdn(&["reload"]).exits(16);
    watch.fires("GoondanNotReady", &[("connection", "hook")]);
    home.write("project/goondan.yaml", "kind: [");
    assert_ne!(home.gdn(&["reload"]).code, 0);
    watch.fires("GoondanConfiguration", &[]);
    drop((holding, doomed));
    daemon.kill();
    watch.fires("GoondanDown", &[]);
    let known = watch.names();
    assert!(
        !known.contains(&"GoondanEventsParked".to_owned()),
        "{known:?}"
    );
}

/// Events of an ordinary day: questions and messages, restarts, reloads, an occasional killed
/// process.
fn ordinary(home: &Home, round: u64) {
    let asking: Vec<_> = ["clerk", "failing", "holder", "teller"]
        .into_iter()
        .flat_map(|agent| (0..3).map(move |key| (agent, format!("{agent}:k{key}"))))
        .map(|(agent, key)| {
            let text = if agent == "teller" { "tell" } else { "Hi." };
            home.start_gdn(&["send", "--agent", agent, "--instance", &key, text])
        })
        .collect();
    for asked in asking {
        asked.wait().exits(0);
    }
    if round % 3 == 1 {
        home.gdn(&["restart"]).exits(0);
    }
    if round % 5 == 2 {
        let agents = home.ps().into_iter();
        let mut agents = agents.filter(|process| process["role"] == "agent");
        if let Some(pid) = agents.find_map(|process| process["pid"].as_u64()) {
            processes::signal(u32::try_from(pid).unwrap(), Signal::SIGKILL);
        }
    }
    if round % 7 == 3 {
        home.gdn(&["reload"]).exits(0);
    }
}

#[test]
fn obs_3_no_alert_fires_in_a_soak_of_ordinary_life() {
    let soak_s = std::env::var(SOAK_VAR).map_or(SOAK_S, |text| text.parse().unwrap());
    let (provider, telegram) = (provider(), Telegram::start());
    let home = Home::new(&project(&provider, &telegram));
    let mut daemon = Daemon::serving(&home);
    let mut scrapes = Scrapes::default();
    let mut holding = ActiveConditions::default();
    let begun = Instant::now();
    let mut round = 0;
    while round < 4 || begun.elapsed() < Duration::from_secs(soak_s) {
        ordinary(&home, round);
        if round % 11 == 3 {
            daemon.stop();
            daemon = Daemon::serving(&home);
        }
        // A restart stops the endpoint, which returns at another address.
        let told = wait_for("the endpoint answers", || {
            let told = http::get(daemon.webhook("metrics"), "/metrics").ok();
            told.filter(|told| told.status == 200)
        });
        scrapes.add(Scrape::read(&told.body));
        for rule in rules() {
            let found = scrapes.evaluate(&rule.expression);
            let fires = holding.take(&rule, found, rule.hold, Instant::now());
            assert!(
                fires.is_empty(),
                "{} in round {round}: {fires:?}",
                rule.name
            );
        }
        round += 1;
    }
    println!("{round} rounds in {} s", begun.elapsed().as_secs());
    daemon.stop();
}
