//! `gdn task show`: details of a task, and the commands to run next.

use goondan_protocol::control::{
    TaskAsk, TaskAskKind, TaskDetail, TaskDisk, TaskDrill, TaskNotification, TaskNotificationState,
};
use goondan_protocol::task::{PlanStep, PlanStepState, TaskStatus};
use goondan_protocol::time::Timestamp;

use super::list;
use crate::output::page::PageWriter;
use crate::output::style;
use crate::output::table::{Canvas, Cell, Table};
use crate::output::text;

/// Percentage of a budget from which it is shown as nearly used up.
const WARNING_PERCENT: u64 = 90;

/// Maximum number of output lines shown of a failed `verify`.
const VERIFY_LINES_SHOWN: usize = 10;

/// A command that the user may run next.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NextCommand {
    pub(super) what: &'static str,
    /// The command, without `gdn`.
    pub(super) command: String,
}

pub(super) fn page_of(detail: &TaskDetail, canvas: Canvas, now: Timestamp) -> String {
    let palette = canvas.palette;
    let mut page = PageWriter::new(&fields_of(detail, now), canvas);
    let asks = detail.asks.iter().map(|ask| ask_text(ask, canvas, now));
    page.part("Waits for you", &asks.collect::<String>());
    if let Some(phase) = detail.review {
        let all = detail.info.total_phases;
        page.part(
            "Waits for your review",
            &format!("  phase {phase} of {all}\n"),
        );
    }
    let messages = detail.messages.iter();
    let messages = messages.map(|message| text::quoted(message));
    page.part("Waits for its agent", &messages.collect::<String>());
    page.part("Proposal", &proposal_text(detail, canvas));
    page.part("Description", &text::quoted(&detail.description));
    let documents = detail.documents.iter().map(|path| {
        let mark = if detail.missing_documents.contains(path) {
            palette.paint(style::BAD, "  does not exist")
        } else {
            String::new()
        };
        format!("  {}{mark}\n", text::one_line(path))
    });
    page.part("Documents", &documents.collect::<String>());
    if let Some(last) = &detail.last_run {
        // A successful run is described by its documents.
        if !last.is_ok {
            page.part("Last output", &text::quoted(&last.last_words));
            page.part("Its error output", &text::quoted(&last.stderr));
        }
    }
    let told = detail.notifications.iter();
    let told = told.map(|told| notification_line(told, canvas));
    page.part("Notifications", &told.collect::<String>());
    let recent = detail.recent.iter().map(|line| {
        let at = palette.paint(style::FAINT, &text::clock(line.at));
        let event = line.event.replace('_', " ");
        let said = format!("{event}  {}", text::one_line(&line.detail));
        format!("  {at}  {}\n", said.trim_end())
    });
    page.part("Recent history", &recent.collect::<String>());
    page.into_text()
}

/// Changes to the project, or why there is no proposal.
fn proposal_text(detail: &TaskDetail, canvas: Canvas) -> String {
    let palette = canvas.palette;
    let verified = verified_text(detail, canvas);
    if let Some(problem) = &detail.proposal_problem {
        return palette.paint(style::WARN, &text::quoted(problem)) + &verified;
    }
    let Some(proposal) = &detail.proposal else {
        return verified;
    };
    let files = proposal.files.iter();
    let files = files.map(|file| {
        let status = palette.paint(style::FAINT, file.status.as_str());
        format!("  {status}  {}\n", text::one_line(&file.path))
    });
    let mut told: String = files.collect();
    if proposal.more_files > 0 {
        let more = text::count(proposal.more_files, "other file");
        told.push_str(&format!("  and {more}\n"));
    }
    if proposal.is_delivered {
        told.push_str(&match (&proposal.branch, &proposal.pull_request) {
            (Some(branch), Some(url)) => {
                format!(
                    "  Branch: {branch}.\n  Pull request: {}\n",
                    text::one_line(url)
                )
            }
            (Some(branch), None) => format!("  Branch: {branch}.\n"),
            (None, _) => "  Applied to the project.\n".to_owned(),
        });
    }
    told + &verified
}

/// Result of the `verify` command, if there is one.
fn verified_text(detail: &TaskDetail, canvas: Canvas) -> String {
    let palette = canvas.palette;
    match &detail.verified {
        None => String::new(),
        Some(verdict) if verdict.passed => palette.paint(style::GOOD, "  `verify` passed\n"),
        Some(verdict) => {
            let why = format!("  `verify` failed: {}\n", text::one_line(&verdict.why));
            let output = verdict.output.lines().rev().take(VERIFY_LINES_SHOWN);
            let mut output: Vec<&str> = output.collect();
            output.reverse();
            palette.paint(style::BAD, &why) + &text::quoted(&output.join("\n"))
        }
    }
}

