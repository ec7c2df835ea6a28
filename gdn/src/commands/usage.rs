//! `gdn usage`: tokens and cost of model replies.

use clap::{Args, ValueEnum};
use goondan_protocol::budget::{Amount, BudgetPeriod, BudgetState};
use goondan_protocol::control::{AccountUsage, ReadUsage, UsageGrouping, UsageReport};
use goondan_protocol::ids::AgentName;
use goondan_protocol::time::{Day, Timestamp};
use goondan_protocol::usage::{MicroUsd, UsageTotal};
use serde_json::json;

use crate::context::Context;
use crate::failure::Failure;
use crate::output::style;
use crate::output::table::{Cell, Column, Table};
use crate::output::text;
use crate::schemas;

/// Show tokens and cost of model replies
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn usage                              by agent
  gdn usage --by day --since 7d          per day, for the last seven days
  gdn usage --by instance --since 2026-01-31
  gdn usage --by model --all --json | jq '.total.costMicroUsd'")]
pub(crate) struct UsageArgs {
    /// Grouping of the totals
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = UsageSum::Agent)]
    by: UsageSum,
    /// Only since this day, in UTC: `2026-01-31`, or `7d` for the last seven days
    #[arg(long, value_name = "DAY", value_parser = parse_since)]
    since: Option<Day>,
    /// Include every workspace
    #[arg(long)]
    all: bool,
}

/// Values of `--by`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum UsageSum {
    Agent,
    Instance,
    Day,
    Model,
    Revision,
}

impl From<UsageSum> for UsageGrouping {
    fn from(sum: UsageSum) -> Self {
        match sum {
            UsageSum::Agent => Self::Agent,
            UsageSum::Instance => Self::Instance,
            UsageSum::Day => Self::Day,
            UsageSum::Model => Self::Model,
            UsageSum::Revision => Self::Revision,
        }
    }
}

/// Parses a date, or a number of days including today.
fn parse_since(text: &str) -> Result<Day, String> {
    const DAY_MS: i64 = 86_400_000;
    if let Some(days) = text.strip_suffix('d') {
        let days: i64 = days.parse().ok().filter(|days| *days > 0).ok_or_else(|| {
            format!("invalid number of days `{text}`: expected a value such as 7d, including today")
        })?;
        let before_ms = days.saturating_sub(1).saturating_mul(DAY_MS);
        let now_ms = text::now().as_unix_millis();
        return Ok(Timestamp::from_unix_millis(now_ms.saturating_sub(before_ms)).day());
    }
    text.parse()
        .map_err(|_| format!("invalid day `{text}`: expected a value such as 2026-01-31 or 7d"))
}

/// Percentage of a budget from which it is shown as nearly used up.
const WARNING_PERCENT: u64 = 90;

pub(crate) async fn run(args: &UsageArgs, context: &Context) -> Result<(), Failure> {
    let all = context.covers_all(args.all);
    let (mut client, workspace_id) = context.open_scope(all).await?;
    let by = UsageGrouping::from(args.by);
    let since = args.since;
    let read = ReadUsage {
        workspace_id,
        by,
        since,
        after: None,
        limit: None,
    };
    let mut report = client.usage(read).await?;
    if by == UsageGrouping::Day {
        report.rows.reverse();
    }
    let output = context.output;
    output.object(
        schemas::USAGE,
        &json!({
            "by": by,
            "since": since,
            "rows": report.rows,
            "total": report.total,
            "unreadable": report.unreadable,
            "budgets": report.budgets,
            "accounts": report.accounts,
        }),
    )?;
    if report.rows.is_empty() {
        output.data("No model replies. The scripted model uses no tokens.")?;
    } else {
        output.data(table(&report, by, all).render(output.canvas()))?;
    }
    if !report.budgets.is_empty() {
        output.data("")?;
        output.data(budgets(&report.budgets, all).render(output.canvas()))?;
    }
    if !report.accounts.is_empty() {
        output.data("")?;
        output.data(accounts(&report.accounts, text::now()).render(output.canvas()))?;
    }
    if report.total.unpriced > 0 {
        let replies = match report.total.unpriced {
            1 => "1 reply is".to_owned(),
            many => format!("{many} replies are"),
        };
        output.note(format!(
            "The cost of {replies} unknown and not in the totals: set `prices` of their Models."
        ));
    }
    if report.unreadable > 0 {
        output.note(format!(
            "{} {} of `usage.jsonl` cannot be read and {} not counted, not even for budgets.",
            output.err.paint(style::WARN, "warning:"),
            text::count(report.unreadable, "record"),
            if report.unreadable == 1 { "is" } else { "are" },
        ));
    }
    Ok(())
}

