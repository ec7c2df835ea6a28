//! Reports of model usage for users.

use std::collections::BTreeMap;

use goondan_durable::disk::Disk;
use goondan_protocol::control::{ControlError, ReadUsage, UsageGrouping, UsageReport, UsageRow};
use goondan_protocol::ids::{AgentName, WorkspaceId};
use goondan_protocol::usage::UsageTotal;
use goondan_store::ledger::{self, LedgerContent, LedgerSum};
use goondan_store::root::Layout;

use goondan_core::control_error;

/// Sums the ledgers of workspaces. Blocks.
pub(super) fn report(
    disk: &dyn Disk,
    layout: &Layout,
    workspaces: &[WorkspaceId],
    read: &ReadUsage,
) -> Result<UsageReport, ControlError> {
    let mut ledgers = Vec::new();
    for id in workspaces {
        let ledger = ledger::read(disk, layout, id).map_err(|error| control_error(&error))?;
        ledgers.push((id, ledger));
    }
    Ok(summed(&ledgers, read))
}

/// Label for the project's configuration, used instead of a revision.
const PROJECT: &str = "project";

fn key_of(line: &LedgerSum, by: UsageGrouping) -> (String, Option<AgentName>) {
    match by {
        UsageGrouping::Agent => (line.agent_name.to_string(), None),
        UsageGrouping::Instance => (line.instance_key.to_string(), Some(line.agent_name.clone())),
        UsageGrouping::Day => (line.day.to_string(), None),
        UsageGrouping::Model => (line.model.to_string(), None),
        UsageGrouping::Revision => {
            let revision = line.bundle_revision.as_ref();
            let revision = revision.map_or_else(|| PROJECT.to_owned(), ToString::to_string);
            (revision, None)
        }
    }
}

fn summed(ledgers: &[(&WorkspaceId, LedgerContent)], read: &ReadUsage) -> UsageReport {
    let mut sums: BTreeMap<(&WorkspaceId, String, Option<AgentName>), UsageTotal> = BTreeMap::new();
    let mut total = UsageTotal::default();
    let mut unreadable = 0;
    for (id, ledger) in ledgers {
        unreadable += ledger.unreadable;
        let lines = ledger.lines.iter();
        for line in lines.filter(|line| read.since.is_none_or(|since| line.day >= since)) {
            let (key, agent_name) = key_of(line, read.by);
            let sum = sums.entry((id, key, agent_name)).or_default();
            sum.add(&line.spending);
            total.add(&line.spending);
        }
    }
    let rows: Vec<UsageRow> = sums
        .into_iter()
        .map(|((id, key, agent_name), spending)| UsageRow {
            workspace_id: id.clone(),
            key,
            agent_name,
            spending,
        })
        .collect();
    UsageReport {
        unreadable,
        ..read.page_of(rows, total)
    }
}

#[cfg(test)]
mod tests {
    use goondan_protocol::usage::{Charge, MicroUsd, ReplyCost, Usage};

    use super::*;

    fn line(day: &str, agent: &str, key: &str, tokens: u64) -> LedgerSum {
        let mut spending = UsageTotal::default();
        spending.add_reply(&ReplyCost {
            usage: Some(Usage {
                input_tokens: tokens,
                ..Usage::default()
            }),
            cost: Some(MicroUsd(tokens)),
        });
        LedgerSum {
            day: day.parse().unwrap(),
            agent_name: agent.parse().unwrap(),
            instance_key: key.parse().unwrap(),
            task: None,
            bundle_revision: None,
            asked_by: Vec::new(),
            asked_by_agents: Vec::new(),
            model: "m".parse().unwrap(),
            spending,
            assumed: Charge::default(),
        }
    }

    fn rows(by: UsageGrouping, since: Option<&str>) -> (Vec<(String, u64)>, u64) {
        let id: WorkspaceId = "w".parse().unwrap();
        let ledger = LedgerContent {
            lines: vec![
                line("2026-01-01", "a", "k1", 1),
                line("2026-01-02", "a", "k2", 2),
                line("2026-01-02", "b", "k3", 7),
                line("2026-01-03", "a", "k1", 3),
            ],
            unreadable: 0,
        };
        let mut read = ReadUsage {
            workspace_id: None,
            by,
            since: since.map(|day| day.parse().unwrap()),
            after: None,
            limit: None,
        };
        let ledgers = [(&id, ledger)];
        let report = summed(&ledgers, &read);
        assert_eq!((report.left_out, report.next), (0, None));
        // Pages of one row give the same result.
        read.limit = Some(1);
        let mut on_pages = Vec::new();
        loop {
            let page = summed(&ledgers, &read);
            assert_eq!(page.total, report.total);
            on_pages.extend(page.rows);
            let left = report.rows.len() - on_pages.len();
            assert_eq!(page.left_out, left as u64);
            read.after = page.next;
            if read.after.is_none() {
                break;
            }
        }
        assert_eq!(on_pages, report.rows);
        let rows = report.rows.into_iter();
        let rows = rows.map(|row| (row.key, row.spending.usage.input_tokens));
        (rows.collect(), report.total.cost_micro_usd.0)
    }

    fn expected(rows: &[(&str, u64)]) -> Vec<(String, u64)> {
        let rows = rows.iter();
        rows.map(|(key, tokens)| ((*key).to_owned(), *tokens))
            .collect()
    }

    #[test]
    fn obs_1_usage_sums_are_grouped_largest_first_and_paged() {
        assert_eq!(
            rows(UsageGrouping::Agent, None),
            (expected(&[("b", 7), ("a", 6)]), 13)
        );
        let keys = expected(&[("k3", 7), ("k1", 4), ("k2", 2)]);
        assert_eq!(rows(UsageGrouping::Instance, None), (keys, 13));
        let days = expected(&[("2026-01-03", 3), ("2026-01-02", 9), ("2026-01-01", 1)]);
        assert_eq!(rows(UsageGrouping::Day, None), (days, 13));
        assert_eq!(
            rows(UsageGrouping::Model, Some("2026-01-02")),
            (expected(&[("m", 12)]), 12)
        );
    }
}
