//! Tool calls, with the approvals that some calls wait for (`STEER-3`).

use goondan_protocol::JsonObject;
use goondan_protocol::agents::{AgentAnswer, AgentAsk, AgentQuestion};
use goondan_protocol::approval::{ApprovalDecision, Approve};
use goondan_protocol::limits::MAX_APPROVAL_INPUT_BYTES;
use goondan_protocol::message::ToolCall;
use goondan_protocol::time::Timestamp;
use serde_json::Value;

use super::agent::{Agent, BackgroundResult};
use crate::tool_call::{CallKey, ToolOutcome, ToolRules as _};
use crate::tools::{CallSite, Toolbox};

impl Agent {
    /// Runs a tool in its own task, after a person's approval if the call needs one. `again_since`
    /// is set if an earlier process may have begun the call, at this time or later.
    pub(super) fn run_tool(
        &mut self,
        key: CallKey,
        call: ToolCall,
        again_since: Option<Timestamp>,
    ) {
        let span = self.log_span(key, &call);
        let site = self.site_of(key, &call.id, &call.tool_name);
        let site = site.map(|site| CallSite {
            again_since,
            ..site
        });
        let may_have_begun = again_since.is_some();
        let toolbox = self.toolbox.clone();
        self.work.spawn(async move {
            let changed = match toolbox.approval_of(&call) {
                Approve::Always => Ok(None),
                Approve::Never => Err(never(&call)),
                Approve::Ask => ask(&toolbox, &call, site.as_ref(), may_have_begun, false).await,
                Approve::AskTwo => ask(&toolbox, &call, site.as_ref(), may_have_begun, true).await,
            };
            let outcome = match changed {
                Ok(None) => span.in_scope(|| toolbox.run_at(&call, site)).await,
                Ok(Some(changed)) => {
                    let outcome = span.in_scope(|| toolbox.run_at(&changed, site)).await;
                    with_changes(outcome, &call.input, &changed.input)
                }
                Err(outcome) => outcome,
            };
            BackgroundResult::Tool { key, outcome }
        });
    }

    /// True if the turn only waits for people. The process may then end, and the next one continues
    /// to wait.
    pub(super) fn only_waits_for_people(&self) -> bool {
        let waiting = self.agent_requests.approvals_waiting();
        waiting > 0 && waiting == self.work.len() && self.engine.only_waits_for_people(waiting)
    }
}

/// Error result, for the model, of a call that is never allowed.
fn never(call: &ToolCall) -> ToolOutcome {
    ToolOutcome::error(format!(
        "E_TOOL_DENIED: not carried out: the rules of this agent (`approve: never`) do not allow this call \
         of `{}`. Do not try to reach the same in another way; say what you wanted to do",
        call.tool_name
    ))
}

/// Error result, for the model, of a call that a person denied, or whose time limit is over.
fn denied(reason: Option<&str>, timed_out: bool) -> ToolOutcome {
    let reason = match (timed_out, reason) {
        (true, _) => "it needs a person's approval, and no decision was made in time".to_owned(),
        (false, Some(reason)) => format!("a person denied it: {reason}"),
        (false, None) => "a person denied it and gave no reason".to_owned(),
    };
    ToolOutcome::error(format!(
        "E_TOOL_DENIED: not carried out: {reason}. Do not try to reach the same in another way without \
         asking"
    ))
}

/// Longest text of one changed argument in a note to the model, in characters.
const CHANGED_ARGUMENT_CHARS: usize = 2_000;

/// Notice for the model, before the result of a call whose arguments a person changed.
fn changed_note(before: &Value, after: &Value) -> String {
    let empty = JsonObject::new();
    let before = before.as_object().unwrap_or(&empty);
    let after = after.as_object().unwrap_or(&empty);
    let set = after
        .iter()
        .filter(|(name, value)| before.get(*name) != Some(*value));
    let set = set.map(|(name, value)| {
        let value = value.to_string();
        match value.char_indices().nth(CHANGED_ARGUMENT_CHARS) {
            Some((cut, _)) => format!("{name} = {}…", value.get(..cut).unwrap_or_default()),
            None => format!("{name} = {value}"),
        }
    });
    let removed = before.keys().filter(|name| !after.contains_key(*name));
    let removed = removed.map(|name| format!("{name} removed"));
    let changes: Vec<String> = set.chain(removed).collect();
    format!(
        "[A person changed the arguments of this call before it ran: {}. The result is that of the changed call.]",
        changes.join("; ")
    )
}

