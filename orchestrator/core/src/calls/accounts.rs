//! What counts against budgets: sums of a workspace's ledger, held in memory (pure).
//!
//! They are made of the ledger when the workspace is opened, and take each entry in once it is durable
//! there. So they are never less than what was spent, whatever was killed.

use std::collections::{BTreeMap, BTreeSet};

use goondan_protocol::budget::BudgetPeriod;
use goondan_protocol::ids::{AgentName, InstanceKey};
use goondan_protocol::time::Day;
use goondan_protocol::usage::Charge;
use goondan_store::ledger::Line;

/// Days of which an account knows the sums. More than one, since a clock may be set back.
const DAYS_MAX: usize = 4;

/// Whose account something counts in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Payer {
    Workspace,
    Agent(AgentName),
    Instance(InstanceKey),
}

/// The sums of one payer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Account {
    ever: Charge,
    days: BTreeMap<Day, Charge>,
    /// Of a conversation: its agent, once it has spent something itself.
    agent: Option<AgentName>,
}

/// The sums of a workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Accounts {
    of: BTreeMap<Payer, Account>,
}

impl Accounts {
    /// The sums of a ledger.
    pub fn of(lines: &[Line]) -> Self {
        let mut accounts = Self::default();
        for line in lines {
            accounts.take(line);
        }
        accounts
    }

    /// Takes in what the ledger holds durably.
    pub(crate) fn take(&mut self, line: &Line) {
        let charge = line.charge();
        let agent = &line.agent_name;
        for payer in payers_of_line(line) {
            let is_own = payer == Payer::Instance(line.instance_key.clone());
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

    /// What counts in an account, on this day or since ever.
    pub(crate) fn spent(&self, payer: &Payer, period: BudgetPeriod, day: Day) -> Charge {
        let Some(account) = self.of.get(payer) else {
            return Charge::default();
        };
        match period {
            BudgetPeriod::Ever => account.ever,
            BudgetPeriod::Day => account.days.get(&day).copied().unwrap_or_default(),
        }
    }

    /// What counts in an account since ever.
    pub(crate) fn ever(&self, payer: &Payer) -> Charge {
        let account = self.of.get(payer);
        account.map_or_else(Charge::default, |account| account.ever)
    }

    /// The agent of a conversation that has spent something itself.
    pub(crate) fn agent_of(&self, key: &InstanceKey) -> Option<&AgentName> {
        let account = self.of.get(&Payer::Instance(key.clone()))?;
        account.agent.as_ref()
    }

    /// Everybody who has an account.
    pub(crate) fn payers(&self) -> impl Iterator<Item = &Payer> {
        self.of.keys()
    }
}

/// Everybody whom a reply counts against: of agents and of conversations its own, and those that had
/// asked for its turn. Each counts once.
pub(crate) fn payers(
    (agent, asking): (&AgentName, &[AgentName]),
    (own, asked_by): (&InstanceKey, &[InstanceKey]),
) -> impl Iterator<Item = Payer> + use<> {
    let agents = std::iter::once(agent).chain(asking).cloned();
    let instances = std::iter::once(own).chain(asked_by).cloned();
    let all: BTreeSet<Payer> = std::iter::once(Payer::Workspace)
        .chain(agents.map(Payer::Agent))
        .chain(instances.map(Payer::Instance))
        .collect();
    all.into_iter()
}

/// Everybody whom what a line says counts against.
pub(crate) fn payers_of_line(line: &Line) -> impl Iterator<Item = Payer> + use<> {
    payers(
        (&line.agent_name, &line.asked_by_agents),
        (&line.instance_key, &line.asked_by),
    )
}

/// The agents among them.
pub(crate) fn agents_of(payers: &[Payer]) -> Vec<AgentName> {
    let agents = payers.iter().filter_map(|payer| match payer {
        Payer::Agent(name) => Some(name.clone()),
        Payer::Workspace | Payer::Instance(_) => None,
    });
    agents.collect()
}

#[cfg(test)]
mod tests {
    use goondan_protocol::usage::{MicroUsd, Spending, Usage};

    use super::*;

    fn line(day: &str, key: &str, asked_by: &[&str], tokens: u64) -> Line {
        Line {
            day: day.parse().unwrap(),
            agent_name: if key == "main" { "boss" } else { "hand" }.parse().unwrap(),
            instance_key: key.parse().unwrap(),
            asked_by: asked_by.iter().map(|key| key.parse().unwrap()).collect(),
            asked_by_agents: asked_by.iter().map(|_| "boss".parse().unwrap()).collect(),
            model: "m".parse().unwrap(),
            spending: Spending {
                usage: Usage {
                    input_tokens: tokens,
                    ..Usage::default()
                },
                cost_micro_usd: MicroUsd(tokens),
                ..Spending::default()
            },
            assumed: Charge {
                tokens: 1,
                micro_usd: MicroUsd(0),
            },
        }
    }

    #[test]
    fn what_an_agent_spends_for_another_counts_for_both_and_once_for_all() {
        let accounts = Accounts::of(&[
            line("2026-01-01", "main", &[], 10),
            line("2026-01-02", "hand:main", &["main"], 5),
        ]);
        let day = "2026-01-02".parse().unwrap();
        let spent = |payer: &Payer, period| accounts.spent(payer, period, day).tokens;
        let key = |key: &str| Payer::Instance(key.parse().unwrap());
        assert_eq!(spent(&Payer::Workspace, BudgetPeriod::Ever), 17);
        assert_eq!(spent(&Payer::Workspace, BudgetPeriod::Day), 6);
        assert_eq!(spent(&key("main"), BudgetPeriod::Ever), 17);
        assert_eq!(spent(&key("hand:main"), BudgetPeriod::Ever), 6);
        let agent = |name: &str| Payer::Agent(name.parse().unwrap());
        assert_eq!(spent(&agent("boss"), BudgetPeriod::Ever), 17);
        assert_eq!(spent(&agent("hand"), BudgetPeriod::Ever), 6);
        assert_eq!(spent(&key("nobody"), BudgetPeriod::Ever), 0);
        let agent = accounts.agent_of(&"hand:main".parse().unwrap());
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
                .spent(&Payer::Workspace, BudgetPeriod::Day, day)
                .tokens
        };
        assert_eq!(
            (of("2026-01-09"), of("2026-01-08"), of("2026-01-02")),
            (10, 110, 0)
        );
    }
}
