//! Budgets for models, in a Swarm's policy and in an Agent.

use goondan_protocol::budget::{Budget, BudgetPeriod, BudgetScope};
use goondan_protocol::ids::AgentName;
use goondan_protocol::usage::MicroUsd;

use crate::codes;
use crate::fields::{Fields, LocatedValue};
use crate::report::{Problem, ProblemReport};
use crate::shape::{Field, FieldConstraint, FieldDefault, FieldType, Shape};

/// Largest number of tokens in a budget.
const TOKENS_MAX: u64 = 1_000_000_000_000_000;

/// The field `budgets` of a Swarm's policy.
pub(crate) const OF_SWARM: Field = Field::optional(
    "budgets",
    FieldType::List(&EACH_OF_SWARM),
    "Budgets for model replies. All budgets that apply are enforced.",
);

/// The field `budgets` of an Agent.
pub(crate) const OF_AGENT: Field = Field::optional(
    "budgets",
    FieldType::List(&EACH_OF_AGENT),
    "Budgets for this agent's model replies, in addition to the swarm's budgets.",
);

static EACH_OF_SWARM: FieldType = FieldType::Mapping(&SWARM_BUDGET);
static EACH_OF_AGENT: FieldType = FieldType::Mapping(&AGENT_BUDGET);

const PER: Field = Field::optional(
    "per",
    FieldType::Word(&["day"]),
    "The period. `day`: a UTC day.",
)
.or(FieldDefault::Meaning(
    "no period; all replies ever made count",
));
const TOKENS: Field = Field::optional(
    "tokens",
    FieldType::Number(1, TOKENS_MAX),
    "Maximum number of tokens, input and output.",
);
const COST: Field = Field::optional("cost", FieldType::Amount, "Maximum cost, in US dollars.");
const RULES: &[FieldConstraint] = &[FieldConstraint::AnyOf(
    &["tokens", "cost"],
    "set an amount: `cost: 5` for five US dollars, or `tokens: 200000`",
)];

static SWARM_BUDGET: Shape = Shape::of(
    "Budget",
    "A limit on the tokens or the cost of model replies.",
    &[
        Field::required(
            "for",
            FieldType::Word(&["workspace", "agent", "instance"]),
            "The replies that are summed: all, those of each agent, or those of each conversation \
             and the conversations it sent requests to.",
        ),
        PER,
        TOKENS,
        COST,
    ],
)
.with(RULES);

static AGENT_BUDGET: Shape = Shape::of(
    "AgentBudget",
    "A limit on the tokens or the cost of one agent's model replies.",
    &[
        Field::required(
            "for",
            FieldType::Word(&["agent", "instance"]),
            "The replies that are summed: all of the agent's, or those of each of its \
             conversations and the conversations it sent requests to.",
        ),
        PER,
        TOKENS,
        COST,
    ],
)
.with(RULES);

/// Reads the field `budgets`; for an Agent, the budgets of `agent`.
pub(crate) fn read(
    fields: &mut Fields<'_>,
    agent: Option<&AgentName>,
    report: &mut ProblemReport,
) -> Vec<LocatedValue<Budget>> {
    let written = fields.mappings("budgets", report);
    let read = written.into_iter().flatten();
    read.filter_map(|budget| read_budget(budget, agent, report))
        .collect()
}

fn read_budget(
    mut fields: Fields<'_>,
    agent: Option<&AgentName>,
    report: &mut ProblemReport,
) -> Option<LocatedValue<Budget>> {
    let place = fields.place;
    let scope = fields
        .word("for", report)
        .and_then(|word| match word.value {
            "workspace" => Some(BudgetScope::Workspace),
            "agent" => Some(BudgetScope::Agent),
            "instance" => Some(BudgetScope::Instance),
            _ => None,
        });
    let period = match fields.word("per", report) {
        Some(_) => BudgetPeriod::Day,
        None => BudgetPeriod::Ever,
    };
    let tokens = fields.number("tokens", report);
    let micro_usd = fields.amount("cost", report);
    fields.close();
    if micro_usd == Some(MicroUsd(0)) {
        let message = "a budget of zero blocks every model call";
        report.add(
            Problem::new(codes::INVALID_VALUE, place, message).help("set a `cost` above zero"),
        );
    }
    let value = Budget {
        scope: scope?,
        agent: agent.cloned(),
        period,
        tokens,
        micro_usd,
    };
    Some(LocatedValue { value, place })
}
