//! `gdn event trace`: everything caused by one event, across agents: a tree of turns, steps and tool calls with their
//! duration as a bar, and the tokens and cost of model replies.

use clap::Args;
use std::collections::BTreeMap;

use goondan_client::Trace;
use goondan_protocol::ids::{AgentName, InstanceKey, StepId, ToolCallId, TurnId};
use goondan_protocol::observe::{RuntimeEvent, RuntimeEventKind, SpanPhase, SpanRecord, SpanState};
use goondan_protocol::sandbox::Level;
use goondan_protocol::trace::SpanId;
use goondan_protocol::usage::{MicroUsd, ReplyCost, Usage, UsageTotal};
use serde::Serialize;
use serde_json::json;

use crate::context::Context;
use crate::failure::Failure;
use crate::output::style;
use crate::output::table::{Canvas, Cell, Column, Table};
use crate::output::text;
use crate::schemas;

/// Show everything caused by one event, across agents, with durations
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gdn event trace                              the trace of the latest turn
  gdn event trace 4bf92f3577b34da6a3ce929d0e0e4736
  gdn event trace EVENT                  the id that `gdn send --no-wait` printed, or a turn's
  gdn event trace last --json | jq '.spans[] | select(.standing == \"failed\")'")]
pub(crate) struct TraceArgs {
    /// A trace, or a turn or event in it; `last` is the latest turn
    #[arg(value_name = "ID", default_value = "last")]
    of: Option<String>,
}

/// Maximum width of a bar, in columns.
const BAR_COLUMNS: usize = 40;
/// Maximum width of a bar on a narrow terminal, in columns.
const BAR_COLUMNS_MIN: usize = 12;
/// The bar takes one in this many columns of the terminal.
const BAR_SHARE: usize = 4;
/// Argument that selects the latest trace.
const LAST: &str = "last";

pub(crate) async fn run(args: TraceArgs, context: &Context) -> Result<(), Failure> {
    let (mut client, workspace) = context.open().await?;
    let of = args.of.filter(|of| of != LAST);
    let workspace_id = workspace.workspace_id;
    let trace = client.trace(workspace_id, of).await?;
    let spans = spans_of(&trace.events);
    let output = context.output;
    output.object(
        schemas::TRACE,
        &json!({
            "traceId": trace.trace_id,
            "spans": spans,
            "total": total_of(&spans),
            "partial": trace.partial,
        }),
    )?;
    output.data(summary(&trace, &spans))?;
    output.data(waterfall(&spans, output.canvas()))?;
    if trace.partial {
        output.note("The trace may be incomplete: only the latest records are searched.");
    }
    Ok(())
}

pub(super) fn as_text(trace: &Trace, canvas: Canvas) -> String {
    let spans = spans_of(&trace.events);
    format!("{}\n{}", summary(trace, &spans), waterfall(&spans, canvas))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum SpanKind {
    Turn,
    Step,
    Tool,
}

/// A turn, a step or a tool call.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Span {
    span_id: SpanId,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<SpanId>,
    kind: SpanKind,
    agent_name: AgentName,
    instance_key: InstanceKey,
    turn_id: TurnId,
    #[serde(skip_serializing_if = "Option::is_none")]
    step_id: Option<StepId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<ToolCallId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_name: Option<String>,
    #[serde(flatten)]
    record: SpanRecord,
    /// Confinement level of the call's programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    sandbox: Option<Level>,
    duration_ms: u64,
    /// Tokens used by the replies of a step or turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_micro_usd: Option<MicroUsd>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    /// Warnings of a turn, such as tools that were not available.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    depth: usize,
}