/// Adds the notice to the result of a call that ran, or may have run, with changed arguments. An
/// error keeps its code at the beginning.
fn with_changes(outcome: ToolOutcome, before: &Value, after: &Value) -> ToolOutcome {
    let note = changed_note(before, after);
    let text = match outcome.is_error {
        true => format!("{}\n{note}", outcome.text),
        false => format!("{note}\n{}", outcome.text),
    };
    ToolOutcome { text, ..outcome }
}

/// Checks the arguments that a person set: rules and schema apply to them as to the model's.
fn changed_call(toolbox: &Toolbox, call: &ToolCall, input: Value) -> Result<ToolCall, ToolOutcome> {
    let changed = ToolCall {
        input,
        ..call.clone()
    };
    match toolbox.approval_of(&changed) {
        Approve::Never => return Err(never(&changed)),
        // One person changed the arguments, and calls that two people approve keep theirs.
        Approve::AskTwo => {
            return Err(ToolOutcome::error(
                "E_TOOL_DENIED: not carried out: a person approved this call with other arguments, which need the \
                 approval of two people",
            ));
        }
        Approve::Always | Approve::Ask => {}
    }
    match toolbox.check(&changed) {
        Ok(()) => Ok(changed),
        Err(rejected) => Err(ToolOutcome::error(format!(
            "not carried out: a person approved this call with other arguments, which do not fit: {rejected}"
        ))),
    }
}

/// Waits for a person. Returns `Ok` if the call may run now, with the call to run instead if a person
/// changed the arguments; otherwise the error result for the model.
async fn ask(
    toolbox: &Toolbox,
    call: &ToolCall,
    site: Option<&CallSite>,
    may_have_begun: bool,
    needs_two: bool,
) -> Result<Option<ToolCall>, ToolOutcome> {
    let refused =
        |text: &str| ToolOutcome::error(format!("E_TOOL_DENIED: not carried out: {text}"));
    let Some(site) = site else {
        return Err(refused("approval can be requested only within a turn"));
    };
    let ask = AgentAsk {
        turn_id: site.turn_id.clone(),
        step: site.key.step,
        call: u32::try_from(site.key.index).unwrap_or(u32::MAX),
        question: AgentQuestion::Approval {
            tool_call_id: call.id.clone(),
            tool_name: call.tool_name.clone(),
            input: call.input.clone(),
            schema: toolbox
                .parameters_of(&call.tool_name)
                .filter(|schema| schema.to_string().len() <= MAX_APPROVAL_INPUT_BYTES),
            may_have_begun,
            needs_two,
        },
    };
    match site.agent_client.ask(ask, site.trace).await {
        Some(AgentAnswer::Approval {
            decision: ApprovalDecision::Approved,
            has_begun,
            input,
            ..
        }) => {
            let name = &call.tool_name;
            if has_begun && !toolbox.is_idempotent(name) && !toolbox.is_recoverable(name) {
                let why = toolbox.why_unknown(name);
                let unknown = ToolOutcome::interrupted_because(why);
                return Err(match &input {
                    Some(input) => with_changes(unknown, &call.input, input),
                    None => unknown,
                });
            }
            let changed = input.map(|input| changed_call(toolbox, call, input));
            changed.transpose()
        }
        Some(AgentAnswer::Approval {
            reason, timed_out, ..
        }) => Err(denied(reason.as_deref(), timed_out)),
        Some(AgentAnswer::Refused { code, message }) => {
            Err(ToolOutcome::error(format!("{code}: {message}")))
        }
        Some(_) | None => Err(refused("no approval decision was received")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn steer_3_model_is_notified_of_each_changed_argument() {
        let before = json!({"command": "make release", "cwd": "/", "timeoutMs": 5});
        let after = json!({"command": "make check", "timeoutMs": 5, "env": {"A": "1"}});
        let note = changed_note(&before, &after);
        for part in [
            "A person changed the arguments",
            "command = \"make check\"",
            "env = {\"A\":\"1\"}",
            "cwd removed",
        ] {
            assert!(note.contains(part), "no {part:?} in {note}");
        }
        assert!(!note.contains("timeoutMs"), "{note}");
        let done = with_changes(ToolOutcome::ok("done"), &before, &after);
        assert_eq!(done.text, format!("{note}\ndone"));
        let unknown = with_changes(ToolOutcome::interrupted(), &before, &after);
        let is_first = unknown.text.starts_with("E_TOOL_INTERRUPTED: ");
        assert!(is_first && unknown.text.ends_with(&note), "{unknown:?}");
        let long = json!({"command": "x".repeat(CHANGED_ARGUMENT_CHARS * 2)});
        let note = changed_note(&before, &long);
        assert!(note.len() < CHANGED_ARGUMENT_CHARS + 300, "{}", note.len());
    }
}
