//! Fallback models (`STEER-5`).

use goondan_protocol::call::CallErrorCode;
use goondan_protocol::definition::{Fallback, ModelProvider};

use crate::support::Project;

/// An agent with two models of a provider and a scripted one.
fn project(model: &str, fallbacks: &str) -> Project {
    project_with(model, "{}", "{}", fallbacks)
}

/// The same, with parameters of the agent and of the model `small`.
fn project_with(model: &str, params: &str, of_small: &str, fallbacks: &str) -> Project {
    let hosted = |name: &str, params: &str| {
        format!(
            "apiVersion: goondan.ai/v1
kind: Model
metadata: {{name: {name}}}
spec: {{provider: anthropic, model: m, endpoint: http://127.0.0.1:1/v1, params: {params}}}
---
"
        )
    };
    Project::new(&format!(
        "{}{}apiVersion: goondan.ai/v1
kind: Model
metadata: {{name: script}}
spec: {{provider: scripted, options: {{rules: [{{say: x}}]}}}}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {{name: clerk}}
spec:
  modelConfig:
    modelRef: Model/{model}
    params: {params}
    fallbacks: [{fallbacks}]
",
        hosted("big", "{}"),
        hosted("small", of_small)
    ))
}

#[test]
fn steer_5_fallback_models_keep_their_order_and_own_parameters() {
    let bundle = project("big", "{modelRef: Model/small, params: {seed: 3}}").load();
    let agent = bundle.agents.values().next().unwrap();
    let ModelProvider::Connector { params, fallbacks } = &agent.model.provider else {
        panic!("{:?}", agent.model);
    };
    assert_eq!(params.seed, None);
    let [small] = fallbacks.as_slice() else {
        panic!("{fallbacks:?}");
    };
    assert_eq!((small.name.as_str(), small.params.seed), ("small", Some(3)));
    assert_eq!(small.on, Fallback::USUAL);
    // The workspace runs its connector process.
    assert_eq!(bundle.models.len(), 2);
    let named = project("big", "{modelRef: Model/small, on: [refused, tooLarge]}").load();
    let agent = named.agents.values().next().unwrap();
    let ModelProvider::Connector { fallbacks, .. } = &agent.model.provider else {
        panic!("{:?}", agent.model);
    };
    let on = [CallErrorCode::Refused, CallErrorCode::TooLarge];
    assert_eq!(fallbacks[0].on, on);
}

#[test]
fn prov_1_a_fallback_inherits_the_agents_parameters() {
    let fallback = |params: &str, of_small: &str, own: &str| {
        let fallbacks = format!("{{modelRef: Model/small, params: {own}}}");
        let bundle = project_with("big", params, of_small, &fallbacks).load();
        let agent = bundle.agents.into_values().next().unwrap();
        let ModelProvider::Connector { mut fallbacks, .. } = agent.model.provider else {
            panic!("{:?}", agent.model);
        };
        fallbacks.remove(0).params
    };
    let params = "{temperature: 0.2, maxTokens: 900, seed: 7}";
    let found = fallback(params, "{maxTokens: 800}", "{seed: 8}");
    // Its own come first, then those of its Model, then those of the agent.
    assert_eq!(found.seed, Some(8));
    assert_eq!(found.max_tokens, Some(800));
    assert_eq!(found.temperature, Some(0.2));
    assert_eq!(fallback(params, "{}", "{}").max_tokens, Some(900));
    // A short reply of the agent leaves no room for the effort of the other model.
    let found = fallback(
        "{maxTokens: 900, topP: 0.5}",
        "{reasoningEffort: high}",
        "{}",
    );
    assert_eq!((found.max_tokens, found.top_p), (None, Some(0.5)));
}

#[test]
fn steer_5_invalid_fallbacks_are_rejected_at_their_place() {
    for (fallbacks, said) in [
        ("{modelRef: Model/big}", "twice"),
        ("{modelRef: Model/small}, {modelRef: Model/small}", "twice"),
        ("{modelRef: Model/script}", "cannot be a fallback"),
        ("{modelRef: Model/nobody}", "nobody"),
        ("{modelRef: Model/small, on: []}", "`on` is empty"),
        ("{modelRef: Model/small, on: [overBudget]}", "overBudget"),
        (
            "{modelRef: Model/small, on: [refused, refused]}",
            "listed twice",
        ),
        ("{params: {seed: 1}}", "modelRef"),
    ] {
        let problems = project("big", fallbacks).problems().join("\n");
        assert!(problems.contains(said), "{said}: {problems}");
    }
    let warnings = project("script", "{modelRef: Model/small}").warnings();
    let told = warnings.join("\n");
    assert!(told.contains("`fallbacks` has no effect"), "{told}");
}

#[test]
fn steer_5_money_budget_needs_prices_of_all_fallback_models() {
    let prices = "prices: [{since: 2026-01-01, input: 1, output: 1}]";
    let hosted = |name: &str, prices: &str| {
        format!(
            "apiVersion: goondan.ai/v1
kind: Model
metadata: {{name: {name}}}
spec: {{provider: anthropic, model: m, endpoint: http://127.0.0.1:1/v1, {prices}}}
---
"
        )
    };
    let agent = "apiVersion: goondan.ai/v1
kind: Agent
metadata: {name: clerk}
spec:
  modelConfig: {modelRef: Model/big, fallbacks: [{modelRef: Model/small}]}
  budgets: [{for: agent, per: day, cost: 1}]
";
    let without = hosted("big", prices) + &hosted("small", "") + agent;
    let problems = Project::new(&without).problems().join("\n");
    assert!(
        problems.contains("Model `small` has no `prices`"),
        "{problems}"
    );
    Project::new(&(hosted("big", prices) + &hosted("small", prices) + agent)).load();
}