impl Span {
    fn begun_by(event: &RuntimeEvent) -> Self {
        let kind = match (&event.step_id, &event.tool_call_id) {
            (_, Some(_)) => SpanKind::Tool,
            (Some(_), None) => SpanKind::Step,
            (None, None) => SpanKind::Turn,
        };
        Self {
            span_id: event.span_id,
            parent_span_id: event.parent_span_id,
            kind,
            agent_name: event.agent_name.clone(),
            instance_key: event.instance_key.clone(),
            turn_id: event.turn_id.clone(),
            step_id: event.step_id.clone(),
            tool_call_id: event.tool_call_id.clone(),
            tool_name: event.tool_name.clone(),
            record: SpanRecord::begun_by(event),
            sandbox: None,
            duration_ms: 0,
            usage: None,
            cost_micro_usd: None,
            detail: event.detail.clone(),
            warnings: Vec::new(),
            depth: 0,
        }
    }

    fn take(&mut self, event: &RuntimeEvent) {
        self.record.take(event);
        if matches!(event.kind.phase(), SpanPhase::Ends(_)) {
            (self.usage, self.cost_micro_usd) = (event.usage, event.cost_micro_usd);
            self.sandbox = event.sandbox;
            if self.record.standing != SpanState::Completed {
                self.detail.clone_from(&event.detail);
            }
        }
    }

    fn name(&self) -> String {
        match self.kind {
            SpanKind::Turn => self.instance_key.to_string(),
            SpanKind::Step => {
                if self.step_id.as_ref().is_some_and(StepId::is_summary) {
                    return "summary".to_owned();
                }
                let step = self.step_id.as_ref().map(StepId::as_str);
                let number = step.and_then(|step| step.rsplit_once('.'));
                format!("step {}", number.map_or("?", |(_, number)| number))
            }
            SpanKind::Tool => self.tool_name.clone().unwrap_or_default(),
        }
    }

    fn look(&self) -> anstyle::Style {
        match (self.record.standing, self.kind) {
            (SpanState::Failed | SpanState::Parked, _) => style::BAD,
            (SpanState::Open, _) => style::WARN,
            (SpanState::Completed, SpanKind::Tool) => style::GOOD,
            (SpanState::Completed, SpanKind::Turn | SpanKind::Step) => style::PLAIN,
        }
    }

    /// Input tokens, output tokens and cost.
    fn metered(&self) -> [Cell; 3] {
        let tokens = |count: fn(&Usage) -> u64| {
            let usage = self.usage.as_ref();
            Cell::from(usage.map_or_else(String::new, |usage| count(usage).to_string()))
        };
        let cost = match (self.usage, self.cost_micro_usd) {
            (_, Some(cost)) => Cell::from(cost.to_string()),
            (Some(_), None) => Cell::styled(text::UNKNOWN, style::FAINT),
            (None, None) => Cell::from(""),
        };
        [
            tokens(Usage::read),
            tokens(|usage| usage.output_tokens),
            cost,
        ]
    }

    /// Notable facts about the span.
    fn remark(&self) -> String {
        let mut remarks = Vec::new();
        if self.record.attempts > 1 {
            remarks.push(format!("{} attempts", self.record.attempts));
        }
        // The default level is not mentioned.
        if let Some(level) = self.sandbox.filter(|level| *level != Level::Full) {
            remarks.push(format!("sandbox `{level}`"));
        }
        match self.record.standing {
            SpanState::Open => remarks.push("not ended".to_owned()),
            SpanState::Failed => remarks.push("failed".to_owned()),
            SpanState::Parked => remarks.push("parked".to_owned()),
            SpanState::Completed => {}
        }
        if self.record.standing != SpanState::Completed
            && self.record.standing != SpanState::Open
            && let Some(detail) = &self.detail
        {
            remarks.push(detail.clone());
        }
        let warnings = self.warnings.iter();
        remarks.extend(warnings.map(|warning| format!("warning: {warning}")));
        remarks.join(": ")
    }
}

