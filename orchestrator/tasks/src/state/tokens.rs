//! Usage of a task (`TASK-6`).

use std::collections::BTreeMap;

use goondan_cli_agents::usage::{SessionUsage, largest};
use goondan_protocol::time::Timestamp;
use goondan_protocol::usage::{Charge, MicroUsd, Usage};

use crate::fact::Budget;
use crate::limits::{BUDGET_WARN_PERCENT, TOKEN_HISTORY_MAX};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TokenSpend {
    pub usage: Usage,
    /// Cost, as far as it is known.
    pub cost: MicroUsd,
}

impl TokenSpend {
    pub fn add(&mut self, other: &Self) {
        self.usage.add(&other.usage);
        self.cost = self.cost.plus(other.cost);
    }

    /// Usage that exceeds `other`.
    #[must_use]
    pub fn beyond(&self, other: &Self) -> Self {
        Self {
            usage: grown(&self.usage, &other.usage),
            cost: self.cost.less(other.cost),
        }
    }
}

/// Usage at one point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenEntry {
    pub at: Timestamp,
    /// Increase since the previous entry.
    pub taken: TokenSpend,
}

/// Total usage of a task. Sums only grow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tokens {
    by_counter: BTreeMap<String, TokenSpend>,
    sessions: BTreeMap<String, SessionFigure>,
    pub(crate) total: TokenSpend,
    pub(crate) by_phase: BTreeMap<u32, TokenSpend>,
    pub(crate) history: Vec<TokenEntry>,
    largest_tokens: u64,
    largest_cost: MicroUsd,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct SessionFigure {
    /// Counter of the run that reported it last.
    counter: String,
    /// Total when that run started.
    before: TokenSpend,
    now: TokenSpend,
}

fn grown(now: &Usage, before: &Usage) -> Usage {
    Usage {
        input_tokens: now.input_tokens.saturating_sub(before.input_tokens),
        output_tokens: now.output_tokens.saturating_sub(before.output_tokens),
        cache_read_tokens: now
            .cache_read_tokens
            .saturating_sub(before.cache_read_tokens),
        cache_write_tokens: now
            .cache_write_tokens
            .saturating_sub(before.cache_write_tokens),
        reasoning_tokens: now.reasoning_tokens.saturating_sub(before.reasoning_tokens),
    }
}

impl Tokens {
    #[must_use]
    pub fn total(&self) -> TokenSpend {
        self.total
    }

    /// Largest single charge, which is the estimate for the next call.
    #[must_use]
    pub fn largest(&self) -> Charge {
        Charge {
            tokens: self.largest_tokens,
            micro_usd: self.largest_cost,
        }
    }

    /// Returns a run's usage from its own figures and the cumulative ones of its session.
    pub(crate) fn of_run(
        &self,
        counter: &str,
        usage: &Usage,
        session: &SessionUsage,
    ) -> (Usage, Option<MicroUsd>) {
        let before = match self.sessions.get(&session.id) {
            Some(known) if known.counter == counter => known.before,
            Some(known) => known.now,
            None => TokenSpend::default(),
        };
        let now = TokenSpend {
            usage: session.usage,
            cost: session.cost.unwrap_or_default(),
        };
        let (tokens, tokens_before) = (now.usage.total(), before.usage.total());
        if tokens >= tokens_before && now.cost >= before.cost {
            let taken = now.beyond(&before);
            let cost = session.cost.map(|_| taken.cost);
            return (largest(usage, &taken.usage), cost);
        }
        // The program lost part of the session, so the new part of its figures is unknown. The
        // run's own tokens are known, and their share of the cost.
        let own = usage.total();
        if own == 0 || tokens == 0 {
            return (largest(usage, &session.usage), session.cost);
        }
        let share = |cost: MicroUsd| {
            let part = u128::from(cost.0) * u128::from(own.min(tokens)) / u128::from(tokens);
            MicroUsd(u64::try_from(part).unwrap_or(cost.0))
        };
        (*usage, session.cost.map(share))
    }

    /// True if a session reports figures that differ from the recorded ones.
    pub(crate) fn is_session_news(&self, counter: &str, session: &SessionUsage) -> bool {
        self.sessions.get(&session.id).is_none_or(|known| {
            known.counter != counter
                || known.now.usage != session.usage
                || known.now.cost != session.cost.unwrap_or_default()
        })
    }

    /// Records the totals of a session.
    pub(crate) fn record_session(&mut self, counter: &str, session: &SessionUsage) {
        let known = self.sessions.entry(session.id.clone()).or_default();
        if known.counter != counter {
            known.before = known.now;
            counter.clone_into(&mut known.counter);
        }
        known.now = TokenSpend {
            usage: session.usage,
            cost: session.cost.unwrap_or_default(),
        };
    }

    /// True if a figure exceeds the recorded value of its counter.
    pub(crate) fn is_news(&self, counter: &str, usage: &Usage, cost: Option<MicroUsd>) -> bool {
        let known = self.by_counter.get(counter).copied().unwrap_or_default();
        largest(&known.usage, usage) != known.usage || cost.unwrap_or_default() > known.cost
    }

    /// Records the value of a counter and charges the increase.
    pub(crate) fn record(
        &mut self,
        at: Timestamp,
        phase: u32,
        counter: &str,
        usage: &Usage,
        cost: Option<MicroUsd>,
    ) {
        let known = self.by_counter.entry(counter.to_owned()).or_default();
        let now = TokenSpend {
            usage: largest(&known.usage, usage),
            cost: known.cost.max(cost.unwrap_or_default()),
        };
        let taken = now.beyond(known);
        *known = now;
        self.total.add(&taken);
        self.by_phase.entry(phase).or_default().add(&taken);
        self.largest_tokens = self.largest_tokens.max(taken.usage.total());
        self.largest_cost = self.largest_cost.max(taken.cost);
        self.history.push(TokenEntry { at, taken });
        let beyond = self.history.len().saturating_sub(TOKEN_HISTORY_MAX);
        self.history.drain(..beyond);
    }

    /// Percentage of a budget that is used, for the limit that is closest to exhaustion.
    #[must_use]
    pub fn percent_of(&self, budget: &Budget) -> u64 {
        let percent = |taken: u64, limit: Option<u64>| {
            limit.map_or(0, |limit| {
                taken.saturating_mul(100).checked_div(limit).unwrap_or(100)
            })
        };
        let tokens = percent(self.total.usage.total(), budget.tokens);
        let money = percent(self.total.cost.0, budget.micro_usd.map(|most| most.0));
        tokens.max(money)
    }

    /// True if a warning is due.
    pub(crate) fn is_near(&self, budget: &Budget) -> bool {
        self.percent_of(budget) >= BUDGET_WARN_PERCENT
    }

    /// True if a call as large as the largest so far would exceed the budget.
    #[must_use]
    pub fn would_pass(&self, budget: &Budget) -> bool {
        let passes = |taken: u64, next: u64, limit: Option<u64>| {
            limit.is_some_and(|limit| taken >= limit || taken.saturating_add(next) > limit)
        };
        passes(self.total.usage.total(), self.largest_tokens, budget.tokens)
            || passes(
                self.total.cost.0,
                self.largest_cost.0,
                budget.micro_usd.map(|most| most.0),
            )
    }
}