pub(super) fn by_agent(report: &UsageReport) -> Table {
    table(report, UsageGrouping::Agent, false)
}

fn table(report: &UsageReport, by: UsageGrouping, all: bool) -> Table {
    let workspace = all.then_some("WORKSPACE");
    let agent = (by == UsageGrouping::Instance).then_some("AGENT");
    let what = match by {
        UsageGrouping::Agent => "AGENT",
        UsageGrouping::Instance => "CONVERSATION",
        UsageGrouping::Day => "DAY",
        UsageGrouping::Model => "MODEL",
        UsageGrouping::Revision => "REVISION",
    };
    let titles = workspace.into_iter().chain([what]).chain(agent);
    let titles = titles.map(|title| Column::new(title).cut());
    let numbers_of = ["REPLIES", "IN", "CACHED", "OUT", "COST"].map(Column::new);
    let mut table = Table::new(titles.chain(numbers_of));
    for row in &report.rows {
        let workspace = all.then(|| Cell::from(row.workspace_id.as_str()));
        let name = row.agent_name.as_ref().map_or("", |name| name.as_str());
        let agent = agent.map(|_| Cell::from(name));
        let begin = workspace.into_iter().chain([Cell::from(&row.key)]);
        table.row(begin.chain(agent).chain(numbers(&row.spending)));
    }
    if report.rows.len() > 1 {
        let blank = |_: &str| Cell::from("");
        let workspace = workspace.map(blank).into_iter();
        let begin = workspace.chain([Cell::styled("total", style::TITLE)]);
        table.row(begin.chain(agent.map(blank)).chain(numbers(&report.total)));
    }
    table
}

/// Usage windows of the accounts of coding agents.
fn accounts(accounts: &[AccountUsage], now: Timestamp) -> Table {
    let titles = ["ACCOUNT", "AGENTS"].map(|title| Column::new(title).cut());
    let rest = ["LIMIT", "SINCE", "IN", "CACHED", "OUT", "COST"].map(Column::new);
    let mut table = Table::new(titles.into_iter().chain(rest));
    for window in accounts {
        let account = &window.account;
        let mut name = text::one_line(&account.program);
        if let Some(login) = &account.login {
            name.push_str(&format!(" {}", text::one_line(&login.to_string_lossy())));
        }
        for secret in &account.secrets {
            name.push_str(&format!(" {}", text::one_line(secret)));
        }
        let agents: Vec<&str> = window.agents.iter().map(AgentName::as_str).collect();
        let limit = match window.limited_until.filter(|until| *until > now) {
            Some(until) => Cell::styled(format!("until {until}"), style::WARN),
            None => Cell::from("open"),
        };
        let since = window.since.map(|since| since.to_string());
        table.row([
            Cell::from(name),
            Cell::from(agents.join(", ")),
            limit,
            Cell::from(since.unwrap_or_default()),
            Cell::from(window.usage.read().to_string()),
            Cell::from(window.usage.cache_read_tokens.to_string()),
            Cell::from(window.usage.output_tokens.to_string()),
            Cell::from(window.cost_micro_usd.to_string()),
        ]);
    }
    table
}