/// Spans of a trace as a tree, in display order. A span whose parent is not part of the trace is a root.
fn spans_of(events: &[RuntimeEvent]) -> Vec<Span> {
    let mut spans: BTreeMap<SpanId, Span> = BTreeMap::new();
    let mut order: Vec<SpanId> = Vec::new();
    let last = events.last().map(|event| event.timestamp);
    for event in events
        .iter()
        .filter(|event| event.kind.phase() != SpanPhase::Within)
    {
        let id = event.span_id;
        let span = spans.entry(id).or_insert_with(|| {
            order.push(id);
            Span::begun_by(event)
        });
        span.take(event);
    }
    let is_warning = |event: &&RuntimeEvent| event.kind == RuntimeEventKind::MessageWarning;
    for event in events.iter().filter(is_warning) {
        if let Some(span) = spans.get_mut(&event.span_id) {
            span.warnings.extend(event.detail.clone());
        }
    }
    let mut below: BTreeMap<Option<SpanId>, Vec<SpanId>> = BTreeMap::new();
    for id in order {
        let parent = spans.get(&id).and_then(|span| span.parent_span_id);
        let parent = parent.filter(|p| spans.contains_key(p) && *p != id);
        below.entry(parent).or_default().push(id);
    }
    let mut tree = Vec::with_capacity(spans.len());
    let mut next: Vec<(SpanId, usize)> = Vec::new();
    let push = |next: &mut Vec<(SpanId, usize)>, ids: Option<&Vec<SpanId>>, depth| {
        next.extend(ids.into_iter().flatten().rev().map(|id| (*id, depth)));
    };
    push(&mut next, below.get(&None), 0);
    while let Some((id, depth)) = next.pop() {
        if let Some(mut span) = spans.remove(&id) {
            let end = span
                .record
                .ended_at
                .or(last)
                .unwrap_or(span.record.started_at);
            span.duration_ms = text::ms_between(span.record.started_at, end);
            span.depth = depth;
            tree.push(span);
            push(&mut next, below.get(&Some(id)), depth + 1);
        }
    }
    tree
}

/// Total of all replies with known token counts; none if there is no such reply.
fn total_of(spans: &[Span]) -> Option<UsageTotal> {
    let mut total = UsageTotal::default();
    let steps = spans.iter().filter(|span| span.kind == SpanKind::Step);
    for span in steps.filter(|span| span.usage.is_some()) {
        total.add_reply(&ReplyCost {
            usage: span.usage,
            cost: span.cost_micro_usd,
        });
    }
    (total.replies > 0).then_some(total)
}

/// Start and duration of the trace.
fn extent(spans: &[Span]) -> (i64, u64) {
    let begin = |span: &Span| span.record.started_at.as_unix_millis();
    let first = spans.iter().map(begin).min().unwrap_or(0);
    let last = spans
        .iter()
        .map(|span| begin(span).saturating_add(i64::try_from(span.duration_ms).unwrap_or(0)))
        .max()
        .unwrap_or(first);
    (first, u64::try_from(last - first).unwrap_or(0))
}

fn summary(trace: &Trace, spans: &[Span]) -> String {
    let count = |kind| spans.iter().filter(|span| span.kind == kind).count();
    let (_, total_ms) = extent(spans);
    let spent = total_of(spans).map_or_else(String::new, |total| {
        let tokens = text::count(total.usage.total(), "token");
        format!(", {tokens}, cost {}", text::cost(&total))
    });
    format!(
        "Trace {}: {}, {}, {}, {}{spent}",
        trace.trace_id,
        text::count(count(SpanKind::Turn) as u64, "turn"),
        text::count(count(SpanKind::Step) as u64, "step"),
        text::count(count(SpanKind::Tool) as u64, "tool call"),
        text::duration(total_ms),
    )
}

