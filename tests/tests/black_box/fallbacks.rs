//! Several models in order: the next is used when the first fails (`STEER-5`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use goondan_tests::home::AGENT;
use goondan_tests::processes::{self, Signal};
use goondan_tests::provider::{
    Provider, ProviderResponse, ResponseEnd, anthropic_saying, openai_saying,
};
use goondan_tests::{Daemon, Home, wait_until};
use serde_json::json;

use crate::conversation::{check, shape, text};

/// An agent whose model is at `first`, with a fallback at `spare`.
fn project(first: &Provider, spare: &Provider, on: &str) -> String {
    let (first, spare) = (first.endpoint(), spare.endpoint());
    format!(
        "
apiVersion: goondan.ai/v1
kind: Model
metadata: {{name: first}}
spec: {{provider: openai, model: big-1, endpoint: {first}, apiKey: {{value: key-of-first}}}}
---
apiVersion: goondan.ai/v1
kind: Model
metadata: {{name: spare}}
spec: {{provider: anthropic, model: small-1, endpoint: {spare}, apiKey: {{value: key-of-spare}}}}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {{name: worker}}
spec:
  modelConfig:
    modelRef: Model/first
    params: {{seed: 7}}
    fallbacks:
      - {{modelRef: Model/spare, params: {{maxTokens: 77}}{on}}}
"
    )
}

fn busy() -> ProviderResponse {
    let body = json!({"error": {"message": "slow down"}});
    ProviderResponse::error(429, &body).with_header("retry-after-ms", "5")
}

#[test]
fn steer_5_failing_model_is_replaced_and_the_caller_is_notified() {
    let first = Provider::start(|_| busy());
    let spare = Provider::start(|_| ProviderResponse::stream(&anthropic_saying("From the spare.")));
    let home = Home::new(&project(&first, &spare, ""));
    let daemon = Daemon::serving(&home);
    let ran = home.gdn(&["send", "Hi."]).exits(0);
    assert_eq!(ran.stdout, "From the spare.\n");
    ran.tells(&["attempt 5 of 5 in ", "calling model `spare` instead"]);
    assert_eq!(first.received().len(), 5);
    let asked = spare.received();
    assert_eq!(asked.len(), 1);
    // Each model receives its own parameters, and not those of another.
    assert_eq!(asked[0].body["max_tokens"], 77);
    assert_eq!(first.received()[0].body["seed"], 7);
    let messages = home.history("main");
    check(&messages);
    assert_eq!(shape(&messages), "ua");
    assert_eq!(text(&messages[1]), "From the spare.");
    let models = home.gdn_json(&["usage", "--by", "model"]).to_string();
    assert!(
        models.contains("spare") && !models.contains("first"),
        "{models}"
    );
    daemon.stop().check(false);
}

#[test]
fn steer_5_other_failures_use_no_fallback_unless_configured() {
    let wrong = |_: &goondan_tests::provider::ReceivedRequest| {
        ProviderResponse::error(401, &json!({"error": {"message": "bad key"}}))
    };
    let (first, spare) = (
        Provider::start(wrong),
        Provider::start(|_| ProviderResponse::stream(&anthropic_saying("From the spare."))),
    );
    let home = Home::new(&project(&first, &spare, ""));
    let _daemon = Daemon::serving(&home);
    home.gdn(&["send", "Hi."])
        .exits(7)
        .tells(&["E_MODEL_UNAUTHORIZED"]);
    assert_eq!(spare.received().len(), 0);
    let by_rule = project(&first, &spare, ", on: [unauthorized]");
    home.write("project/goondan.yaml", &by_rule);
    home.gdn(&["reload"]).exits(0);
    assert_eq!(home.ask("main", "Hi."), "From the spare.");
}

#[test]
fn steer_5_all_failed_models_are_reported_if_none_can_answer() {
    let (first, spare) = (Provider::start(|_| busy()), Provider::start(|_| busy()));
    let home = Home::new(&project(&first, &spare, ""));
    let _daemon = Daemon::serving(&home);
    home.gdn(&["send", "Hi."]).exits(7).tells(&[
        "E_MODEL_RATE_LIMITED",
        "model `spare`",
        "earlier: model `first`",
    ]);
    assert_eq!((first.received().len(), spare.received().len()), (5, 5));
}

#[test]
fn steer_5_agent_killed_during_fallback_still_gets_its_reply() {
    let first = Provider::start(|received| match received.number {
        0..5 => busy(),
        _ => ProviderResponse::stream(&openai_saying(&["The first is back."])),
    });
    let spare = Provider::start(|_| {
        ProviderResponse::stream(&anthropic_saying("Too late.")).ending(ResponseEnd::Silent)
    });
    let home = Home::new(&project(&first, &spare, ""));
    let _daemon = Daemon::serving(&home);
    let asking = home.start_gdn(&["send", "Hi."]);
    wait_until("the spare is asked", || spare.received().len() == 1);
    let [agent] = home.running(AGENT).try_into().unwrap();
    let agent: processes::Process = agent;
    processes::signal(agent.pid, Signal::SIGKILL);
    let ran = asking.wait().exits(0);
    assert!(
        ["The first is back.\n", "Too late.\n"].contains(&ran.stdout.as_str()),
        "{ran:?}"
    );
    let messages = home.history("main");
    check(&messages);
    assert_eq!(shape(&messages), "ua");
}