/// Prints the budgets of the project.
pub(super) async fn show_budgets(context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let read = ReadUsage {
        workspace_id: Some(workspace.workspace_id),
        by: UsageGrouping::Agent,
        since: None,
        after: None,
        limit: Some(1),
    };
    let report = client.query(read).await?;
    let output = context.output;
    if report.budgets.is_empty() {
        return output.data("No budgets.");
    }
    output.data(budgets(&report.budgets, false).render(output.canvas()))
}

pub(super) fn budgets(states: &[BudgetState], all: bool) -> Table {
    let workspace = all.then_some(Column::new("WORKSPACE").cut());
    let titles = [Column::new("BUDGET").cut()].into_iter();
    let rest = ["PER", "LIMIT", "SPENT", "", "RESERVED", "LEFT"];
    let rest = rest.map(Column::new);
    let titles = titles.chain(rest);
    let mut table = Table::new(workspace.into_iter().chain(titles));
    for state in states {
        let workspace = all.then(|| Cell::from(state.workspace_id.as_str()));
        let whose = match (&state.instance_key, &state.agent_name) {
            (Some(key), _) => format!("conversation {key}"),
            (None, Some(agent)) => format!("agent {agent}"),
            (None, None) => "workspace".to_owned(),
        };
        let per = match state.period {
            BudgetPeriod::Ever => "",
            BudgetPeriod::Day => "day",
        };
        let percent = state.spent.percent_of(state.limit);
        let look = match percent {
            0..WARNING_PERCENT => style::PLAIN,
            WARNING_PERCENT..100 => style::WARN,
            _ => style::BAD,
        };
        let taken = state.spent.number().saturating_add(state.reserved.number());
        let left = state.limit.number().saturating_sub(taken);
        let left = match state.limit {
            Amount::Tokens(_) => Amount::Tokens(left),
            Amount::MicroUsd(_) => Amount::MicroUsd(MicroUsd(left)),
        };
        let cells = [
            Cell::from(whose),
            Cell::from(per),
            Cell::from(state.limit.to_string()),
            Cell::from(state.spent.to_string()),
            Cell::styled(format!("{percent} %"), look),
            Cell::from(state.reserved.to_string()),
            Cell::styled(left.to_string(), look),
        ];
        table.row(workspace.into_iter().chain(cells));
    }
    table
}

fn numbers(spending: &UsageTotal) -> [Cell; 5] {
    let usage = &spending.usage;
    let cost = text::cost(spending);
    let look = if spending.unpriced > 0 {
        style::FAINT
    } else {
        style::PLAIN
    };
    [
        Cell::from(spending.replies.to_string()),
        Cell::from(usage.read().to_string()),
        Cell::from(usage.cache_read_tokens.to_string()),
        Cell::from(usage.output_tokens.to_string()),
        Cell::styled(cost, look),
    ]
}

#[cfg(test)]
mod tests {
    use goondan_protocol::budget::BudgetScope;
    use goondan_protocol::control::UsageRow;
    use goondan_protocol::task::AgentAccount;
    use goondan_protocol::usage::Usage;

    use super::*;
    use crate::output::style::Palette;

    fn spending(replies: u64, cost: u64, unpriced: u64) -> UsageTotal {
        UsageTotal {
            replies,
            usage: Usage {
                input_tokens: 100 * replies,
                output_tokens: 7,
                cache_read_tokens: 20,
                ..Usage::default()
            },
            cost_micro_usd: MicroUsd(cost),
            unmetered: 0,
            unpriced,
        }
    }

