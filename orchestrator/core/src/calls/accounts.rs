//! Budget accounting: sums of a workspace's ledger, held in memory (pure).
//!
//! The sums are computed from the ledger when the workspace is opened, and each entry is added once
//! it is durable. A crash therefore never loses spending.

use std::collections::{BTreeMap, BTreeSet};

use goondan_protocol::budget::BudgetPeriod;
use goondan_protocol::ids::{AgentName, InstanceKey, ResourceName};
use goondan_protocol::time::Day;
use goondan_protocol::usage::{Charge, UsageTotal};
use goondan_store::ledger::{LedgerSum, LedgerTask};
use goondan_tasks::state::TokenSpend;

/// Days kept for each account. More than one, because a clock can be set back.
const DAYS_MAX: usize = 4;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum BudgetOwner {
    Workspace,
    Agent(AgentName),
    Instance(InstanceKey),
    Task(LedgerTask),
}

/// The sums of one payer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Account {
    ever: Charge,
    days: BTreeMap<Day, Charge>,
    /// The agent of a conversation or task; `None` until it spends something itself.
    agent: Option<AgentName>,
}

/// The sums of a workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Accounts {
    of: BTreeMap<BudgetOwner, Account>,
    by_model: BTreeMap<(AgentName, ResourceName), UsageTotal>,
    /// Usage of each task that is recorded or is being recorded.
    tasks: BTreeMap<LedgerTask, TokenSpend>,
}

impl Accounts {
    pub fn of(lines: &[LedgerSum]) -> Self {
        let mut accounts = Self::default();
        for line in lines {
            accounts.take(line);
            accounts.take_for_task(line);
        }
        accounts
    }

    /// Adds the line to the sums of its task, unless it was added by [`owed`](Self::owed).
    pub(crate) fn take_for_task(&mut self, line: &LedgerSum) {
        if let Some(task) = &line.task {
            let taken = self.tasks.entry(task.clone()).or_default();
            taken.usage.add(&line.spending.usage);
            taken.cost = taken.cost.plus(line.spending.cost_micro_usd);
        }
    }

    /// Total usage of a task that is recorded or is being recorded.
    pub(crate) fn taken_by(&self, task: &LedgerTask) -> TokenSpend {
        self.tasks.get(task).copied().unwrap_or_default()
    }

    /// Usage of a task beyond the recorded total, and marks it as recorded; `None` if nothing is
    /// missing.
    pub(crate) fn owed(&mut self, task: &LedgerTask, total: &TokenSpend) -> Option<TokenSpend> {
        let known = self.tasks.entry(task.clone()).or_default();
        let owed = total.beyond(known);
        if owed == TokenSpend::default() {
            return None;
        }
        known.usage.add(&owed.usage);
        known.cost = known.cost.plus(owed.cost);
        Some(owed)
    }

    /// Adds a durable ledger line.
    pub(crate) fn take(&mut self, line: &LedgerSum) {
        let charge = line.charge();
        let agent = &line.agent_name;
        let replies = (agent.clone(), line.model.clone());
        self.by_model
            .entry(replies)
            .or_default()
            .add(&line.spending);
        for payer in payers_of_line(line) {
            let is_own = payer == own_of(line);
            let account = self.of.entry(payer).or_default();
            account.ever = account.ever.plus(charge);
            let day = account.days.entry(line.day).or_default();
            *day = day.plus(charge);
            while account.days.len() > DAYS_MAX {
                account.days.pop_first();
            }
            if is_own && account.agent.as_ref() != Some(agent) {
                account.agent = Some(agent.clone());
            }
        }
    }

    /// Spending of an account, for this day or in total.
    pub(crate) fn spent(&self, payer: &BudgetOwner, period: BudgetPeriod, day: Day) -> Charge {
        let Some(account) = self.of.get(payer) else {
            return Charge::default();
        };
        match period {
            BudgetPeriod::Ever => account.ever,
            BudgetPeriod::Day => account.days.get(&day).copied().unwrap_or_default(),
        }
    }

    /// Total spending of an account.
    pub(crate) fn ever(&self, payer: &BudgetOwner) -> Charge {
        let account = self.of.get(payer);
        account.map_or_else(Charge::default, |account| account.ever)
    }

    /// The agent of a conversation or task that has spent something itself.
    pub(crate) fn agent_of(&self, payer: &BudgetOwner) -> Option<&AgentName> {
        self.of.get(payer)?.agent.as_ref()
    }

    /// Total usage by agent and model.
    pub(crate) fn by_model(
        &self,
    ) -> impl Iterator<Item = (&AgentName, &ResourceName, &UsageTotal)> {
        let sums = self.by_model.iter();
        sums.map(|((agent, model), spending)| (agent, model, spending))
    }

    pub(crate) fn payers(&self) -> impl Iterator<Item = &BudgetOwner> {
        self.of.keys()
    }
}

/// The payers that a reply counts against: its own agent and conversation, and those that requested
/// its turn or task. Each counts once.
pub(crate) fn payers(
    (agent, asking): (&AgentName, &[AgentName]),
    (own, asked_by): (BudgetOwner, &[InstanceKey]),
) -> impl Iterator<Item = BudgetOwner> + use<> {
    let agents = std::iter::once(agent).chain(asking).cloned();
    let instances = asked_by.iter().cloned();
    let all: BTreeSet<BudgetOwner> = [BudgetOwner::Workspace, own]
        .into_iter()
        .chain(agents.map(BudgetOwner::Agent))
        .chain(instances.map(BudgetOwner::Instance))
        .collect();
    all.into_iter()
}

/// The payers that a ledger line counts against.
pub(crate) fn payers_of_line(line: &LedgerSum) -> impl Iterator<Item = BudgetOwner> + use<> {
    payers(
        (&line.agent_name, &line.asked_by_agents),
        (own_of(line), &line.asked_by),
    )
}