fn waterfall(spans: &[Span], canvas: impl Into<Canvas>) -> String {
    let canvas = canvas.into();
    let (first_ms, total_ms) = extent(spans);
    let bar_columns = match canvas.columns {
        Some(room) => (room / BAR_SHARE).clamp(BAR_COLUMNS_MIN, BAR_COLUMNS),
        None => BAR_COLUMNS,
    };
    let is_metered = spans.iter().any(|span| span.usage.is_some());
    let metered = is_metered.then_some([
        Column::new("IN").below(2, "in"),
        Column::new("OUT").below(2, "out"),
        Column::new("COST").below(1, "cost"),
    ]);
    let titles = [
        Column::new("WHAT").cut(),
        Column::new("AGENT").cut(),
        Column::new("TOOK"),
    ];
    let end = [Column::new("WHEN"), Column::new("").below(3, "")];
    let metered = metered.into_iter().flatten();
    let mut table = Table::new(titles.into_iter().chain(metered).chain(end));
    for span in spans {
        let begun_ms = span.record.started_at.as_unix_millis() - first_ms;
        let begun_ms = u64::try_from(begun_ms).unwrap_or(0);
        let agent = if span.kind == SpanKind::Turn {
            span.agent_name.as_str()
        } else {
            ""
        };
        let what = format!("{}{}", "  ".repeat(span.depth), span.name());
        let what = [
            Cell::styled(what, span.look()),
            Cell::from(agent),
            Cell::from(text::duration(span.duration_ms)),
        ];
        let when = [
            Cell::styled(
                bar(begun_ms, span.duration_ms, total_ms, bar_columns),
                span.look(),
            ),
            Cell::styled(span.remark(), span.look()),
        ];
        let metered = is_metered.then(|| span.metered());
        let cells = what.into_iter().chain(metered.into_iter().flatten());
        table.row(cells.chain(when));
    }
    table.render(canvas)
}