fn notification_line(told: &TaskNotification, canvas: Canvas) -> String {
    let palette = canvas.palette;
    let at = palette.paint(style::FAINT, &text::clock(told.at));
    let (state, tone) = match told.state {
        TaskNotificationState::Waiting => ("sending", style::PLAIN),
        TaskNotificationState::Sent => ("sent", style::PLAIN),
        TaskNotificationState::Failed => ("not sent", style::BAD),
    };
    let why = told.why.as_deref().map(text::one_line);
    let why = why.map_or_else(String::new, |why| format!(": {why}"));
    let state = palette.paint(tone, &format!("{state}{why}"));
    let (on, action) = (told.on.as_str(), text::one_line(&told.action));
    format!("  {at}  {on} by {} {action}  {state}\n", told.connection)
}

fn fields_of(detail: &TaskDetail, now: Timestamp) -> Table {
    let info = &detail.info;
    let mut table = Table::of_fields();
    table.field("Task", Cell::from(&info.task_id));
    table.field("Title", text::one_line(&info.title));
    table.field("State", list::status_of(info));
    if let Some(problem) = info.damaged.as_ref().or(detail.failure.as_ref()) {
        table.field("Why", Cell::styled(text::one_line(problem), style::BAD));
    }
    if let Some(why) = &info.held {
        let why = format!("held in the merge queue: {}", text::one_line(why));
        table.field("Why", Cell::styled(why, style::WARN));
    }
    if info.total_phases > 0 {
        let phase = format!("{} of {}", info.current_phase, info.total_phases);
        table.field("Phase", phase);
    }
    if info.progress > 0 {
        table.field("Progress", format!("{} %", info.progress));
    }
    if let Some(step) = &detail.step {
        table.field("Step", text::one_line(step));
    }
    if !detail.plan.is_empty() {
        table.field("Plan", plan_of(&detail.plan));
    }
    let current = detail.agents.iter().find(|agent| agent.is_current);
    let agent = current.map_or(&info.agent, |agent| &agent.name);
    let agent = match &detail.model {
        Some(model) => format!("{agent} ({})", text::one_line(model)),
        None => agent.to_string(),
    };
    table.field("Agent", agent);
    if !detail.agents.is_empty() {
        let agents = detail.agents.iter().map(|agent| {
            let limit = agent.limited_until.filter(|until| *until > now);
            let limit = limit.map(|until| format!(" (limit until {})", text::clock(until)));
            format!("{}{}", agent.name, limit.unwrap_or_default())
        });
        let agents: Vec<String> = agents.collect();
        table.field("Agents", agents.join(", "));
    }
    if let Some(key) = &info.created_by {
        table.field("Made", format!("by the agent of {key}"));
    }
    if let Some(run) = &detail.run {
        let pid = run
            .pid
            .map_or_else(String::new, |pid| format!(", pid {pid}"));
        table.field("Run", format!("{}{pid}", run.number));
    }
    if let Some(last) = &detail.last_run {
        let style = if last.is_ok {
            style::PLAIN
        } else {
            style::WARN
        };
        let words = text::one_line(&last.outcome);
        table.field(
            "Last run",
            Cell::styled(format!("{}: {words}", last.number), style),
        );
    }
    // A task that waits for a person runs after the decision.
    if detail.run.is_none()
        && info.status == TaskStatus::Running
        && let Some(at) = detail.not_before.filter(|at| *at > now)
    {
        let wait = text::age(now, at);
        table.field("Next run", format!("{} (in {wait})", text::clock(at)));
    }
    for (name, at) in [
        ("Made", info.created_at),
        ("Started", detail.started_at),
        ("Ended", detail.ended_at),
    ] {
        if let Some(at) = at {
            let age = text::age(at, now);
            table.field(name, format!("{} ({age} ago)", text::clock(at)));
        }
    }
    table.field("Taken", taken_of(detail));
    if let Some(disk) = &detail.disk {
        table.field("Disk", disk_of(disk));
    }
    if let Some(checkpoint) = &detail.checkpoint {
        table.field("Checkpoint", checkpoint.clone());
    }
    if let Some(drill) = &detail.drill {
        table.field("Restore drill", drill_of(drill, now));
    }
    table.field("Work area", detail.work_area.display().to_string());
    if let Some(repository) = detail.source.repository() {
        table.field("Repository", text::one_line(&repository.to_string()));
    }
    if let Some(sandbox) = &detail.sandbox {
        table.field("Works in", sandbox.work_dir.display().to_string());
    }
    table
}

