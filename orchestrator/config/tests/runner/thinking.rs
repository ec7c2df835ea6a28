//! Parameters that a provider refuses in combination with thinking are reported early.

use crate::support::Project;

fn project(model: &str, agent: &str) -> Project {
    Project::new(&format!(
        "apiVersion: goondan.ai/v1
kind: Model
metadata: {{name: big}}
spec:
  provider: anthropic
  model: claude-sonnet-4-5
  endpoint: http://127.0.0.1:1/v1
  {model}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {{name: clerk}}
spec: {{modelConfig: {{modelRef: Model/big{agent}}}}}
"
    ))
}

#[test]
fn thinking_budget_that_leaves_no_room_for_a_reply_is_refused() {
    for (model, agent, line) in [
        ("params: {reasoningEffort: high, maxTokens: 4096}", "", 8),
        (
            "params: {maxTokens: 8000}",
            ", params: {reasoningEffort: medium}",
            13,
        ),
        (
            "params: {reasoningEffort: low}",
            ", params: {maxTokens: 1024}",
            13,
        ),
    ] {
        let problems = project(model, agent).problems();
        let told = problems.join("\n");
        assert_eq!(problems.len(), 1, "{told}");
        for word in ["`maxTokens:", "`reasoningEffort:", &format!(" {line}:")] {
            assert!(told.contains(word), "{word}: {told}");
        }
    }
    for (model, agent) in [
        ("params: {reasoningEffort: high}", ""),
        ("params: {reasoningEffort: high, maxTokens: 24001}", ""),
        ("params: {reasoningEffort: none, maxTokens: 10}", ""),
        (
            "params: {maxTokens: 8000}",
            ", params: {reasoningEffort: low}",
        ),
    ] {
        project(model, agent).load();
    }
}

#[test]
fn temperature_with_reasoning_yields_a_no_effect_warning() {
    let warned = project("params: {reasoningEffort: high, temperature: 0.5}", "").warnings();
    assert!(
        warned.join("\n").contains("`temperature` has no effect"),
        "{warned:?}"
    );
    let warned = project(
        "params: {reasoningEffort: high}",
        ", params: {temperature: 0.5}",
    )
    .warnings();
    assert!(
        warned.join("\n").contains("`temperature` has no effect"),
        "{warned:?}"
    );
    let warned = project("params: {temperature: 0.5}", "").warnings();
    assert!(warned.is_empty(), "{warned:?}");
}

#[test]
fn option_of_another_provider_yields_a_no_effect_warning() {
    let warned = project("sendReasoning: true", "").warnings();
    assert!(
        warned.join("\n").contains("`sendReasoning` has no effect"),
        "{warned:?}"
    );
    assert!(project("promptCaching: false", "").warnings().is_empty());
}

#[test]
fn anthropic_price_includes_default_cache_prices() {
    let bundle = project("prices: [{input: 3, output: 15}]", "").load();
    let prices = &bundle.prices[&"big".parse().unwrap()];
    let price = prices.at("2026-01-01T00:00:00Z".parse().unwrap()).unwrap();
    assert_eq!(
        (price.cache_read.0, price.cache_write.0),
        (300_000, 3_750_000)
    );
}
