//! Budgets for models: `budgets` of a Swarm's policy and of an Agent.

use goondan_protocol::budget::{BudgetPeriod, BudgetScope};
use goondan_protocol::ids::AgentName;
use goondan_protocol::usage::MicroUsd;

use crate::support::Project;

fn project(prices: &str, of_agent: &str, of_swarm: &str) -> Project {
    Project::new(&format!(
        "apiVersion: goondan.ai/v1
kind: Model
metadata: {{name: big}}
spec:
  provider: openai
  model: big-1
  endpoint: http://127.0.0.1:1/v1
  prices: [{prices}]
---
apiVersion: goondan.ai/v1
kind: Agent
metadata: {{name: clerk}}
spec:
  modelConfig: {{modelRef: Model/big}}
  budgets: [{of_agent}]
---
apiVersion: goondan.ai/v1
kind: Swarm
metadata: {{name: shop}}
spec:
  entryAgent: Agent/clerk
  policy:
    budgets: [{of_swarm}]
"
    ))
}

const PRICE: &str = "{input: 1, output: 1}";

#[test]
fn budgets_of_the_swarm_and_of_its_agents_all_hold() {
    let of_agent = "{for: instance, tokens: 5}";
    let of_swarm = "{for: workspace, per: day, cost: 2.5}, {for: agent, tokens: 7, cost: '1'}";
    let budgets = project(PRICE, of_agent, of_swarm).load().budgets;
    let [all, each, own] = budgets.as_slice() else {
        panic!("{budgets:?}")
    };
    assert_eq!(
        (all.scope, all.period),
        (BudgetScope::Workspace, BudgetPeriod::Day)
    );
    assert_eq!(
        (all.tokens, all.micro_usd),
        (None, Some(MicroUsd(2_500_000)))
    );
    assert_eq!(
        (each.scope, each.agent.is_none()),
        (BudgetScope::Agent, true)
    );
    assert_eq!(each.limits().count(), 2);
    assert_eq!(
        (own.scope, own.period),
        (BudgetScope::Instance, BudgetPeriod::Ever)
    );
    assert_eq!(own.agent.as_ref().map(AgentName::as_str), Some("clerk"));
}

#[test]
fn invalid_budget_is_reported_at_its_place() {
    let problems = project(
        PRICE,
        "{for: agent}",
        "{for: everybody, cost: 1}, {for: agent, cost: 0}",
    );
    assert_eq!(
        problems.problems(),
        [
            "E_CONFIG_MISSING_FIELD 15:13 `spec.budgets[0]` of Agent `clerk` needs `tokens` or `cost`",
            "E_CONFIG_INVALID_VALUE 23:21 `spec.policy.budgets[0].for` of Swarm `shop` must be \
             `workspace`, `agent` or `instance`, not `everybody`",
            "E_CONFIG_INVALID_VALUE 23:42 a budget of zero blocks every model call",
        ]
    );
}

#[test]
fn cost_budget_requires_model_prices() {
    let problems = project("", "", "{for: workspace, cost: 1}").problems();
    assert_eq!(
        problems,
        [
            "E_CONFIG_INVALID_VALUE 23:15 this budget has a `cost`, but Model `big` has no \
             `prices`, so the cost is unknown"
        ]
    );
    project("", "", "{for: workspace, tokens: 1}").load();
}