/// Progress of the plan, and its next step.
fn plan_of(plan: &[PlanStep]) -> String {
    let is_done = |step: &&PlanStep| step.state == PlanStepState::Completed;
    let done = plan.iter().filter(is_done).count();
    let next = plan
        .iter()
        .find(|step| step.state == PlanStepState::Pending);
    let next = next.map_or_else(String::new, |step| {
        format!(", next: {}", text::one_line(&step.title))
    });
    format!("{done} of {} done{next}", plan.len())
}

/// Tokens and cost used, each with its limit. Usage that a program has not reported is unknown, not zero.
fn taken_of(detail: &TaskDetail) -> Cell {
    let (info, budget) = (&detail.info, &detail.budget);
    let has_run = detail.last_run.is_some();
    if has_run && info.tokens == 0 && info.cost.0 == 0 {
        let is_limited = budget.tokens.is_some() || budget.micro_usd.is_some();
        return match is_limited {
            true => Cell::styled(
                "unknown: the agent reports no usage, so its budget has no effect",
                style::WARN,
            ),
            false => Cell::styled("unknown: the agent reports no usage", style::PLAIN),
        };
    }
    if has_run && info.cost.0 == 0 && budget.micro_usd.is_some() {
        let text = format!(
            "{} tokens, unknown cost: the agent reports none, so its budget in dollars has no effect",
            info.tokens
        );
        return Cell::styled(text, style::WARN);
    }
    let tokens = match budget.tokens {
        Some(most) => format!("{} of {most} tokens", info.tokens),
        None => format!("{} tokens", info.tokens),
    };
    let cost = match budget.micro_usd {
        Some(most) => format!("{} of {most}", info.cost),
        None if has_run && info.cost.0 == 0 => "unknown cost".to_owned(),
        None => info.cost.to_string(),
    };
    let percent = |taken: u64, most: Option<u64>| {
        most.map_or(0, |most| taken.saturating_mul(100) / most.max(1))
    };
    let highest = percent(info.tokens, budget.tokens)
        .max(percent(info.cost.0, budget.micro_usd.map(|most| most.0)));
    let style = match highest {
        100.. => style::BAD,
        WARNING_PERCENT.. => style::WARN,
        _ => style::PLAIN,
    };
    let near = match highest {
        WARNING_PERCENT.. => format!(" ({highest} % of its budget)"),
        _ => String::new(),
    };
    Cell::styled(format!("{tokens}, {cost}{near}"), style)
}

/// Result of the last restore drill.
fn drill_of(drill: &TaskDrill, now: Timestamp) -> Cell {
    let age = text::age(drill.at, now);
    let id = &drill.checkpoint_id;
    match &drill.problem {
        None => Cell::styled(format!("{id} can be restored ({age} ago)"), style::GOOD),
        Some(problem) => {
            let problem = text::one_line(problem);
            let text = format!("{id} cannot be restored ({age} ago): {problem}");
            Cell::styled(text, style::BAD)
        }
    }
}

/// Disk usage of a work area, with its quota and the free space.
fn disk_of(disk: &TaskDisk) -> Cell {
    let (bytes, quota) = (text::bytes(disk.bytes), text::bytes(disk.quota_bytes));
    let free = disk.free_bytes.map(text::bytes);
    let free = free.map_or_else(String::new, |free| format!(", {free} free"));
    let style = match disk.bytes.saturating_mul(100) / disk.quota_bytes.max(1) {
        _ if disk.bytes > disk.quota_bytes => style::BAD,
        WARNING_PERCENT.. => style::WARN,
        _ => style::PLAIN,
    };
    Cell::styled(format!("{bytes} of {quota}{free}"), style)
}

/// Usage of a task, by kind.
pub(super) fn usage_of(detail: &TaskDetail) -> Table {
    let usage = &detail.usage;
    let mut table = Table::of_fields();
    table.field("Input", usage.input_tokens.to_string());
    table.field("Output", usage.output_tokens.to_string());
    table.field("Read from cache", usage.cache_read_tokens.to_string());
    table.field("Written to cache", usage.cache_write_tokens.to_string());
    table.field("In all", taken_of(detail));
    table
}

