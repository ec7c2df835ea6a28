//! Tool calls, with the approvals that some calls wait for (`STEER-3`).

use goondan_protocol::agents::{AgentAnswer, AgentAsk, AgentQuestion};
use goondan_protocol::approval::{ApprovalDecision, Approve};
use goondan_protocol::message::ToolCall;
use goondan_protocol::time::Timestamp;

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
            let outcome = match toolbox.approval_of(&call) {
                Approve::Always => Ok(()),
                Approve::Never => Err(never(&call)),
                Approve::Ask => ask(&toolbox, &call, site.as_ref(), may_have_begun).await,
            };
            let outcome = match outcome {
                Ok(()) => span.in_scope(|| toolbox.run_at(&call, site)).await,
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

/// Waits for a person. Returns `Ok` if the call may run now, otherwise the error result for the
/// model.
async fn ask(
    toolbox: &Toolbox,
    call: &ToolCall,
    site: Option<&CallSite>,
    may_have_begun: bool,
) -> Result<(), ToolOutcome> {
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
            may_have_begun,
        },
    };
    match site.agent_client.ask(ask, site.trace).await {
        Some(AgentAnswer::Approval {
            decision: ApprovalDecision::Approved,
            has_begun,
            ..
        }) => {
            let name = &call.tool_name;
            if has_begun && !toolbox.is_idempotent(name) && !toolbox.is_recoverable(name) {
                let why = toolbox.why_unknown(name);
                return Err(ToolOutcome::interrupted_because(why));
            }
            Ok(())
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
