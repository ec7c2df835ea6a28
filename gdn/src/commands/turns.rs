//! Turns of a conversation as a table (`MSG-12`).
//!
//! They are reconstructed from runtime events, which are informational and not synced: a power loss may drop the
//! latest ones. Missing data is shown as not recorded.

use std::collections::{HashMap, HashSet};

use goondan_protocol::control::InstanceTurns;
use goondan_protocol::ids::{EventId, InstanceKey, StepId, ToolCallId, TurnId, WorkspaceId};
use goondan_protocol::observe::{RuntimeEvent, RuntimeEventKind as Kind, SpanRecord, SpanState};
use goondan_protocol::time::Timestamp;
use goondan_protocol::trace::TraceId;
use serde::Serialize;

use super::active_configuration;
use crate::client::{CallError, Client};
use crate::context::Context;
use crate::output::style;
use crate::output::table::{Canvas, Cell, Column, Table};
use crate::output::text;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum TurnRowOutcome {
    Completed,
    /// Ended without a reply.
    Failed,
    /// Crashed too many processes and was given up.
    Parked,
    /// Has not ended.
    InProgress,
    /// The end is not in the records.
    NotRecorded,
}

/// Calls of one tool in a turn.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct ToolUse {
    name: String,
    calls: usize,
    /// Calls that ended in an error.
    failed: usize,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct TurnRow {
    turn_id: TurnId,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_id: Option<EventId>,
    trace_id: TraceId,
    started_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<Timestamp>,
    /// Time from the first start to the end, including time without a process.
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<u64>,
    outcome: TurnRowOutcome,
    /// Number of processes that worked on it.
    attempts: u32,
    steps: usize,
    tools: Vec<ToolUse>,
    /// Configurations of its attempts, in order without duplicates; empty for turns recorded before this field
    /// existed.
    config_digests: Vec<String>,
    /// Reason for a failure or for parking.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip)]
    input: Option<String>,
}

/// A turn that ended without a reply and left no message in the conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UnansweredTurn {
    pub(super) turn_id: TurnId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) event_id: Option<EventId>,
    trace_id: TraceId,
    outcome: TurnRowOutcome,
    pub(super) started_at: Timestamp,
    pub(super) ended_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) input: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
}

impl UnansweredTurn {
    fn of(turn: TurnRow) -> Option<Self> {
        let ended_at = turn.ended_at?;
        matches!(
            turn.outcome,
            TurnRowOutcome::Failed | TurnRowOutcome::Parked
        )
        .then_some(Self {
            turn_id: turn.turn_id,
            event_id: turn.event_id,
            trace_id: turn.trace_id,
            outcome: turn.outcome,
            started_at: turn.started_at,
            ended_at,
            input: turn.input,
            reason: turn.reason,
        })
    }