fn ask_text(ask: &TaskAsk, canvas: Canvas, now: Timestamp) -> String {
    let palette = canvas.palette;
    let what = match ask.kind {
        TaskAskKind::Question => "asks",
        TaskAskKind::Permission => "requests permission",
        TaskAskKind::Secret => "needs the secret",
        TaskAskKind::Dependency => "needs",
    };
    let id = palette.paint(style::WARN, &text::one_line(&ask.id));
    let mut out = format!("  {id}  {what}\n{}", text::quoted(&ask.text));
    out.push_str(&text::quoted(&ask.description));
    for option in &ask.options {
        out.push_str(&format!("    - {}\n", text::one_line(option)));
    }
    if let Some(until) = ask.until {
        let default = ask.default.as_deref().map_or_else(
            || "continues without it".to_owned(),
            |default| format!("uses `{}` instead", text::one_line(default)),
        );
        let left = text::age(now, until);
        let line = format!("without an answer in {left}, {default}");
        out.push_str(&format!("    {}\n", palette.paint(style::FAINT, &line)));
    }
    out
}

/// Options that keep the other limits of a budget, because a new budget replaces the whole one.
fn other_bounds(detail: &TaskDetail, changed: &[&str]) -> String {
    let budget = &detail.budget;
    let usd = budget.micro_usd.map(|most| most.to_string());
    let usd = usd.map(|text| text.trim_start_matches('$').to_owned());
    let bounds = [
        ("--max-tokens", budget.tokens.map(|most| most.to_string())),
        ("--max-usd", usd),
        (
            "--max-disk-mib",
            budget.disk_bytes.map(|most| (most >> 20).to_string()),
        ),
    ];
    let kept = bounds.into_iter().filter_map(|(option, most)| {
        let most = most.filter(|_| !changed.contains(&option))?;
        Some(format!(" {option} {most}"))
    });
    kept.collect()
}