#[test]
fn prov_1_a_dead_first_model_is_not_called_in_each_step() {
    let is_dead = Arc::new(AtomicBool::new(true));
    let state = Arc::clone(&is_dead);
    let first = Provider::start(move |_| match state.load(Ordering::Relaxed) {
        true => ProviderResponse::error(503, &json!({"error": {"message": "down"}})),
        false => ProviderResponse::stream(&openai_saying(&["From the first."])),
    });
    let spare = Provider::start(|_| ProviderResponse::stream(&anthropic_saying("From the spare.")));
    let home = Home::new(&project(&first, &spare, ""));
    let daemon = Daemon::serving(&home);
    assert_eq!(home.ask("a", "Hi."), "From the spare.");
    assert_eq!(first.received().len(), 5);
    // It is not called again, and `gdn ps` shows why.
    assert_eq!(home.ask("b", "Hi."), "From the spare.");
    assert_eq!(first.received().len(), 5);
    let ps = home.gdn(&["ps"]).exits(0).stdout;
    assert!(ps.contains("not called after 5 failures in a row"), "{ps}");
    // A probe decides.
    is_dead.store(false, Ordering::Relaxed);
    wait_until("the first model answers again", || {
        home.ask("c", "Hi.") == "From the first."
    });
    assert_eq!(home.ask("d", "Hi."), "From the first.");
    let ps = home.gdn(&["ps"]).exits(0).stdout;
    assert!(!ps.contains("not called"), "{ps}");
    daemon.stop().check(false);
}

/// An agent with this name, its own model at `endpoint`, and a fallback at `spare`.
fn agent_at(endpoint: &str, (agent, model): (&str, &str), spare: &str) -> String {
    format!(
        "
apiVersion: goondan.ai/v1
kind: Model
metadata: {{name: {model}}}
spec: {{provider: openai, model: {model}, endpoint: {endpoint}, apiKey: {{value: one-key}}}}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {{name: {agent}}}
spec: {{modelConfig: {{modelRef: Model/{model}, fallbacks: [{{modelRef: Model/{spare}}}]}}}}
---
"
    )
}

#[test]
fn prov_1_overloaded_model_spares_its_fallback_at_the_same_key() {
    let provider = Provider::start(|received| match received.body["model"].as_str() {
        Some("big-model") => {
            let body = json!({"error": {"message": "The model is overloaded."}});
            ProviderResponse::error(503, &body)
        }
        _ => ProviderResponse::stream(&openai_saying(&["From the spare."])),
    });
    let endpoint = provider.endpoint();
    let yaml = agent_at(&endpoint, ("worker", "big-model"), "spare-model")
        + &format!(
            "
apiVersion: goondan.ai/v1
kind: Model
metadata: {{name: spare-model}}
spec: {{provider: openai, model: spare-model, endpoint: {endpoint}, apiKey: {{value: one-key}}}}
"
        );
    let home = Home::new(&yaml);
    let daemon = Daemon::serving(&home);
    let calls_of = |model: &str| {
        let received = provider.received().into_iter();
        received.filter(|it| it.body["model"] == model).count()
    };
    assert_eq!(home.ask("a", "Hi."), "From the spare.");
    assert_eq!((calls_of("big-model"), calls_of("spare-model")), (5, 1));
    assert_eq!(home.ask("b", "Hi."), "From the spare.");
    assert_eq!((calls_of("big-model"), calls_of("spare-model")), (5, 2));
    let ps = home.gdn(&["ps"]).exits(0).stdout;
    assert!(ps.contains("not called after 5 failures in a row"), "{ps}");
    assert!(!ps.contains("endpoint not called"), "{ps}");
    daemon.stop().check(false);
}

#[test]
fn prov_1_a_dead_endpoint_is_not_called_by_each_of_its_models() {
    let is_dead = Arc::new(AtomicBool::new(true));
    let state = Arc::clone(&is_dead);
    let first = Provider::start(move |_| match state.load(Ordering::Relaxed) {
        true => ProviderResponse::error(500, &json!({"error": {"message": "down"}})),
        false => ProviderResponse::stream(&openai_saying(&["From the first."])),
    });
    let spare = Provider::start(|_| ProviderResponse::stream(&anthropic_saying("From the spare.")));
    let endpoint = first.endpoint();
    let yaml = agent_at(&endpoint, ("one", "model-one"), "spare")
        + &agent_at(&endpoint, ("two", "model-two"), "spare")
        + &format!(
            "
apiVersion: goondan.ai/v1
kind: Model
metadata: {{name: spare}}
spec: {{provider: anthropic, model: small-1, endpoint: {}, apiKey: {{value: another}}}}
---
apiVersion: goondan.ai/v1
kind: Swarm
metadata: {{name: default}}
spec: {{entryAgent: Agent/one, agents: [{{ref: Agent/one}}, {{ref: Agent/two}}]}}
",
            spare.endpoint()
        );
    let home = Home::new(&yaml);
    let daemon = Daemon::serving(&home);
    let ask = |agent: &str| {
        let ran = home.gdn(&["send", "--agent", agent, "Hi."]).exits(0);
        ran.stdout.trim_end().to_owned()
    };
    assert_eq!(ask("one"), "From the spare.");
    assert_eq!(first.received().len(), 5);
    assert_eq!(ask("two"), "From the spare.");
    assert_eq!(
        first.received().len(),
        5,
        "its endpoint is known to be down"
    );
    let ps = home.gdn_json(&["ps"]).to_string();
    let shown = "endpoint not called after 5 failures in a row; tried again in";
    assert!(ps.contains(shown), "{ps}");
    home.gdn(&["status"])
        .exits(0)
        .tells(&["model model-one: endpoint not called", "down"]);
    // The probe of one model decides for both.
    is_dead.store(false, Ordering::Relaxed);
    wait_until("the endpoint is called again", || {
        ask("two") == "From the first."
    });
    assert_eq!(ask("one"), "From the first.");
    let ps = home.gdn_json(&["ps"]).to_string();
    assert!(!ps.contains("not called"), "{ps}");
    daemon.stop().check(false);
}