    /// `failed` or `parked`.
    pub(super) fn outcome(&self) -> &'static str {
        match self.outcome {
            TurnRowOutcome::Parked => "parked",
            _ => "failed",
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Turns {
    turns: Vec<TurnRow>,
    /// Number of turns, including those omitted.
    total: usize,
    unreadable: u64,
}

/// Reads all records of a conversation's turns, and keeps the latest `limit` turns.
pub(super) async fn read(
    client: &mut Client,
    workspace_id: &WorkspaceId,
    instance_key: &InstanceKey,
    limit: Option<usize>,
) -> Result<Turns, CallError> {
    let mut story = TurnTableBuilder::default();
    let (mut unreadable, mut offset) = (0, 0);
    loop {
        let page = client
            .query(InstanceTurns {
                workspace_id: workspace_id.clone(),
                instance_key: instance_key.clone(),
                offset,
                before: None,
            })
            .await?;
        unreadable += page.unreadable;
        for event in page.events {
            story.add(event);
        }
        match page.next {
            // Stop at a page that does not advance, which would repeat forever.
            Some(next) if next > offset => offset = next,
            _ => {
                let mut turns = story.tell(page.busy);
                let total = turns.len();
                turns.drain(..total.saturating_sub(limit.unwrap_or(total)));
                return Ok(Turns {
                    turns,
                    total,
                    unreadable,
                });
            }
        }
    }
}

/// Builds turns from runtime events.
#[derive(Debug, Default)]
struct TurnTableBuilder {
    turns: Vec<OpenTurnRow>,
    places: HashMap<TurnId, usize>,
}

#[derive(Debug)]
struct OpenTurnRow {
    turn: TurnRow,
    record: SpanRecord,
    steps: HashSet<StepId>,
    /// Keyed by step and call, because a resumed turn repeats calls under the same id.
    calls: HashSet<(Option<StepId>, Option<ToolCallId>)>,
}

impl OpenTurnRow {
    fn new(event: &RuntimeEvent) -> Self {
        Self {
            turn: TurnRow {
                turn_id: event.turn_id.clone(),
                event_id: None,
                trace_id: event.trace_id,
                started_at: event.timestamp,
                ended_at: None,
                duration_ms: None,
                outcome: TurnRowOutcome::NotRecorded,
                attempts: 0,
                steps: 0,
                tools: Vec::new(),
                config_digests: Vec::new(),
                reason: None,
                input: event
                    .detail
                    .clone()
                    .filter(|_| event.kind == Kind::TurnStarted),
            },
            record: SpanRecord::begun_by(event),
            steps: HashSet::new(),
            calls: HashSet::new(),
        }
    }

    /// Returns the turn with the data recorded so far.
    fn finish(self) -> TurnRow {
        let record = self.record;
        let ended_at = record.ended_at;
        TurnRow {
            started_at: record.started_at,
            ended_at,
            duration_ms: ended_at.map(|end| text::ms_between(record.started_at, end)),
            outcome: match record.standing {
                SpanState::Completed => TurnRowOutcome::Completed,
                SpanState::Failed => TurnRowOutcome::Failed,
                SpanState::Parked => TurnRowOutcome::Parked,
                SpanState::Open => TurnRowOutcome::NotRecorded,
            },
            attempts: record.attempts,
            steps: self.steps.len(),
            ..self.turn
        }
    }

    fn tool(&mut self, name: Option<String>) -> &mut ToolUse {
        let name = name.unwrap_or_default();
        let tools = &mut self.turn.tools;
        let at = tools.iter().position(|tool| tool.name == name);
        let at = at.unwrap_or_else(|| {
            tools.push(ToolUse {
                name,
                calls: 0,
                failed: 0,
            });
            tools.len() - 1
        });
        #[expect(clippy::indexing_slicing, reason = "found or inserted above")]
        &mut tools[at]
    }
}

impl TurnTableBuilder {
    fn add(&mut self, mut event: RuntimeEvent) {
        let place = self.places.entry(event.turn_id.clone());
        let at = *place.or_insert_with(|| {
            self.turns.push(OpenTurnRow::new(&event));
            self.turns.len() - 1
        });
        let Some(begun) = self.turns.get_mut(at) else {
            return;
        };
        if event.event_id.is_some() {
            begun.turn.event_id = event.event_id.take();
        }
        match event.kind {
            Kind::TurnStarted | Kind::TurnResumed => {
                begun.record.take(&event);
                let digests = &mut begun.turn.config_digests;
                let ran_under = event.config_digest.take();
                digests.extend(ran_under.filter(|digest| !digests.contains(digest)));
            }
            Kind::TurnCompleted | Kind::TurnFailed | Kind::TurnParked => {
                begun.record.take(&event);
                // The detail of a completed turn is its reply, which is in the conversation.
                let is_answer = event.kind == Kind::TurnCompleted;
                begun.turn.reason = event.detail.filter(|_| !is_answer);
            }
            Kind::StepStarted => begun.steps.extend(event.step_id),
            Kind::ToolCalled => {
                let call = (event.step_id, event.tool_call_id);
                if begun.calls.insert(call) {
                    begun.tool(event.tool_name).calls += 1;
                }
            }
            Kind::ToolFailed => begun.tool(event.tool_name).failed += 1,
            Kind::StepCompleted
            | Kind::StepFailed
            | Kind::ToolCompleted
            | Kind::QuestionAsked
            | Kind::QuestionClosed
            | Kind::ApprovalAsked
            | Kind::ApprovalClosed
            | Kind::BudgetWarning
            | Kind::MessageWarning => {}
        }
    }

    /// Returns the turns, oldest first. If `busy`, there is pending work, so a last turn without an end is in
    /// progress: turns run one at a time.
    fn tell(self, busy: bool) -> Vec<TurnRow> {
        let mut turns: Vec<TurnRow> = self.turns.into_iter().map(OpenTurnRow::finish).collect();
        if let Some(last) = turns.last_mut()
            && busy
            && last.ended_at.is_none()
        {
            last.outcome = TurnRowOutcome::InProgress;
        }
        turns
    }
}

impl TurnRowOutcome {
    fn cell(self) -> Cell {
        match self {
            Self::Completed => Cell::styled("completed", style::GOOD),
            Self::Failed => Cell::styled("failed", style::BAD),
            Self::Parked => Cell::styled("parked", style::BAD),
            Self::InProgress => Cell::styled("in progress", style::WARN),
            Self::NotRecorded => Cell::styled("not recorded", style::FAINT),
        }
    }
}

impl Turns {
    /// Turns that ended without a reply.
    pub(super) fn unanswered(self) -> Vec<UnansweredTurn> {
        self.turns
            .into_iter()
            .filter_map(UnansweredTurn::of)
            .collect()
    }

    /// Renders the turns, one line each, newest last.
    pub(super) fn render(&self, now: Timestamp, canvas: impl Into<Canvas>) -> String {
        let canvas = canvas.into();
        if self.turns.is_empty() {
            return "No turns yet.\n".to_owned();
        }
        let mut table = Table::new([
            Column::new("STARTED"),
            Column::new("TOOK"),
            Column::new("OUTCOME"),
            Column::new("ATTEMPTS").below(1, "attempts"),
            Column::new("STEPS").below(1, "steps"),
            Column::new("TOOLS").below(2, "tools"),
            Column::new("CONFIG").below(3, "config"),
            Column::new("EVENT").below(4, "event"),
            Column::new("TRACE").below(5, "trace"),
            Column::new("REASON").below(6, ""),
        ]);
        for turn in &self.turns {
            let took = match turn.outcome {
                TurnRowOutcome::InProgress => Some(text::ms_between(turn.started_at, now)),
                _ => turn.duration_ms,
            };
            table.row([
                text::clock(turn.started_at).into(),
                dash(took.map(text::duration)),
                turn.outcome.cell(),
                turn.attempts.to_string().into(),
                turn.steps.to_string().into(),
                dash(Some(tools(&turn.tools)).filter(|tools| !tools.is_empty())),
                dash(Some(configs(&turn.config_digests)).filter(|digests| !digests.is_empty())),
                dash(turn.event_id.as_ref().map(ToString::to_string)),
                turn.trace_id.to_string().into(),
                turn.reason.as_deref().unwrap_or_default().into(),
            ]);
        }
        let left_out = self.total.saturating_sub(self.turns.len());
        let head = if left_out == 0 {
            String::new()
        } else {
            let earlier = text::count(left_out, "earlier turn");
            canvas
                .palette
                .paint(style::FAINT, &format!("({earlier} omitted)"))
                + "\n\n"
        };
        head + &table.render(canvas)
    }

    /// Warns about unreadable records.
    pub(super) fn warn(&self, context: &Context) {
        if self.unreadable > 0 {
            let output = context.output;
            let count = usize::try_from(self.unreadable).unwrap_or(usize::MAX);
            output.note(format!(
                "{} {} of the event log cannot be read; turns may be missing or incomplete",
                output.err.paint(style::WARN, "warning:"),
                text::count(count, "record"),
            ));
        }
    }
}

fn dash(text: Option<String>) -> Cell {
    text.map_or_else(|| Cell::styled("-", style::FAINT), Cell::from)
}

/// Digest prefixes, long enough to distinguish them.
fn configs(digests: &[String]) -> String {
    let heads: Vec<String> = digests
        .iter()
        .map(|digest| active_configuration::short(digest))
        .collect();
    heads.join(" ")
}

/// `bash__exec 3 (1 failed), file-system__read`.
fn tools(used: &[ToolUse]) -> String {
    let one = |tool: &ToolUse| {
        let calls = match tool.calls {
            0 | 1 => String::new(),
            calls => format!(" {calls}"),
        };
        let failed = match tool.failed {
            0 => String::new(),
            failed => format!(" ({failed} failed)"),
        };
        format!("{}{calls}{failed}", tool.name)
    };
    used.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::style::Palette;
    use crate::output::table::at_three_widths;
    use serde_json::{Value, json};

    fn event(kind: &str, turn: &str, second: u32, more: &Value) -> RuntimeEvent {
        let mut event = json!({
            "type": kind,
            "timestamp": format!("2026-01-01T00:00:{second:02}.000Z"),
            "traceId": "4bf92f3577b34da6a3ce929d0e0e4736",
            "spanId": "00f067aa0ba902b7",
            "agentName": "clerk",
            "instanceKey": "main",
            "turnId": turn,
        });
        let fields = more.as_object().unwrap().clone();
        event.as_object_mut().unwrap().extend(fields);
        serde_json::from_value(event).unwrap()
    }

    fn turn_rows(events: Vec<RuntimeEvent>, busy: bool) -> Vec<TurnRow> {
        let mut story = TurnTableBuilder::default();
        for event in events {
            story.add(event);
        }
        story.tell(busy)
    }

    fn call(kind: &str, id: &str, second: u32) -> RuntimeEvent {
        let more = json!({"stepId": "t.1", "toolCallId": id, "toolName": "bash__exec"});
        event(kind, "t", second, &more)
    }

    fn resumed_turn() -> Vec<RuntimeEvent> {
        let step = json!({"stepId": "t.1"});
        vec![
            event(
                "turn.started",
                "t",
                1,
                &json!({"eventId": "e", "detail": "hello", "configDigest": "aaaabbbbccccdddd"}),
            ),
            event("step.started", "t", 1, &step),
            call("tool.called", "c1", 2),
            event(
                "turn.resumed",
                "t",
                5,
                &json!({"eventId": "e", "configDigest": "eeeeffff00001111"}),
            ),
            call("tool.called", "c1", 5),
            call("tool.failed", "c1", 6),
            call("tool.called", "c2", 6),
            call("tool.completed", "c2", 7),
            event("step.started", "t", 7, &json!({"stepId": "t.2"})),
            event(
                "turn.completed",
                "t",
                9,
                &json!({"eventId": "e", "detail": "bye"}),
            ),
        ]
    }

    #[test]
    fn msg_12_a_resumed_turn_is_one_turn_with_two_attempts() {
        let turns = turn_rows(resumed_turn(), false);
        assert_eq!(turns.len(), 1);
        let turn = &turns[0];
        assert_eq!((turn.attempts, turn.steps), (2, 2));
        assert_eq!(
            (turn.outcome, turn.duration_ms),
            (TurnRowOutcome::Completed, Some(8_000))
        );
        assert_eq!(turn.event_id.as_ref().map(EventId::as_str), Some("e"));
        assert_eq!(configs(&turn.config_digests), "aaaabbbb eeeeffff");
        assert_eq!(turn.reason, None, "no reason in the answer");
        assert_eq!(tools(&turn.tools), "bash__exec 2 (1 failed)");
    }

    #[test]
    fn msg_12_only_the_last_turn_of_a_busy_instance_is_in_progress() {
        let begun = |turn, second| event("turn.started", turn, second, &json!({}));
        let outcomes = |busy| {
            let turns = turn_rows(vec![begun("a", 1), begun("b", 2)], busy);
            turns.iter().map(|turn| turn.outcome).collect::<Vec<_>>()
        };
        assert_eq!(
            outcomes(true),
            [TurnRowOutcome::NotRecorded, TurnRowOutcome::InProgress]
        );
        assert_eq!(
            outcomes(false),
            [TurnRowOutcome::NotRecorded, TurnRowOutcome::NotRecorded]
        );
        let ended = turn_rows(resumed_turn(), true);
        assert_eq!(
            ended[0].outcome,
            TurnRowOutcome::Completed,
            "another event waits"
        );
    }

    #[test]
    fn msg_12_turns_are_a_table_with_their_reasons() {
        let failed = json!({"eventId": "e2", "detail": "overloaded"});
        let mut events = resumed_turn();
        events.push(event("turn.started", "u", 10, &json!({})));
        events.push(event("turn.failed", "u", 12, &failed));
        events.push(event("turn.started", "v", 20, &json!({"eventId": "e3"})));
        let turns = Turns {
            turns: turn_rows(events, true),
            total: 4,
            unreadable: 0,
        };
        let now = "2026-01-01T00:00:23.500Z".parse().unwrap();
        let rendered = turns.render(now, Palette::new(false));
        let lines: Vec<&str> = rendered.lines().map(str::trim_end).collect();
        assert_eq!(lines[0], "(1 earlier turn omitted)");
        for (line, texts) in [
            (
                3,
                &["8.0s", "completed", "bash__exec 2 (1 failed)", "e "][..],
            ),
            (4, &["2.0s", "failed", "e2", "overloaded"][..]),
            (5, &["3.5s", "in progress", "e3"][..]),
        ] {
            for text in texts {
                assert!(lines[line].contains(text), "no {text:?} in {rendered}");
            }
        }
    }

    #[test]
    fn msg_12_narrow_terminal_shows_all_of_the_turns() {
        let failed = json!({
            "eventId": "01a20056-d8ea-74ff-86b8-2a82fbfe8ae6",
            "detail": "E_MODEL_OVERLOADED: the provider is overloaded and says to come back later",
        });
        let mut events = resumed_turn();
        events.push(event("turn.started", "u", 10, &json!({})));
        events.push(event("turn.failed", "u", 12, &failed));
        let turns = Turns {
            turns: turn_rows(events, false),
            total: 2,
            unreadable: 0,
        };
        let now = "2026-01-01T00:00:23.500Z".parse().unwrap();
        let shown = at_three_widths(|canvas| turns.render(now, canvas));
        // The time is local to the machine.
        let shown = shown.replace(
            &text::clock("2026-01-01T00:00:01.000Z".parse().unwrap()),
            "2026-01-01 00:00:01",
        );
        let shown = shown.replace(
            &text::clock("2026-01-01T00:00:10.000Z".parse().unwrap()),
            "2026-01-01 00:00:10",
        );
        assert_eq!(shown, include_str!("narrow/turns.txt"));
    }
}