/// The conversation or task of a line.
fn own_of(line: &LedgerSum) -> BudgetOwner {
    match &line.task {
        Some(task) => BudgetOwner::Task(task.clone()),
        None => BudgetOwner::Instance(line.instance_key.clone()),
    }
}

/// The agents among `payers`.
pub(crate) fn agents_of(payers: &[BudgetOwner]) -> Vec<AgentName> {
    let agents = payers.iter().filter_map(|payer| match payer {
        BudgetOwner::Agent(name) => Some(name.clone()),
        BudgetOwner::Workspace | BudgetOwner::Instance(_) | BudgetOwner::Task(_) => None,
    });
    agents.collect()
}

#[cfg(test)]
mod tests {
    use goondan_protocol::time::Timestamp;
    use goondan_protocol::usage::{MicroUsd, Usage};

    use super::*;

    #[test]
    fn task_6_task_usage_is_booked_once_and_counts_for_all_payers() {
        let task = LedgerTask {
            id: "t-1".parse().unwrap(),
            created_at: Timestamp::from_unix_millis(1),
        };
        let of_task = |tokens| LedgerSum {
            task: Some(task.clone()),
            assumed: Charge::default(),
            ..line("2026-01-01", "task:t-1", &["main"], tokens)
        };
        let mut accounts = Accounts::of(&[of_task(10), of_task(5)]);
        let told = |tokens| TokenSpend {
            usage: Usage {
                input_tokens: tokens,
                ..Usage::default()
            },
            cost: MicroUsd(tokens),
        };
        assert_eq!(accounts.owed(&task, &told(15)), None);
        assert_eq!(accounts.owed(&task, &told(22)), Some(told(7)));
        assert_eq!(accounts.owed(&task, &told(22)), None, "it is on its way");
        let other = LedgerTask {
            created_at: Timestamp::from_unix_millis(2),
            ..task.clone()
        };
        assert_eq!(accounts.owed(&other, &told(3)), Some(told(3)));
        let ever = |payer: &BudgetOwner| accounts.ever(payer).tokens;
        assert_eq!(ever(&BudgetOwner::Task(task)), 15);
        assert_eq!(ever(&BudgetOwner::Instance("main".parse().unwrap())), 15);
        assert_eq!(ever(&BudgetOwner::Instance("task:t-1".parse().unwrap())), 0);
    }

    fn line(day: &str, key: &str, asked_by: &[&str], tokens: u64) -> LedgerSum {
        LedgerSum {
            day: day.parse().unwrap(),
            agent_name: if key == "main" { "boss" } else { "hand" }.parse().unwrap(),
            instance_key: key.parse().unwrap(),
            task: None,
            bundle_revision: None,
            asked_by: asked_by.iter().map(|key| key.parse().unwrap()).collect(),
            asked_by_agents: asked_by.iter().map(|_| "boss".parse().unwrap()).collect(),
            model: "m".parse().unwrap(),
            spending: UsageTotal {
                usage: Usage {
                    input_tokens: tokens,
                    ..Usage::default()
                },
                cost_micro_usd: MicroUsd(tokens),
                ..UsageTotal::default()
            },
            assumed: Charge {
                tokens: 1,
                micro_usd: MicroUsd(0),
            },
        }
    }

    #[test]
    fn delegated_spending_counts_for_both_agents_and_once_in_total() {
        let accounts = Accounts::of(&[
            line("2026-01-01", "main", &[], 10),
            line("2026-01-02", "hand:main", &["main"], 5),
        ]);
        let day = "2026-01-02".parse().unwrap();
        let spent = |payer: &BudgetOwner, period| accounts.spent(payer, period, day).tokens;
        let key = |key: &str| BudgetOwner::Instance(key.parse().unwrap());
        assert_eq!(spent(&BudgetOwner::Workspace, BudgetPeriod::Ever), 17);
        assert_eq!(spent(&BudgetOwner::Workspace, BudgetPeriod::Day), 6);
        assert_eq!(spent(&key("main"), BudgetPeriod::Ever), 17);
        assert_eq!(spent(&key("hand:main"), BudgetPeriod::Ever), 6);
        let agent = |name: &str| BudgetOwner::Agent(name.parse().unwrap());
        assert_eq!(spent(&agent("boss"), BudgetPeriod::Ever), 17);
        assert_eq!(spent(&agent("hand"), BudgetPeriod::Ever), 6);
        assert_eq!(spent(&key("nobody"), BudgetPeriod::Ever), 0);
        let replies = accounts.by_model();
        let replies = replies.map(|(agent, _, sum)| (agent.as_str(), sum.usage.input_tokens));
        let replies: Vec<_> = replies.collect();
        assert_eq!(
            replies,
            [("boss", 10), ("hand", 5)],
            "each to its own agent"
        );
        let agent = accounts.agent_of(&key("hand:main"));
        assert_eq!(agent.map(AgentName::as_str), Some("hand"));
    }

    #[test]
    fn the_latest_days_are_known_also_after_the_clock_was_set_back() {
        let mut accounts = Accounts::default();
        for day in 1..=9 {
            accounts.take(&line(&format!("2026-01-{day:02}"), "main", &[], day));
        }
        accounts.take(&line("2026-01-08", "main", &[], 100));
        let of = |day: &str| {
            let day = day.parse().unwrap();
            accounts
                .spent(&BudgetOwner::Workspace, BudgetPeriod::Day, day)
                .tokens
        };
        assert_eq!(
            (of("2026-01-09"), of("2026-01-08"), of("2026-01-02")),
            (10, 110, 0)
        );
    }
}