/// Possible next commands, the most urgent first.
pub(super) fn next_commands(detail: &TaskDetail) -> Vec<NextCommand> {
    let id = &detail.info.task_id;
    let several = detail.asks.len() > 1;
    let mut commands: Vec<NextCommand> = detail
        .asks
        .iter()
        .map(|ask| {
            let what = match ask.kind {
                TaskAskKind::Question => "Answer it",
                TaskAskKind::Permission => "Allow or refuse it",
                TaskAskKind::Secret => "Provide it",
                TaskAskKind::Dependency => "Confirm that it exists",
            };
            let command = ask.command(id, several);
            NextCommand { what, command }
        })
        .collect();
    let mut next = |what, command: String| commands.push(NextCommand { what, command });
    for approval in &detail.approvals {
        next("Approve the call", format!("inbox approve {approval}"));
        next("Deny it", format!("inbox deny {approval}"));
    }
    let proposal = detail.proposal.as_ref().filter(|it| !it.is_delivered);
    let proposed = proposal.and(detail.sandbox.as_ref());
    let is_left = proposed.is_some() && detail.info.status == TaskStatus::Completed;
    if let Some(sandbox) = proposed.filter(|_| is_left || detail.review.is_some()) {
        let of = format!("{} {}", sandbox.at.run_id, sandbox.at.agent_id);
        next("Show its changes", format!("proposal diff {of}"));
        next("Show its summary and tests", format!("proposal show {of}"));
        if is_left && detail.source.repository().is_none() {
            next("Apply it", format!("proposal apply {of}"));
        }
    }
    if detail.info.held.is_some() {
        next(
            "Release it in the merge queue",
            format!("task queue release {id}"),
        );
        next("Remove it from the queue", format!("task queue drop {id}"));
    } else if detail.review.is_some() {
        next("Approve it", format!("task approve {id}"));
        next("Request changes", format!("task rework {id} TEXT"));
    }
    match detail.info.status {
        TaskStatus::Idle => next("Start it", format!("task start {id}")),
        TaskStatus::Paused if detail.info.blocked_by.as_deref() == Some("budget") => {
            let others = other_bounds(detail, &["--max-usd"]);
            next(
                "Increase its budget",
                format!("task budget {id} --max-usd DOLLARS{others}"),
            );
        }
        TaskStatus::Paused if detail.info.blocked_by.as_deref() == Some("shared_budget") => {
            next(
                "Show the usage; increase the budget in goondan.yaml, and the task resumes automatically",
                "usage".to_owned(),
            );
        }
        TaskStatus::Paused if detail.info.blocked_by.as_deref() == Some("quota") => {
            let others = other_bounds(detail, &["--max-disk-mib"]);
            let more = format!("task budget {id} --max-disk-mib MIB{others}");
            next(
                "Remove files from its work area, or increase its quota",
                more,
            );
            next("Then resume it", format!("task resume {id}"));
        }
        TaskStatus::Paused => next("Resume it", format!("task resume {id}")),
        TaskStatus::Running => next("Follow it", format!("task logs {id} --log stdout -f")),
        TaskStatus::Failed | TaskStatus::Cancelled => {
            next("Show its history", format!("task logs {id}"));
        }
        _ => {}
    }
    commands
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::style::Palette;
    use crate::output::table::at_three_widths;
    use goondan_protocol::control::{TaskHistoryLine, TaskLastRun};
    use goondan_protocol::task::{NotifyOn, TaskBudget};
    use goondan_protocol::usage::{MicroUsd, Usage};

    fn plan() -> Vec<PlanStep> {
        let steps = [
            ("Read the idea", PlanStepState::Completed),
            ("Writing", PlanStepState::InProgress),
            ("Check the prices", PlanStepState::Pending),
        ];
        let steps = steps.map(|(title, state)| PlanStep {
            title: title.to_owned(),
            state,
        });
        steps.to_vec()
    }

    fn detail(status: TaskStatus) -> TaskDetail {
        TaskDetail {
            info: list::tests::info("shop", status),
            description: "Build a small web shop.\nNo payments yet.".to_owned(),
            work_area: "/home/ann/.goondan/workspaces/w/tasks/shop".into(),
            source: Default::default(),
            sandbox: None,
            proposal: None,
            proposal_problem: None,
            verified: None,
            started_at: Some(Timestamp::from_unix_millis(1_000)),
            ended_at: None,
            failure: None,
            messages: Vec::new(),
            asks: Vec::new(),
            approvals: Vec::new(),
            review: None,
            documents: vec!["docs/planning/01_idea.md".to_owned()],
            missing_documents: Vec::new(),
            step: Some("Writing".to_owned()),
            plan: plan(),
            run: None,
            agents: Vec::new(),
            runs: 1,
            last_run: Some(TaskLastRun {
                number: 1,
                is_ok: false,
                outcome: "failed: it exited with 1: no key".to_owned(),
                last_words: "I begin.".to_owned(),
                stderr: "Error: no\u{1b}[2J key".to_owned(),
            }),
            not_before: None,
            session: None,
            model: Some("sonnet".to_owned()),
            budget: TaskBudget {
                tokens: Some(200_000),
                micro_usd: None,
                disk_bytes: None,
            },
            usage: Usage::default(),
            disk: Some(TaskDisk {
                bytes: 950 << 20,
                quota_bytes: 1 << 30,
                free_bytes: Some(40 << 30),
                measured_at: Timestamp::from_unix_millis(50_000),
            }),
            checkpoint: Some("checkpoint_003".to_owned()),
            drill: Some(TaskDrill {
                checkpoint_id: "checkpoint_003".to_owned(),
                at: Timestamp::from_unix_millis(50_000),
                entries: 12,
                problem: Some("`snapshot.tar.gz` is not as it was written".to_owned()),
            }),
            notifications: vec![TaskNotification {
                id: "n-0001".to_owned(),
                on: NotifyOn::Question,
                connection: "ops".parse().unwrap(),
                action: "send".to_owned(),
                at: Timestamp::from_unix_millis(2_000),
                state: TaskNotificationState::Failed,
                why: Some("the chat is\u{7} not found".to_owned()),
            }],
            recent: vec![TaskHistoryLine {
                at: Timestamp::from_unix_millis(2_000),
                event: "question_asked".to_owned(),
                detail: "q-0001\u{1b}[2J".to_owned(),
            }],
        }
    }

    fn question() -> TaskAsk {
        TaskAsk {
            id: "q-0001".to_owned(),
            kind: TaskAskKind::Question,
            text: "Which database?".to_owned(),
            description: String::new(),
            options: vec!["PostgreSQL".to_owned(), "SQLite".to_owned()],
            default: Some("SQLite".to_owned()),
            until: Some(Timestamp::from_unix_millis(90_000)),
        }
    }

    #[test]
    fn task_page_shows_open_questions_and_how_to_answer_them() {
        let mut asking = detail(TaskStatus::WaitingQuestion);
        asking.asks = vec![question()];
        let now = Timestamp::from_unix_millis(60_000);
        let shown = page_of(&asking, Palette::new(false).into(), now);
        for said in [
            "Which database?",
            "- PostgreSQL",
            "uses `SQLite` instead",
            "2 of 3",
            "182000 of 200000 tokens",
            "950.0 MiB of 1.0 GiB, 40.0 GiB free",
            "checkpoint_003 cannot be restored",
            "1: failed: it exited with 1: no key",
            "I begin.",
            "Error: no\\u{1b}[2J key",
            "question by ops send  not sent: the chat is\\u{7} not found",
            "question asked  q-0001\\u{1b}[2J",
        ] {
            assert!(shown.contains(said), "{said}:\n{shown}");
        }
        let next = next_commands(&asking);
        assert_eq!(next[0].command, "task answer shop SQLite");
        asking.asks.push(TaskAsk {
            kind: TaskAskKind::Secret,
            id: "d-0002".to_owned(),
            text: "STRIPE_KEY".to_owned(),
            ..question()
        });
        let next = next_commands(&asking);
        assert_eq!(next[0].command, "task answer shop --id q-0001 SQLite");
        assert_eq!(next[1].command, "task provide shop d-0002");
    }

    #[test]
    fn prov_1_usage_that_a_program_does_not_report_is_unknown() {
        let now = Timestamp::from_unix_millis(60_000);
        let shown = |tokens, cost, budget: TaskBudget| {
            let mut task = detail(TaskStatus::Running);
            (task.info.tokens, task.info.cost) = (tokens, MicroUsd(cost));
            task.budget = budget;
            page_of(&task, Palette::new(false).into(), now)
        };
        let money = TaskBudget {
            micro_usd: Some(MicroUsd(500_000)),
            ..TaskBudget::default()
        };
        for (text, said) in [
            (shown(0, 0, money), "so its budget has no effect"),
            (shown(7, 0, money), "its budget in dollars has no effect"),
            (
                shown(0, 0, TaskBudget::default()),
                "unknown: the agent reports no usage",
            ),
            (shown(7, 0, TaskBudget::default()), "unknown cost"),
        ] {
            assert!(text.contains(said), "{said}: {text}");
            assert!(!text.contains("$0.00"), "{text}");
        }
    }

    #[test]
    fn task_8_a_task_that_waits_for_a_person_has_no_next_run() {
        let now = Timestamp::from_unix_millis(60_000);
        for (status, is_shown) in [
            (TaskStatus::Running, true),
            (TaskStatus::WaitingQuestion, false),
            (TaskStatus::Paused, false),
        ] {
            let mut task = detail(status);
            task.not_before = Some(Timestamp::from_unix_millis(90_000));
            let shown = page_of(&task, Palette::new(false).into(), now);
            assert_eq!(shown.contains("Next run"), is_shown, "{status}:\n{shown}");
        }
    }

    #[test]
    fn each_state_has_a_next_step() {
        let mut review = detail(TaskStatus::WaitingReview);
        review.review = Some(2);
        assert_eq!(next_commands(&review)[0].command, "task approve shop");
        let mut held = detail(TaskStatus::Paused);
        held.info.blocked_by = Some("budget".to_owned());
        held.info.cost = MicroUsd(0);
        assert_eq!(
            next_commands(&held)[0].command,
            "task budget shop --max-usd DOLLARS --max-tokens 200000"
        );
        held.info.blocked_by = Some("quota".to_owned());
        assert_eq!(
            next_commands(&held)[0].command,
            "task budget shop --max-disk-mib MIB --max-tokens 200000"
        );
        for (status, begins) in [
            (TaskStatus::Idle, "task start"),
            (TaskStatus::Paused, "task resume"),
            (TaskStatus::Running, "task logs"),
            (TaskStatus::Failed, "task logs"),
        ] {
            let next = next_commands(&detail(status));
            assert!(next[0].command.starts_with(begins), "{next:?}");
        }
        assert!(next_commands(&detail(TaskStatus::Completed)).is_empty());
    }

    #[test]
    fn the_fields_fit_a_narrow_terminal() {
        at_three_widths(|canvas| {
            let now = Timestamp::from_unix_millis(60_000);
            fields_of(&detail(TaskStatus::Running), now).render(canvas)
        });
    }
}