/// Draws a bar of at least one column at its position between start and end.
fn bar(begun_ms: u64, took_ms: u64, total_ms: u64, columns: usize) -> String {
    let columns = columns as u64;
    let total_ms = total_ms.max(1);
    let from = (begun_ms.min(total_ms) * columns / total_ms).min(columns - 1);
    let to = (begun_ms.saturating_add(took_ms).min(total_ms) * columns).div_ceil(total_ms);
    let to = to.clamp(from + 1, columns);
    let repeat = |text: &str, count: u64| text.repeat(usize::try_from(count).unwrap_or(0));
    [
        repeat("·", from),
        repeat("█", to - from),
        repeat("·", columns - to),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::style::Palette;
    use crate::output::table::at_three_widths;

    fn event(
        kind: &str,
        at_ms: u32,
        span: u64,
        parent: Option<u64>,
        more: &serde_json::Value,
    ) -> RuntimeEvent {
        let mut event = json!({
            "type": kind,
            "timestamp": format!("2026-01-01T00:00:00.{at_ms:03}Z"),
            "traceId": "4bf92f3577b34da6a3ce929d0e0e4736",
            "spanId": format!("{span:016x}"),
            "agentName": "boss",
            "instanceKey": "main",
            "turnId": "t",
        });
        if let Some(parent) = parent {
            event["parentSpanId"] = json!(format!("{parent:016x}"));
        }
        let fields = more.as_object().unwrap().clone();
        event.as_object_mut().unwrap().extend(fields);
        serde_json::from_value(event).unwrap()
    }

    fn asked() -> Vec<RuntimeEvent> {
        let step = json!({"stepId": "t.1"});
        let call = json!({"stepId": "t.1", "toolCallId": "c", "toolName": "agents__request"});
        let left = json!({"agentName": "left", "instanceKey": "left:main", "turnId": "u"});
        let failed = json!({"agentName": "left", "instanceKey": "left:main", "turnId": "u", "detail": "E_MODEL: no"});
        vec![
            event("turn.started", 0, 1, Some(99), &json!({})),
            event("step.started", 0, 2, Some(1), &step),
            event("tool.called", 100, 3, Some(2), &call),
            event("turn.started", 200, 4, Some(3), &left),
            event("turn.resumed", 300, 4, Some(3), &left),
            event("turn.failed", 600, 4, Some(3), &failed),
            event("tool.completed", 700, 3, Some(2), &call),
            event("step.completed", 700, 2, Some(1), &step),
            event("turn.completed", 800, 1, Some(99), &json!({})),
        ]
    }

    #[test]
    fn the_turn_of_another_agent_hangs_on_the_call_that_asked() {
        let spans = spans_of(&asked());
        let shown: Vec<_> = spans
            .iter()
            .map(|s| (s.depth, s.name(), s.duration_ms))
            .collect();
        let expected = [
            (0, "main", 800),
            (1, "step 1", 700),
            (2, "agents__request", 600),
            (3, "left:main", 400),
        ];
        let expected = expected.map(|(depth, name, ms)| (depth, name.to_owned(), ms));
        assert_eq!(shown, expected);
        assert_eq!(spans[3].remark(), "2 attempts: failed: E_MODEL: no");
    }

    #[test]
    fn prov_1_a_turn_shows_its_warnings() {
        let mut events = asked();
        let detail = "the tools of connection `kit` are not available yet";
        events.push(event(
            "message.warning",
            50,
            1,
            Some(99),
            &json!({"detail": detail}),
        ));
        let spans = spans_of(&events);
        assert_eq!(spans[0].remark(), format!("warning: {detail}"));
        assert_eq!(
            serde_json::to_value(&spans[0]).unwrap()["warnings"],
            json!([detail])
        );
    }

    #[test]
    fn the_waterfall_is_plain_and_aligned_without_colour() {
        let text = waterfall(&spans_of(&asked()), Palette::new(false));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5);
        assert!(lines[1].starts_with("main "), "{text}");
        assert!(lines[4].starts_with("      left:main "), "{text}");
        assert!(!text.contains('\u{1b}'));
        let bars: Vec<usize> = lines[1..]
            .iter()
            .map(|line| line.find(['█', '·']).unwrap())
            .collect();
        assert!(bars.iter().all(|at| *at == bars[0]), "{text}");
    }

    #[test]
    fn trace_shows_reply_usage_and_marks_unknown_cost_as_unknown() {
        let mut events = asked();
        assert!(!waterfall(&spans_of(&events), Palette::new(false)).contains("COST"));
        let usage = json!({"inputTokens": 100, "cacheReadTokens": 20, "outputTokens": 7});
        events[7].usage = serde_json::from_value(usage).unwrap();
        let unknown = waterfall(&spans_of(&events), Palette::new(false));
        assert!(unknown.contains("unknown"), "{unknown}");
        events[7].cost_micro_usd = Some(MicroUsd(12_300));
        let spans = spans_of(&events);
        let known = waterfall(&spans, Palette::new(false));
        let step: Vec<_> = known.lines().nth(2).unwrap().split_whitespace().collect();
        assert_eq!(step[..6], ["step", "1", "700ms", "120", "7", "$0.0123"]);
        let trace = Trace {
            trace_id: events[0].trace_id,
            events,
            partial: false,
        };
        let summary = summary(&trace, &spans);
        assert!(summary.ends_with(", 127 tokens, cost $0.0123"), "{summary}");
    }

    #[test]
    fn trace_bar_has_the_position_and_length_of_its_span() {
        assert_eq!(bar(0, 800, 800, 40), "█".repeat(40));
        assert_eq!(
            bar(400, 200, 800, 40),
            format!("{}{}{}", "·".repeat(20), "█".repeat(10), "·".repeat(10))
        );
        assert_eq!(bar(800, 0, 800, 40), format!("{}█", "·".repeat(39)));
        assert_eq!(bar(0, 0, 0, 40), format!("█{}", "·".repeat(39)));
    }

    #[test]
    fn narrow_terminal_shows_all_of_the_trace() {
        let mut events = asked();
        let usage = json!({"inputTokens": 100, "cacheReadTokens": 20, "outputTokens": 7});
        events[7].usage = serde_json::from_value(usage).unwrap();
        events[7].cost_micro_usd = Some(MicroUsd(12_300));
        let spans = spans_of(&events);
        let shown = at_three_widths(|canvas| waterfall(&spans, canvas));
        assert_eq!(shown, include_str!("narrow/trace.txt"));
    }
}
