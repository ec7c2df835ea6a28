//! Prices of models: `prices` of a Model.

use goondan_protocol::usage::{MicroUsd, Usage};

use crate::support::Project;

fn project(prices: &str) -> Project {
    Project::new(&format!(
        "apiVersion: goondan.ai/v1
kind: Model
metadata: {{name: big}}
spec:
  provider: openai
  model: big-1
  endpoint: http://127.0.0.1:1/v1
  prices:
{prices}
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {{name: clerk}}
spec: {{modelConfig: {{modelRef: Model/big}}}}
"
    ))
}

#[test]
fn price_is_exact_and_missing_cache_prices_equal_input_price() {
    let bundle = project("    - {input: 0.3, output: '1.234567'}").load();
    let prices = &bundle.prices[&"big".parse().unwrap()];
    let price = prices.at("1999-01-01T00:00:00Z".parse().unwrap()).unwrap();
    assert_eq!(
        (price.input, price.output),
        (MicroUsd(300_000), MicroUsd(1_234_567))
    );
    assert_eq!(
        (price.cache_read, price.cache_write),
        (price.input, price.input)
    );
    let usage = Usage {
        input_tokens: 1_000_000,
        cache_read_tokens: 1_000_000,
        ..Usage::default()
    };
    assert_eq!(price.of(&usage), MicroUsd(600_000));
}

#[test]
fn prices_hold_from_their_day_on_and_count_for_the_digest() {
    let two = "    - {input: 1, output: 1}\n    - {since: 2026-02-01, input: 2, output: 2}";
    let bundle = project(two).load();
    let input = |when: &str| {
        let prices = &bundle.prices[&"big".parse().unwrap()];
        prices.at(when.parse().unwrap()).unwrap().input.0
    };
    assert_eq!(input("2026-01-31T23:59:59Z"), 1_000_000);
    assert_eq!(input("2026-02-01T00:00:00Z"), 2_000_000);
    let other = project(&two.replace("output: 2", "output: 3")).load();
    assert_ne!(bundle.digest, other.digest);
}

#[test]
fn invalid_price_is_reported_at_its_place() {
    let problems = project("    - {since: soon, input: -1, output: 0.0000001}").problems();
    assert_eq!(
        problems,
        [
            "E_CONFIG_INVALID_VALUE 9:15 `since` must be a day, not `soon`",
            "E_CONFIG_INVALID_VALUE 9:28 `spec.prices[0].input` of Model `big` must be an amount in US \
             dollars, not `-1`",
            "E_CONFIG_INVALID_VALUE 9:40 `spec.prices[0].output` of Model `big` must be an amount in US \
             dollars, not `1e-7`",
        ]
    );
    let twice = "    - {input: 1, output: 1}\n    - {input: 2, output: 2}";
    let problems = project(twice).problems();
    assert_eq!(
        problems,
        ["E_CONFIG_INVALID_VALUE 10:7 two prices of the model have the same `since`"]
    );
}