    #[test]
    fn usage_sums_are_a_table_with_total_and_mark_unknown_costs() {
        let row = |key: &str, spending| UsageRow {
            workspace_id: "w".parse().unwrap(),
            key: key.to_owned(),
            agent_name: Some("clerk".parse().unwrap()),
            spending,
        };
        let mut report = UsageReport {
            rows: vec![
                row("main", spending(2, 1_500_000, 0)),
                row("a\nb", spending(1, 0, 1)),
            ],
            left_out: 0,
            next: None,
            total: spending(3, 1_500_000, 1),
            unreadable: 0,
            budgets: Vec::new(),
            accounts: Vec::new(),
        };
        let shown = table(&report, UsageGrouping::Instance, false).render(Palette::new(false));
        assert_eq!(
            shown,
            "CONVERSATION  AGENT  REPLIES  IN   CACHED  OUT  COST\n\
             main          clerk  2        220  20      7    $1.50\n\
             a\\nb          clerk  1        120  20      7    unknown\n\
             total                3        320  20      7    $1.50 and more\n"
        );
        report.rows.truncate(1);
        let shown = table(&report, UsageGrouping::Day, true).render(Palette::new(false));
        assert!(shown.starts_with("WORKSPACE  DAY   REPLIES"), "{shown}");
        assert_eq!(shown.lines().count(), 2);
    }

    #[test]
    fn budgets_are_shown_with_their_remainder() {
        let state = |limit, spent, reserved, key: Option<&str>| BudgetState {
            workspace_id: "w".parse().unwrap(),
            scope: BudgetScope::Workspace,
            agent_name: None,
            instance_key: key.map(|key| key.parse().unwrap()),
            period: BudgetPeriod::Day,
            limit,
            spent,
            reserved,
        };
        let usd = |micro_usd| Amount::MicroUsd(MicroUsd(micro_usd));
        let states = [
            state(usd(5_000_000), usd(4_600_000), usd(300_000), None),
            state(
                Amount::Tokens(100),
                Amount::Tokens(120),
                Amount::Tokens(0),
                Some("main"),
            ),
        ];
        assert_eq!(
            budgets(&states, false).render(Palette::new(false)),
            "BUDGET             PER  LIMIT       SPENT              RESERVED  LEFT\n\
             workspace          day  $5.00       $4.60       92 %   $0.30     $0.10\n\
             conversation main  day  100 tokens  120 tokens  120 %  0 tokens  0 tokens\n"
        );
    }

    #[test]
    fn agent_8_an_account_has_a_limit_or_is_open() {
        let window = |program: &str, limited_until: Option<i64>| AccountUsage {
            account: AgentAccount {
                program: program.to_owned(),
                login: Some("/home/ada/.codex".into()),
                secrets: vec!["Secret/openai KEY".to_owned()],
            },
            agents: vec!["coder".parse().unwrap(), "tester".parse().unwrap()],
            limited_until: limited_until.map(Timestamp::from_unix_millis),
            since: Some(Timestamp::from_unix_millis(0)),
            usage: Usage {
                input_tokens: 100,
                output_tokens: 7,
                ..Usage::default()
            },
            cost_micro_usd: MicroUsd(1_500_000),
        };
        let now = Timestamp::from_unix_millis(5_000);
        let rows = [window("codex", Some(60_000)), window("codex", Some(5_000))];
        assert_eq!(
            accounts(&rows, now).render(Palette::new(false)),
            "ACCOUNT                                   AGENTS         LIMIT                           \
             SINCE                     IN   CACHED  OUT  COST\n\
             codex /home/ada/.codex Secret/openai KEY  coder, tester  until 1970-01-01T00:01:00.000Z  \
             1970-01-01T00:00:00.000Z  100  0       7    $1.50\n\
             codex /home/ada/.codex Secret/openai KEY  coder, tester  open                            \
             1970-01-01T00:00:00.000Z  100  0       7    $1.50\n"
        );
    }

    #[test]
    fn a_day_is_written_out_or_counted_back_from_today() {
        let day = parse_since("2026-01-31").unwrap();
        assert_eq!(day.to_string(), "2026-01-31");
        let today = text::now().day();
        assert!(parse_since("1d").unwrap() >= today);
        assert!(parse_since("8d").unwrap() < today);
        for bad in ["", "d", "0d", "-1d", "7", "2026-02-30", "yesterday"] {
            assert!(parse_since(bad).is_err(), "{bad}");
        }
    }
}
