//! Finds the differences between a turn with the current configuration and with the new one.

use goondan_protocol::definition::AgentDefinition;
use goondan_protocol::observe::detail_of;
use goondan_protocol::rehearsal::{
    FindingKind, RehearsalFinding, RehearsedStep, RehearsedTurn, RequestPart,
};

use super::RehearsalSide;
use super::playback::{self, Call, CallDisposition, PlaybackEnd, ReplayedRequest};
use super::recorded_turns::RecordedTurn;

/// Maximum number of findings per turn; a turn has few unless nothing matches.
const FINDINGS_MAX: usize = 32;

/// Compares how two sides played a turn.
pub(super) fn compare<T>(
    (before, was): (&RehearsalSide<'_, T>, &playback::TurnPlayback),
    (after, is): (&RehearsalSide<'_, T>, &playback::TurnPlayback),
    turn: &RecordedTurn<'_>,
) -> RehearsedTurn {
    let constant = constant_parts(before.agent, after.agent);
    let steps = is.requests.iter().map(|request| {
        let mut requests = was.requests.iter();
        let other = requests.find(|it| it.step == request.step);
        RehearsedStep {
            step: request.step,
            differs: differs(&constant, other, request),
        }
    });
    let mut findings = calls_differ(was, is);
    findings.extend(end_differs(&was.end, &is.end));
    findings.truncate(FINDINGS_MAX);
    let stopped = match &is.end {
        PlaybackEnd::Lacks(what) => Some(what.clone()),
        PlaybackEnd::Unplayable => Some("failed to replay the recording".to_owned()),
        PlaybackEnd::Replied(_) | PlaybackEnd::Failed { .. } | PlaybackEnd::GoesOn(_) => None,
    };
    RehearsedTurn {
        turn_id: turn.id.clone(),
        at: turn.first.created_at.clone(),
        input: detail_of(&turn.first.data.content.to_text()),
        steps: steps.collect(),
        findings,
        stopped,
    }
}

/// Differences that affect every request, regardless of its messages.
fn constant_parts(before: &AgentDefinition, after: &AgentDefinition) -> Vec<RequestPart> {
    let mut parts = Vec::new();
    if before.system_prompt != after.system_prompt {
        parts.push(RequestPart::Prompt);
    }
    if before.model != after.model {
        parts.push(RequestPart::Model);
    }
    parts
}

fn differs(
    constant: &[RequestPart],
    was: Option<&ReplayedRequest>,
    is: &ReplayedRequest,
) -> Vec<RequestPart> {
    let mut parts = constant.to_vec();
    // A call that the current side would not have made is reported as a turn that ends at another
    // point.
    if let Some(was) = was {
        if was.offered != is.offered {
            parts.push(RequestPart::Tools);
        }
        if was.messages != is.messages {
            parts.push(RequestPart::Messages);
        }
    }
    parts
}

fn calls_differ(
    was: &playback::TurnPlayback,
    is: &playback::TurnPlayback,
) -> Vec<RehearsalFinding> {
    let mut calls: Vec<_> = is.calls.iter().collect();
    calls.sort_by_key(|(_, call)| call.step);
    let found = calls.into_iter().filter_map(|(id, call)| {
        // If only the new side reached the call, the recorded call ran once.
        let before = was
            .calls
            .get(id)
            .map_or(&CallDisposition::Runs, |call| &call.fate);
        let (what, detail, breaks) = fate_differs(before, call)?;
        Some(RehearsalFinding {
            what,
            step: call.step,
            tool_call_id: Some(id.clone()),
            tool_name: Some(call.tool_name.clone()),
            detail: detail_of(&detail),
            breaks,
        })
    });
    found.collect()
}

fn fate_differs(before: &CallDisposition, call: &Call) -> Option<(FindingKind, String, bool)> {
    match (before, &call.fate) {
        (CallDisposition::Refused(_), CallDisposition::Refused(_))
        | (CallDisposition::Runs, CallDisposition::Runs)
        | (CallDisposition::Asks, CallDisposition::Asks) => None,
        (CallDisposition::Runs | CallDisposition::Asks, CallDisposition::Refused(why)) => {
            Some((FindingKind::CallRefused, why.clone(), true))
        }
        (CallDisposition::Refused(why), CallDisposition::Runs | CallDisposition::Asks) => {
            let detail = format!("with the active revision: {why}");
            Some((FindingKind::CallTaken, detail, false))
        }
        (CallDisposition::Runs, CallDisposition::Asks) => {
            let detail = "a person is asked first".to_owned();
            Some((FindingKind::Approval, detail, false))
        }
        (CallDisposition::Asks, CallDisposition::Runs) => {
            let detail = "a person is no longer asked".to_owned();
            Some((FindingKind::Approval, detail, false))
        }
    }
}

fn end_differs(was: &PlaybackEnd, is: &PlaybackEnd) -> Option<RehearsalFinding> {
    if was == is {
        return None;
    }
    let finding = |what, step, detail: String, breaks| RehearsalFinding {
        what,
        step,
        tool_call_id: None,
        tool_name: None,
        detail,
        breaks,
    };
    match is {
        PlaybackEnd::Failed { step, why } => {
            let worked = !matches!(was, PlaybackEnd::Failed { .. });
            let detail = detail_of(why);
            Some(finding(FindingKind::TurnFails, *step, detail, worked))
        }
        PlaybackEnd::GoesOn(step) => {
            let detail = "the model is asked again; the recording ends here".to_owned();
            Some(finding(FindingKind::TurnEnds, *step, detail, false))
        }
        PlaybackEnd::Replied(step) => {
            let detail = "the turn ends here".to_owned();
            Some(finding(FindingKind::TurnEnds, *step, detail, false))
        }
        PlaybackEnd::Lacks(_) | PlaybackEnd::Unplayable => None,
    }
}
